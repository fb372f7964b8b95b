"""The runs of a chat: as a message finds them, and the one that a message starts.

A message finds the turn of its chat and the runs that have not ended. The run that it starts is of a
registered pipeline, or of the one that is built in if none is registered. It is created once: its id derives
from the message.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from onward import errors
from onward.chats.decide import ChatRun
from onward.chats.intent import (
    ANSWER,
    ANSWER_SOURCE,
    BUILT_IN,
    Candidate,
    Offered,
    read_as_before,
    read_by_model,
    read_by_rules,
    reading_source,
)
from onward.clock import Clock
from onward.engine.control.requests import StartRequest
from onward.engine.engine import Engine
from onward.engine.sources import Registry
from onward.machine.decide.owner_loss import REQUEUE
from onward.machine.plan.route import planned_agents, unfinished_required
from onward.machine.reasons import is_recoverable
from onward.model import chat as chats
from onward.model.ids import Wanted, read_wanted
from onward.model.limits import CALLS_PER_CHAT_RUN, CALLS_PER_RUN
from onward.model.row import waiting_for
from onward.model.run import Run, RunStatus
from onward.model.settings import ChatSettings
from onward.model.values import tags_in
from onward.pipeline.build import Pipeline
from onward.store.port.runs import Listed, RunQuery

log = logging.getLogger("onward.chats")
LOOKED_AT_MAX = 20
"""How many runs of a chat are looked at, the newest first."""
PAGE = 100
WAITING_MAX = 1_000
UNENDED = tuple(status for status in RunStatus if status not in (RunStatus.COMPLETED, RunStatus.CANCELLED))


class ChatSeen(msgspec.Struct, frozen=True):
    """A chat: its turn, what waits in it, and its runs, newest first. They were read in this order.

    A message that has begun a run since the turn was read has moved the turn; one that had begun it before is
    `starting`, or its run is among the runs. So no run is started beside another.
    """

    turn: int
    project: str
    waiting: Sequence[chats.Intake]
    runs: Sequence[ChatRun]

    @property
    def starting(self) -> chats.Intake | None:
        """A message whose run has an id, and may not be created yet."""
        return next((one for one in self.waiting if one.state is chats.IntakeState.STARTING), None)


class Looking(msgspec.Struct, frozen=True):
    """Looks at chats through one engine."""

    engine: Engine
    settings: ChatSettings

    async def look(self, chat: str) -> ChatSeen:
        """The chat as it is. What a dead process held is stopped or queued first, as its policy says."""
        row = await self.engine.store.intakes.find_chat(chat)
        waiting = await self.engine.store.intakes.list(chat, is_open=True, limit=WAITING_MAX)
        listed = await runs_of(self.engine, chat)
        if any(one.holder is not None and not one.holder.is_alive for one in listed):
            await self.engine.sweep()
            listed = await runs_of(self.engine, chat)
        runs = [await self._run(one) for one in listed]
        turn, project = (0, "") if row is None else (row.turn, row.project)
        return ChatSeen(turn, project, waiting, [run for run in runs if run is not None])

    async def _run(self, listed: Listed) -> ChatRun | None:
        try:
            folded = await self.engine.journal.load(listed.row.id)
            run = folded.run
            if run.is_final:
                return None  # it has ended since it was listed
            definition = self.engine.definition(await self.engine.sources.stored(run))
        except errors.RunNotFound:
            return None  # it was collected since
        except (errors.HistoryCorrupt, errors.StoreCorrupt) as error:
            log.warning("run %s of chat %s cannot be read: %s", listed.row.id, listed.row.chat, error)
            # No message continues it; but while it is said to be under way, none starts a run beside it.
            return ChatRun(listed.row.id, listed.row.status, listed.row.head, recoverable=False)
        # A sweep may have failed, or not have come yet: what it would interrupt can be resumed at once.
        is_lost = run.status is RunStatus.RUNNING and not self.engine.is_at_work(folded)
        is_lost = is_lost and run.on_owner_loss != REQUEUE
        return ChatRun(
            run.id,
            RunStatus.INTERRUPTED if is_lost else run.status,
            folded.position.seq,
            recoverable=is_lost or is_recoverable(run.status, run.reason),
            is_dismissed=run.is_dismissed,
            is_leaving=run.pending.cancel_by is not None,
            on_message=definition.on_message or self.settings.on_message,
            while_running=definition.while_running,
            gates=tuple(gate for gate in run.gates.values() if gate.decided is None),
            missing=unfinished_required(definition, run),
        )


async def runs_of(engine: Engine, chat: str, statuses: tuple[RunStatus, ...] = UNENDED) -> Sequence[Listed]:
    """The runs that do the work of a chat, newest first: not those that their steps manage, however many."""
    found: list[Listed] = []
    after: str | None = None
    while len(found) < LOOKED_AT_MAX:
        page = await engine.store.runs.list(RunQuery(chat=chat, statuses=statuses, limit=PAGE, after=after))
        found += [one for one in page if _does_work(one)]
        if len(page) < PAGE:
            break
        after = page[-1].cursor
    return found[:LOOKED_AT_MAX]


def _does_work(listed: Listed) -> bool:
    return listed.row.managed_by is None and chats.READING_TAG not in tags_in(listed.row.tags)


def is_work_of_chat(run: Run) -> bool:
    """Whether a run does the work of a chat that it was given."""
    return run.chat is not None and run.managed_by is None and chats.READING_TAG not in run.tags


MISSING = -1
"""The version of a pipeline that the settings name and that is not registered."""
CANDIDATES_MAX = 100
"""How many registered pipelines a message may start without naming one, in the order of their names."""
NO_PROVIDER = (
    "a model has to answer in this chat, but no model provider is set up: set OPENAI_API_KEY, "
    "ANTHROPIC_API_KEY or GEMINI_API_KEY, and name the model with ONWARD_MODEL (docs/agents.md), then send "
    "it again."
)


class Candidates(msgspec.Struct, frozen=True):
    """Finds the pipelines that a message may start; `by_intent` names one for an intent."""

    registry: Registry
    by_intent: Mapping[str, str]

    async def named(self, wanted: Wanted) -> Candidate:
        """The pipeline of this name, which is registered or built in."""
        if wanted == Wanted(ANSWER) and await self._is_free(ANSWER):
            return Candidate(ANSWER, BUILT_IN)
        version = await self.registry.version(wanted)
        return Candidate(version.name, version.version, await self.registry.purpose(version))

    async def every(self) -> Offered:
        """All that are registered; the one that is built in, if none is."""
        there = await self.registry.store.pipelines.list(limit=CANDIDATES_MAX)
        if not there:
            return Offered((Candidate(ANSWER, BUILT_IN),))
        found: list[Candidate] = []
        for one in there:
            try:
                found.append(await self.named(Wanted(one.name)))
            except (errors.InvalidInput, errors.InvalidPipeline, errors.PipelineNotFound) as error:
                if len(there) == 1:
                    raise
                log.warning("messages cannot start the pipeline %s: %s", one.name, error)
        if not found:
            raise errors.Refused(
                "no_pipeline", "none of the registered pipelines can be read; add them again."
            )
        return Offered(tuple(found), {intent: await self._set(name) for intent, name in self._set_for(found)})

    def _set_for(self, found: Sequence[Candidate]) -> Iterable[tuple[str, str]]:
        """What the settings name: nothing, if there is nothing to choose."""
        return self.by_intent.items() if Offered(tuple(found)).is_read else ()

    async def _set(self, name: str) -> Candidate:
        """A pipeline of the settings. One that is missing is refused when it is to start."""
        wanted = read_wanted(name)
        try:
            return await self.named(wanted)
        except errors.PipelineNotFound:
            return Candidate(wanted.name, wanted.version or MISSING)

    async def _is_free(self, name: str) -> bool:
        found = await self.registry.store.pipelines.find(name)
        return found is None or found.enabled is None


class RunStarting(msgspec.Struct, frozen=True):
    """Starts the runs of messages."""

    engine: Engine
    clock: Clock
    settings: ChatSettings

    async def begin(self, intake: chats.Intake, seen: ChatSeen) -> bool:
        """Read the message, choose its pipeline, and take the chat's turn; or let a model read it first.

        False if another process was first.
        """
        offered = await self._offered(intake)
        reading = await self._read(intake, offered)
        if reading is None:
            return await self._ask(intake, offered)
        definition = self.engine.definition(await self._startable(reading))
        text = await self.text(intake, reading)
        agents = planned_agents(definition, chats.inputs_of(reading, text))
        return await self.engine.store.intakes.begin(
            intake.message,
            seen=intake.reading,
            turn=seen.turn,
            run_id=chats.run_of_message(intake.message, intake.at_us),
            reading=chats.noted(intake.reading, replace(reading, planned_agents=agents)),
        )

    async def check(self, intake: chats.Intake) -> None:
        """Refuse what could not begin, before room is made for it: its pipeline may be missing.

        What a model is to read first cannot be judged yet.
        """
        reading = await self._read(intake, await self._offered(intake))
        if reading is not None:
            await self._startable(reading)

    async def _offered(self, intake: chats.Intake) -> Offered:
        """The pipelines that the new run may have: what a run is started anew with is what it was started
        with."""
        noted = chats.read_reading(intake.reading)
        candidates = Candidates(self.engine.registry, self.settings.pipelines)
        if intake.pipeline:
            return Offered((await candidates.named(read_wanted(intake.pipeline)),))
        if noted.instead_of:
            before = (await self.engine.journal.load(noted.instead_of)).run
            is_built_in = before.pipeline == ANSWER and before.path is None
            if before.pipeline_version is not None or is_built_in:
                return Offered((await candidates.named(Wanted(before.pipeline, before.pipeline_version)),))
        return await candidates.every()

    async def _startable(self, reading: chats.MessageReading) -> Pipeline:
        """The pipeline of a reading. The one that is built in is refused where no process can answer."""
        pipeline = await self._pipeline(reading)
        if reading.version == BUILT_IN:
            try:
                self.engine.check_served(pipeline, None)
            except errors.InvalidInput as error:
                needs = self.engine.definition(pipeline).handlers
                workers = await self.engine.store.workers.read()
                if waiting_for(needs, workers) is not None:
                    why = NO_PROVIDER if isinstance(error, errors.NoProvider) else str(error)
                    raise errors.Refused("no_provider", why) from error
        return pipeline

    async def _pipeline(self, reading: chats.MessageReading) -> Pipeline:
        if reading.version == BUILT_IN:
            return self.engine.sources.prepare(ANSWER_SOURCE, f"<{ANSWER}>")
        version = None if reading.version == MISSING else reading.version
        return await self.engine.registry.find(Wanted(reading.pipeline, version))

    async def create(self, intake: chats.Intake) -> Run:
        """Create the run that a message has begun, if it is not there yet."""
        try:
            return (await self.engine.journal.load(intake.run_id)).run
        except errors.RunNotFound:
            pass
        reading = chats.read_reading(intake.reading)
        pipeline = await self._pipeline(reading)
        start = StartRequest(
            inputs=chats.inputs_of(reading, await self.text(intake, reading)),
            run_id=intake.run_id,
            on_owner_loss=self.settings.on_owner_loss,
            exclusive_key=f"chat/{intake.chat}",
            chat=intake.chat,
            project=await self._project(intake),
            workdir=await self._workdir(intake, reading),
        )
        await self._limit_calls(intake.run_id)
        return await self._create(pipeline, start)

    async def _create(self, pipeline: Pipeline, start: StartRequest) -> Run:
        """Create a run whose id derives from a message; or find it, if another process was first."""
        try:
            return (await self.engine.submit(pipeline, start)).run
        except errors.Refused as refusal:
            if refusal.code != "run_exists" or start.run_id is None:
                raise
            return (await self.engine.journal.load(start.run_id)).run

    async def _workdir(self, intake: chats.Intake, reading: chats.MessageReading) -> str | None:
        """Where the commands work: a run that is started anew changes the files that it changed before."""
        if reading.instead_of:
            before = (await self.engine.journal.load(reading.instead_of)).run
            if before.workdir is not None:
                return before.workdir
        return intake.workdir or None

    async def _project(self, intake: chats.Intake) -> str | None:
        chat = await self.engine.store.intakes.find_chat(intake.chat)
        return intake.project or (chat.project if chat else "") or None

    async def text(self, intake: chats.Intake, reading: chats.MessageReading) -> str:
        """What the run is about: the message, or that of the run which it starts anew."""
        if reading.instead_of:
            before = chats.facts_of((await self.engine.journal.load(reading.instead_of)).run)
            if before.user_message is not None:
                return before.user_message
        return chats.text_of(await self.engine.store.messages.content(intake.message) or ())

    async def _read(self, intake: chats.Intake, offered: Offered) -> chats.MessageReading | None:
        """The message as it is read once: as the run that it starts anew was, by a model, or by rules.

        None: a model is to be asked first.
        """
        noted = chats.read_reading(intake.reading)
        text, has_files = await self.text(intake, noted), await self._has_files(intake)
        reading = await self._as_before(noted, offered)
        if reading is None and noted.asked:
            reading = await self._answered(noted.asked, offered, text, has_files)
        elif reading is None and self.settings.classifier is not None and offered.has_choice:
            return None
        reading = reading or read_by_rules(text, offered, has_files=has_files)
        return replace(reading, has_files=has_files, instead_of=noted.instead_of, asked=noted.asked)

    async def _as_before(self, noted: chats.MessageReading, offered: Offered) -> chats.MessageReading | None:
        """As the run was read that a message starts anew; None if it was not, or there is none."""
        if not noted.instead_of:
            return None
        before = chats.facts_of((await self.engine.journal.load(noted.instead_of)).run)
        if before.intent is None and before.scope is None:
            return None
        return read_as_before(offered, before.intent, before.scope)

    async def _answered(
        self, run_id: str, offered: Offered, text: str, has_files: bool
    ) -> chats.MessageReading | None:
        """The message as a model has read it, or by rules, if its run did not get there or is gone."""
        try:
            asked = (await self.engine.journal.load(run_id)).run
        except errors.RunNotFound:
            return None
        return read_by_model(asked, str(asked.context.get("classifier")), text, offered, has_files=has_files)

    async def _ask(self, intake: chats.Intake, offered: Offered) -> bool:
        """Let a model read a message, in a run of its own that the message then waits for."""
        classifier, run_id = self.settings.classifier, chats.reading_of_message(intake.message, intake.at_us)
        assert classifier is not None
        noted = chats.read_reading(intake.reading)
        pipeline = self.engine.sources.prepare(reading_source(classifier, offered), "<reading>")
        start = StartRequest(
            inputs={
                "user_message": await self.text(intake, noted),
                "has_files": await self._has_files(intake),
                "classifier": classifier,
            },
            run_id=run_id,
            on_owner_loss="requeue",
            tags=(chats.READING_TAG,),
            chat=intake.chat,
            project=await self._project(intake),
        )
        await self._limit_calls(run_id)
        await self._create(pipeline, start)
        return await self.engine.store.intakes.note(
            intake.message,
            seen=intake.reading,
            behind=run_id,
            reading=chats.noted(intake.reading, replace(noted, asked=run_id)),
        )

    async def _has_files(self, intake: chats.Intake) -> bool:
        """Whether there is work to change: files where the commands work, or a run of the chat that has
        completed."""
        if intake.workdir and _has_visible(intake.workdir):
            return True
        return bool(await runs_of(self.engine, intake.chat, (RunStatus.COMPLETED,)))

    async def _limit_calls(self, run_id: str) -> None:
        """Limit the calls of a run of a chat, unless something is said about runs or about this one."""
        (scope,) = await self.engine.store.limits.read([f"run/{run_id}"])
        if scope.own[2] is None and scope.default[2] in (None, CALLS_PER_RUN):
            await self.engine.store.limits.change(scope.id, {"calls": CALLS_PER_CHAT_RUN})


def _has_visible(directory: str) -> bool:
    try:
        return any(not name.startswith(".") for name in os.listdir(directory))
    except OSError:
        return False  # it is another machine's
