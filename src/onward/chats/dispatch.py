"""Messages of chats: stored once, then taken up.

A message is stored with what it asks for before anything is done about it. Taking it up is: look at the
chat, decide, do it, and note what became of the message. Any process may do this at any time, also two at
once: see the docstring of the package. One that could not be dealt with is tried again later, and after each
failure later still.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import assert_never

import msgspec
from msgspec.structs import replace

from onward.chats import decide as decisions
from onward.chats.intent import BUILT_IN
from onward.chats.runs import ChatSeen, Looking, RunStarting, is_work_of_chat
from onward.clock import Clock, Ids, SystemIds
from onward.engine.control.requests import Resume
from onward.engine.engine import Engine
from onward.engine.log import RequestTerms
from onward.engine.messages import Saying, check_said
from onward.engine.persist import retry_store
from onward.errors import OnwardError, Refused, RunNotFound, StoreError
from onward.machine.reasons import ContinuedBy, reason_of
from onward.model import chat as chats
from onward.model.gate import Answer
from onward.model.ids import own_key, read_wanted
from onward.model.limits import check_name, check_path, check_scoped
from onward.model.run import Run, RunStatus
from onward.model.settings import DEFAULT_CHATS, ChatSettings
from onward.store.codec import content_hash
from onward.store.port.messages import Intakes


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message, and what is said about it. Under the same `key` of the same sender it is sent once.

    `project`, `pipeline` and `workdir` are those of the run that it may start. One that may not answer a
    gate is told the question instead.
    """

    chat: str
    text: str
    by: str = "user"
    key: str | None = None
    wish: chats.Wish = chats.Wish.NONE
    project: str | None = None
    pipeline: str | None = None
    workdir: str | None = None
    may_answer: bool = True


class Inbox(msgspec.Struct, frozen=True):
    """Stores messages with what they ask for."""

    intakes: Intakes
    saying: Saying
    clock: Clock
    ids: Ids

    async def put(self, sent: NewMessage) -> tuple[chats.Intake, bool]:
        """Store a message; when this returns, it is durable. Says also whether it was sent before."""
        _check(sent)
        id = self.ids.unique() if sent.key is None else chats.keyed_message_id(sent.by, sent.key)
        message, content = self.saying.message(sent.chat, sent.text, id=id)
        intake = chats.Intake(
            n=0,
            message=id,
            chat=sent.chat,
            body_hash=_hash(sent),
            said_by=sent.by,
            wish=sent.wish,
            project=sent.project or "",
            pipeline=sent.pipeline or "",
            workdir=sent.workdir or "",
            state=chats.IntakeState.PENDING,
            behind="",
            outcome=None,
            run_id="",
            reading="" if sent.may_answer else chats.write_reading(chats.CANNOT_ANSWER),
            notice="",
            at_us=message.begun_at_us,
            done_at_us=None,
        )
        before = None if sent.key is None else await self.intakes.find(id)
        if before is not None:
            return _same(before, intake, sent.key), True
        await self._check_project(sent)
        stored = await retry_store(self.clock, lambda: self.intakes.put(message, content, intake))
        return _same(stored, intake, sent.key), stored.at_us != intake.at_us  # else somebody else was first

    async def _check_project(self, sent: NewMessage) -> None:
        """A project is a set of chats: whoever spends in a chat spends in its project."""
        chat = None if sent.project is None else await self.intakes.find_chat(sent.chat)
        if chat is not None and chat.project not in ("", sent.project):
            raise Refused(
                "other_project",
                f"chat {sent.chat} belongs to project {chat.project}, not to {sent.project}; leave the "
                "project out, or use another chat.",
                details={"chat": sent.chat, "project": chat.project},
            )


def _same(stored: chats.Intake, intake: chats.Intake, key: str | None) -> chats.Intake:
    """What is stored, if it is this message."""
    if stored.body_hash != intake.body_hash:
        raise Refused(
            "key_reused",
            f"the key {own_key(key or '')!r} was used for another message, in chat {stored.chat}; send that "
            "message unchanged, or choose a new key.",
            details={"chat": stored.chat, "key": own_key(key or "")},
        )
    return stored


def _check(sent: NewMessage) -> None:
    check_said(sent.chat, sent.text)
    check_name("the sender", sent.by)
    check_name("the key", sent.key or "")
    check_scoped("the project", sent.project)
    check_path("the directory", sent.workdir)
    if sent.pipeline is not None:
        read_wanted(sent.pipeline)


def _hash(sent: NewMessage) -> str:
    """What a key stands for. Where the work is to be done is not part of it, nor what the sender may do:
    whoever sends a message again may be elsewhere, or have other rights by then."""
    asked = {
        name: value
        for name, value in msgspec.structs.asdict(sent).items()
        if name not in ("key", "workdir", "may_answer")
    }
    return content_hash(msgspec.json.encode(asked, order="sorted"))


WAIT_S_FIRST, WAIT_S_MAX = 1.0, 300.0
REMEMBERED_MAX = 10_000


class Failures(msgspec.Struct):
    """What this process tried in vain. Others try for themselves."""

    _waits: dict[str, tuple[float, float]] = msgspec.field(default_factory=dict)
    """By message: from when on it may be tried, and how long that was put off."""

    def may_try(self, message: str, now_s: float) -> bool:
        """Whether a message may be tried now."""
        until_s, _ = self._waits.get(message, (now_s, 0.0))
        return now_s >= until_s

    def note(self, message: str, now_s: float) -> float:
        """It failed; says for how long it is put off."""
        _, before_s = self._waits.get(message, (0.0, 0.0))
        wait_s = min(2 * before_s, WAIT_S_MAX) or WAIT_S_FIRST
        if len(self._waits) >= REMEMBERED_MAX:
            self._waits.clear()
        self._waits[message] = now_s + wait_s, wait_s
        return wait_s

    def forget(self, message: str) -> None:
        """It was dealt with."""
        self._waits.pop(message, None)


log = logging.getLogger("onward.chats")
LOOKS_MAX = 50
"""How often a message is looked at before it is left to the next sweep: whatever happens in its chat."""
RESUMED, STEERED, ANSWERED = (
    chats.IntakeOutcome.RESUMED,
    chats.IntakeOutcome.STEERED,
    chats.IntakeOutcome.ANSWERED,
)
BY = "chat"
STALE = "stale_head"
TOO_LATE = ("invalid_state", "no_open_gate", "gate_decided")
"""Why a run under way takes no instruction or answer: it has moved on, so the message is decided anew."""


class Dispatcher(msgspec.Struct, frozen=True):
    """Takes up messages through one engine."""

    engine: Engine
    clock: Clock
    settings: ChatSettings = DEFAULT_CHATS
    ids: Ids = SystemIds()
    failures: Failures = msgspec.field(default_factory=Failures)

    async def send(self, sent: NewMessage) -> tuple[chats.Intake, bool]:
        """Store a message, and do what follows from it; says also whether it was sent before.

        The message is durable before anything else happens: what fails after that is done by a worker.
        """
        sending = Inbox(self.engine.store.intakes, self.engine.saying, self.clock, self.ids)
        intake, is_repeat = await sending.put(sent)
        if intake.state is not chats.IntakeState.DONE:
            await self.take_up(chat=intake.chat, upto=intake.n)
        return await self._found(intake.message), is_repeat

    async def take_up(self, *, chat: str | None = None, upto: int | None = None) -> int:
        """Take up the messages that wait for nothing, oldest first; returns how many of them moved on.

        `chat`: only those of one chat. `upto`: only up to this one, in the order of all.
        """
        moved = after = 0
        while page := await self.engine.store.intakes.free(chat=chat, after=after):
            for intake in page:
                if upto is not None and intake.n > upto:
                    return moved
                moved += await self._moves_on(intake, is_last=intake.n == upto)
            after = page[-1].n
        return moved

    async def _moves_on(self, intake: chats.Intake, *, is_last: bool) -> bool:
        """Take up a message; whether that changed something. What fails is tried again later, and later."""
        now_s = self.clock.awake_s()
        if not is_last and not self.failures.may_try(intake.message, now_s):
            return False
        try:
            done = await self._dispatch(intake.message)
        except Exception as error:  # of any kind: other messages come after it
            if is_last:
                raise
            wait_s = self.failures.note(intake.message, now_s)
            log.warning(
                "message %s of chat %s cannot be processed: %s. It is tried again in %.0f s.",
                intake.message,
                intake.chat,
                error,
                wait_s,
            )
            return False
        self.failures.forget(intake.message)
        return done != intake

    async def tell_stop(self, run: Run) -> None:
        """Say in its chat why a run has stopped; once for each stop."""
        words = decisions.stop_words(run) if is_work_of_chat(run) and not run.is_dismissed else None
        if words is not None and run.chat is not None:
            await self.engine.saying.tell(run.chat, words, id=chats.answer_to(run.id, f"stop {run.head}"))

    async def _dispatch(self, message: str) -> chats.Intake:
        for _ in range(LOOKS_MAX):
            intake = await self._found(message)
            if intake.state is chats.IntakeState.DONE:
                return intake
            try:
                if await self._step(intake):
                    return await self._found(message)
            except StoreError:
                raise
            except OnwardError as error:
                if isinstance(error, Refused) and error.code == STALE:
                    await self._forget_act(intake)
                    continue  # the run has moved on since it was looked at
                outcome = chats.IntakeOutcome.LIMIT if _is_limit(error) else chats.IntakeOutcome.REFUSED
                await self._settle(intake, outcome, notice=str(error), tells=True)
                return await self._found(message)
        log.warning("message %s waits for the next sweep: its chat keeps changing", message)
        return await self._found(message)

    async def _step(self, intake: chats.Intake) -> bool:
        """Do one thing for a message; says whether nothing more is to be done now."""
        if intake.state is chats.IntakeState.STARTING:
            await self._started(intake)
            return True
        reading = chats.read_reading(intake.reading)
        if reading.act is not None:
            await self._act(intake, reading.act)
            return True
        if reading.instead_of and not await self._is_replaced(reading.instead_of):
            await self._note(intake, replace(reading, instead_of=""), behind=intake.behind)
            return False  # somebody has resumed that run since
        seen = await Looking(self.engine, self.settings).look(intake.chat)
        if seen.starting is not None:
            await self._dispatch(seen.starting.message)  # whoever began it may be gone
            return False
        text = chats.text_of(await self.engine.store.messages.content(intake.message) or ())
        said = decisions.SeenMessage(
            text,
            intake.wish,
            has_waited=bool(intake.behind),
            instead_of=reading.instead_of,
            may_answer=reading.may_answer,
        )
        return await self._do(decisions.decide(seen.runs, said), intake, seen)

    async def _do(self, action: decisions.Action, intake: chats.Intake, seen: ChatSeen) -> bool:
        match action:
            case decisions.StartRun():
                return await self._start(intake, seen)
            case decisions.ResumeStopped(run):
                await self._check_limits(intake, seen)
                await self._tell_last_stop(run)
                return await self._note_act(intake, "resume", run)
            case decisions.StartAnew(run):
                await self._check_limits(intake, seen)
                words = decisions.anew_words(run.id, run.missing)
                await self.engine.saying.tell(intake.chat, words, id=chats.answer_to(intake.message, "anew"))
                noted = replace(chats.read_reading(intake.reading), instead_of=run.id)
                await self._note(intake, noted, behind=intake.behind)
                return False  # the run is superseded next
            case decisions.Supersede(run):
                # Nothing is given up for a run that cannot begin.
                await self._check_limits(intake, seen)
                await RunStarting(self.engine, self.clock, self.settings).check(intake)
                await self._supersede(intake, run)
                return False
            case decisions.Steer(run):
                return await self._note_act(intake, "steer", run)
            case decisions.AnswerAtGate(run, gate):
                return await self._note_act(intake, "answer", run, gate.gate)
            case decisions.AwaitRun(run):
                is_noted = await self._note(intake, chats.read_reading(intake.reading), behind=run.id)
                return is_noted and not await self._is_free(intake)
            case decisions.ShowGate(run):
                return await self._settle(intake, chats.IntakeOutcome.GATE, run_id=run.id)
            case decisions.AskFirst(run):
                notice = decisions.ask_words(run.id, run.status)
                return await self._settle(
                    intake, chats.IntakeOutcome.ASKED, run_id=run.id, notice=notice, tells=True
                )
            case decisions.Nothing(run):
                return await self._settle(intake, RESUMED, run_id=run.id, notice="it is already in progress")
            case _:
                assert_never(action)

    # -- starting ------------------------------------------------------------------------------------

    async def _start(self, intake: chats.Intake, seen: ChatSeen) -> bool:
        older = _being_read(intake, seen)
        if older is not None:
            is_noted = await self._note(intake, chats.read_reading(intake.reading), behind=older)
            return is_noted and not await self._is_free(intake)
        await self._check_limits(intake, seen)
        await RunStarting(self.engine, self.clock, self.settings).begin(intake, seen)
        found = await self._found(intake.message)
        # Begun, by this process or another; or it waits until a model has read it.
        return (
            found.state is chats.IntakeState.PENDING and bool(found.behind) and not await self._is_free(found)
        )

    async def _started(self, intake: chats.Intake) -> None:
        await RunStarting(self.engine, self.clock, self.settings).create(intake)
        reading = chats.read_reading(intake.reading)
        if reading.version != BUILT_IN:  # an answer needs no announcement
            plan = decisions.plan_words(reading)
            await self.engine.saying.tell(intake.chat, plan, id=chats.answer_to(intake.message, "plan"))
        await self._settle(intake, chats.IntakeOutcome.STARTED, run_id=intake.run_id)

    async def _check_limits(self, intake: chats.Intake, seen: ChatSeen) -> None:
        """Refuse to begin where a limit leaves nothing; say where one is nearly spent."""
        checked = await self.checked(intake.chat, intake.project or seen.project)
        if checked.blocked:
            raise Refused("limit_exceeded", checked.blocked)
        for number, warning in enumerate(checked.warnings):
            about = chats.answer_to(intake.message, f"warning {number}")
            await self.engine.saying.tell(intake.chat, warning, id=about)

    async def checked(self, chat: str, project: str) -> decisions.Checked:
        """What the limits of a chat, its day and its project leave now."""
        scopes = decisions.scopes_checked(chat, project, self.clock.now_us())
        return decisions.precheck(await self.engine.store.limits.read(scopes))

    # -- requests to runs ----------------------------------------------------------------------------

    async def _note_act(
        self, intake: chats.Intake, does: str, run: decisions.ChatRun, gate: str = ""
    ) -> bool:
        """Note what is about to be done: whoever takes the message up after a crash does the same."""
        act = chats.Act(does=does, run=run.id, head=run.head, gate=gate)
        await self._note(intake, replace(chats.read_reading(intake.reading), act=act), behind=intake.behind)
        return False  # it is done from the note

    async def _act(self, intake: chats.Intake, act: chats.Act) -> None:
        # Only a resume is about the run as it was: what is under way moves on all the time.
        terms = self._terms(intake, act.does, act.run, act.head if act.does == "resume" else None)
        outcome = {"resume": RESUMED, "steer": STEERED, "answer": ANSWERED}[act.does]
        try:
            await self._request(intake, act, terms)
        except RunNotFound as error:
            raise Refused(STALE, str(error)) from error
        except Refused as refusal:
            if act.does != "resume" and refusal.code in TOO_LATE:
                raise Refused(STALE, str(refusal)) from refusal
            if refusal.code == "in_doubt":
                raise Refused("in_doubt", decisions.doubt_words(act.run, str(refusal))) from refusal
            raise
        await self._settle(intake, outcome, run_id=act.run)

    async def _is_replaced(self, run_id: str) -> bool:
        """Whether a run is still one that stopped, or was cancelled to be started anew."""
        try:
            run = (await self.engine.journal.load(run_id)).run
        except RunNotFound:
            return False
        is_followed = reason_of(run.reason).continued_by is ContinuedBy.SUCCESSOR
        return run.status in decisions.STOPPED or (run.status is RunStatus.CANCELLED and is_followed)

    async def _supersede(self, intake: chats.Intake, run: decisions.ChatRun) -> None:
        """Cancel a run whose place a new one takes. One that has ended by itself is not in the way."""
        terms = self._terms(intake, "supersede", run.id, None)
        why = f"a message in chat {intake.chat} starts over"
        try:
            await self.engine.cancel(run.id, by=BY, reason=why, is_superseded=True, terms=terms)
        except (Refused, RunNotFound) as error:
            log.debug("run %s does not have to be cancelled: %s", run.id, error)

    async def _request(self, intake: chats.Intake, act: chats.Act, terms: RequestTerms) -> None:
        by = intake.said_by
        if act.does == "resume":
            await self.engine.resume(act.run, Resume(by=by, run=False, terms=terms))
            return
        text = chats.text_of(await self.engine.store.messages.content(intake.message) or ())
        if act.does == "steer":
            await self.engine.steer(act.run, text, by=by, terms=terms)
            return
        answer = Answer(text.strip())
        await self.engine.answer(act.run, answer, by=by, gate=act.gate, run=False, terms=terms)

    def _terms(self, intake: chats.Intake, does: str, run_id: str, head: int | None) -> RequestTerms:
        key = f"message/{intake.message}/{does}"
        return RequestTerms(key, f"{key} {run_id}".encode(), head)

    async def _tell_last_stop(self, run: decisions.ChatRun) -> None:
        """Say why a run had stopped, if its process died before it could."""
        await self.tell_stop((await self.engine.journal.load(run.id)).run)

    # -- notes ---------------------------------------------------------------------------------------

    async def _forget_act(self, intake: chats.Intake) -> None:
        """Decide anew: what was noted was not done, and cannot be any more."""
        found = await self._found(intake.message)
        await self._note(found, replace(chats.read_reading(found.reading), act=None), behind=found.behind)

    async def _note(self, intake: chats.Intake, reading: chats.MessageReading, *, behind: str) -> bool:
        return await self.engine.store.intakes.note(
            intake.message, seen=intake.reading, behind=behind, reading=chats.noted(intake.reading, reading)
        )

    async def _settle(
        self,
        intake: chats.Intake,
        outcome: chats.IntakeOutcome,
        *,
        run_id: str = "",
        notice: str = "",
        tells: bool = False,
    ) -> bool:
        """Note what became of a message; `tells`: and say so in its chat."""
        notice = self.engine.redactor.redact(notice)
        if tells:
            await self.engine.saying.tell(
                intake.chat, notice, id=chats.answer_to(intake.message, outcome.value)
            )
        await self.engine.store.intakes.settle(
            intake.message,
            outcome=outcome,
            run_id=run_id,
            notice=notice,
            reading="",
            at_us=self.clock.now_us(),
        )
        return True

    async def _is_free(self, intake: chats.Intake) -> bool:
        """Whether a message waits for a run that has ended since."""
        found: Sequence[chats.Intake] = await self.engine.store.intakes.free(chat=intake.chat)
        return any(one.message == intake.message for one in found)

    async def _found(self, message: str) -> chats.Intake:
        found = await self.engine.store.intakes.find(message)
        assert found is not None  # intakes never go
        return found


def _being_read(intake: chats.Intake, seen: ChatSeen) -> str | None:
    """The run in which a model reads an older message of the chat: messages start runs in their order."""
    for one in seen.waiting:
        asked = chats.read_reading(one.reading).asked
        if one.n < intake.n and asked and one.behind == asked:
            return asked
    return None


def _is_limit(error: OnwardError) -> bool:
    return isinstance(error, Refused) and error.code == "limit_exceeded"
