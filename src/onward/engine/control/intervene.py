"""What people do to a run that exists: answer its gates, pause, cancel, dismiss or steer it.

An answer is the decision and the claim in one transaction. An expired deadline is an answer, too. A live
holder follows the other requests; without one, they take effect at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial

import msgspec

from onward.clock import Clock
from onward.engine.awaited import AwaitedRuns
from onward.engine.child import ORPHANED, latest
from onward.engine.claims import Claims
from onward.engine.control.requests import AsksSeveral, Informed, Interviewer, answers_of
from onward.engine.definitions import check_still_there
from onward.engine.files.workspaces import Workspaces
from onward.engine.journal import Journal
from onward.engine.log import NO_TERMS, Folded, RequestTerms
from onward.engine.loop import Runner
from onward.engine.persist import retry_store
from onward.engine.stop import StopSwitch
from onward.errors import Refused, RunNotFound
from onward.machine.decide.owner_loss import orphaned
from onward.machine.decide.requests import (
    Decide,
    decide_and_claim,
    decide_answer,
    decide_cancel,
    decide_dismiss,
    decide_pause,
    decide_steer,
    decide_woken,
    next_deadline,
    next_reminder,
    overdue,
    woken,
)
from onward.machine.reasons import SUPERSEDED, USER
from onward.model.gate import Answer, GateDecided
from onward.model.run import Gate, Run, RunStatus
from onward.read.lookup import newest_first
from onward.store.codec import unseal
from onward.store.port.log import StoredEvent

LOOK_US = 1_000_000
"""How often to look whether a question that is being asked was decided elsewhere."""


class Answering:
    """Decides gates, and executes the runs that were waiting for it."""

    def __init__(self, journal: Journal, claims: Claims, clock: Clock, runner: Runner) -> None:
        self._journal, self._claims, self._clock, self._runner = journal, claims, clock, runner

    async def answer(
        self,
        run_id: str,
        answer: Answer | str,
        *,
        by: str,
        gate: str | None = None,
        shown: str | None = None,
        text: str = "",
        run: bool = True,
        terms: RequestTerms = NO_TERMS,
        stop: StopSwitch | None = None,
        interviewer: Interviewer | None = None,
    ) -> Folded:
        """Decide a gate; with `run`, claim the run in the same transaction and execute it.

        `shown` is the hash of the question as it was shown; another one is not answered. `interviewer`
        answers the gates of runs that this one then manages.
        """
        said = answer if isinstance(answer, Answer) else Answer(answer, text)
        decide = partial(decide_answer, gate_id=gate, answer=said, by=by, shown=shown)
        try:
            return await self._decide(run_id, decide, interviewer, run=run, terms=terms, stop=stop)
        except Refused as refusal:
            if refusal.code != "no_open_gate":
                raise
            raise await self._too_late(run_id, gate, refusal) from None

    async def _too_late(self, run_id: str, gate: str | None, refusal: Refused) -> Refused:
        """If the gate was already decided, the error names who decided it."""
        decided = await self._last_decision(run_id, gate)
        if decided is None:
            return refusal
        said = f"gate {decided.gate} is already decided: {decided.choice.label!r} by {decided.by}."
        details = {"gate": decided.gate, "choice": decided.choice.key, "by": decided.by}
        if gate is None:
            return Refused(refusal.code, f"{str(refusal).removesuffix('.')}; {said}", details=details)
        return Refused("gate_decided", said, details=details)

    async def _last_decision(self, run_id: str, gate: str | None) -> GateDecided | None:
        """The newest decision of this gate, or of any."""
        head = (await self._journal.load(run_id)).position.seq

        async def read(*, after: int, limit: int) -> Sequence[StoredEvent]:
            log = partial(self._journal.read, run_id, after=after, limit=limit)
            return await retry_store(self._clock, log)

        async for record in newest_first(read, head, (GateDecided.__name__,)):
            event = unseal(record)
            if isinstance(event, GateDecided) and gate in (None, event.gate):
                return event
        return None

    async def wake(
        self, run_id: str, stop: StopSwitch | None, interviewer: Interviewer | None = None
    ) -> Folded:
        """Continue a waiting run whose wake time has come; nothing if another process was first."""
        return await self._decide(run_id, decide_woken, interviewer, run=True, stop=stop)

    async def _decide(
        self,
        run_id: str,
        decide: Decide,
        interviewer: Interviewer | None,
        *,
        run: bool,
        stop: StopSwitch | None,
        terms: RequestTerms = NO_TERMS,
    ) -> Folded:
        known = await self._journal.load(run_id)
        if not run or known.run.status is not RunStatus.WAITING:
            return (await self._claims.request_observed(run_id, decide, terms=terms, known=known)).folded
        check_still_there(known.run)
        served = await self._runner.served(known.run, interviewer)
        claiming = partial(decide_and_claim, decide=decide)
        claimed = await self._claims.request_observed(run_id, claiming, terms=terms, known=known)
        return await self._runner.run(claimed, served, stop or StopSwitch(clock=self._clock))

    # -- asking --------------------------------------------------------------------------------------

    async def attend(self, folded: Folded, interviewer: Interviewer, stop: StopSwitch) -> Folded:
        """Answer the gates of a waiting run, as many at once as are taken; what is skipped stays open."""
        skipped: set[str] = set()
        answers: dict[str, Answer] = {}
        is_elsewhere = False
        while (folded.run.status is RunStatus.WAITING or is_elsewhere) and stop.reason is None:
            run = folded.run
            if _can_wake(run, self._clock.now_us()):
                folded = await self.wake(run.id, stop, interviewer)
                # If another process woke it first, its questions are still open.
                is_elsewhere = folded.run.status is RunStatus.RUNNING
                continue
            asked = [gate for gate in run.gates.values() if gate.decided is None and gate.gate not in skipped]
            if not asked:
                return folded
            if not any(gate.gate in answers for gate in asked):
                said = await self._ask(folded, asked, interviewer, gives_way=True)
                answers = {gate.gate: answer for gate, answer in zip(asked, said, strict=False)}
            if not answers:
                folded = await self._journal.catch_up(folded)
                is_elsewhere &= not overdue(folded.run, self._clock.now_us())
                continue
            gate = next(gate for gate in asked if gate.gate in answers)
            answer = answers.pop(gate.gate)
            if answer.skipped:
                folded = await self._journal.catch_up(folded)  # it may have been decided elsewhere
                if all(_is_open(folded.run, one) for one in asked):
                    skipped.add(gate.gate)
                continue
            folded = await self._answered(folded, gate, answer, interviewer, stop)
        return folded

    async def _answered(
        self, folded: Folded, gate: Gate, answer: Answer, interviewer: Interviewer, stop: StopSwitch
    ) -> Folded:
        try:
            return await self.answer(
                folded.run.id,
                answer,
                by=interviewer.name,
                gate=gate.gate,
                stop=stop,
                interviewer=interviewer,
            )
        except Refused as refusal:
            if refusal.code != "gate_expired":
                raise
            return folded  # the answer came a moment too late: the rule for the deadline is next

    async def ask(self, folded: Folded, gate: Gate, interviewer: Interviewer) -> Answer:
        """Put one question, and remind of it; it is skipped if a deadline or another answer comes first."""
        answers = await self._ask(folded, [gate], interviewer, gives_way=False)
        return answers[0] if answers else Answer.skip()

    async def _ask(
        self, folded: Folded, gates: Sequence[Gate], interviewer: Interviewer, *, gives_way: bool
    ) -> Sequence[Answer]:
        """Answers to the first of the gates; none if a deadline or another answer comes first.

        If it `gives_way`, there is none either when this process can continue the run without an answer.
        """
        answered = asyncio.Event()
        put = gates if isinstance(interviewer, AsksSeveral) else gates[:1]
        asking = asyncio.ensure_future(answers_of(interviewer, folded.run, gates))
        asking.add_done_callback(lambda _: answered.set())
        try:
            while True:
                now_us = self._clock.now_us()
                if overdue(folded.run, now_us):
                    return ()
                if gives_way and _can_wake(folded.run, now_us):
                    await self._tell_woken(put, interviewer)
                    return ()
                reminders = {gate.gate: next_reminder(gate, now_us) for gate in gates}
                wake_us = folded.run.wake_at_us if folded.run.status is RunStatus.WAITING else None
                ends_us = (next_deadline(folded.run), wake_us if gives_way else None)
                times_us = (now_us + LOOK_US, *ends_us, *reminders.values())
                until_us = min(at for at in times_us if at is not None)
                await self._clock.wait_s((until_us - now_us) / 1_000_000, answered)
                if not answered.is_set():
                    folded = await self._journal.catch_up(folded)
                if answered.is_set():
                    return asking.result()
                closed = [gate for gate in put if not _is_open(folded.run, gate)]
                if closed:
                    await self._tell_closed(folded.run, closed, interviewer)
                    return ()
                for gate in gates:
                    reminder_us = reminders[gate.gate]
                    if reminder_us is not None and not answered.is_set():
                        await self._remind(gate, reminder_us, interviewer)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _tell_closed(self, run: Run, gates: Sequence[Gate], interviewer: Interviewer) -> None:
        """Say why questions that are being asked are none any more."""
        if not isinstance(interviewer, Informed):
            return
        for gate in gates:
            decided = await self._last_decision(run.id, gate.gate)
            message = f"{gate.gate} no longer needs an answer"
            if decided is not None:
                message = f"{gate.gate} was decided elsewhere: {decided.choice.label!r} by {decided.by}"
            await interviewer.inform(message, gate.node)

    async def _tell_woken(self, gates: Sequence[Gate], interviewer: Interviewer) -> None:
        """Say that the run continues before its questions are answered."""
        if isinstance(interviewer, Informed):
            for gate in gates:
                message = f"another branch of the run continues first; {gate.gate} is asked again after that"
                await interviewer.inform(message, gate.node)

    async def _remind(self, gate: Gate, reminder_us: int, interviewer: Interviewer) -> None:
        if self._clock.now_us() >= reminder_us and isinstance(interviewer, Informed):
            await interviewer.inform(f"{gate.gate} still waits for an answer: {gate.text}", gate.node)


def _is_open(run: Run, gate: Gate) -> bool:
    now = run.gates.get(gate.gate)
    return now is not None and now.decided is None


def _can_wake(run: Run, now_us: int) -> bool:
    """Whether the run waits, and could continue without an answer."""
    return run.status is RunStatus.WAITING and bool(woken(run, now_us))


class HolderRequests(msgspec.Struct, frozen=True):
    """Sends requests to the holders of runs."""

    journal: Journal
    claims: Claims
    workspaces: Workspaces
    awaited: AwaitedRuns

    async def pause(
        self, run_id: str, *, after: str = "step", by: str = "user", terms: RequestTerms = NO_TERMS
    ) -> Folded:
        """Ask a run to stop; it stops at once if no live process holds it."""
        return await self._request(run_id, partial(decide_pause, after=after, by=by), terms)

    async def cancel(
        self,
        run_id: str,
        *,
        by: str = "user",
        reason: str = "",
        is_superseded: bool = False,
        terms: RequestTerms = NO_TERMS,
    ) -> Folded:
        """Cancel a run for good, and with it the runs that it manages; `reason` is why, in free text.

        `is_superseded`: a new run takes its place.
        """
        before = (await self.journal.load(run_id)).run
        kind = SUPERSEDED if is_superseded else USER
        folded = await self._request(run_id, partial(decide_cancel, by=by, reason=kind, detail=reason), terms)
        await self.cancel_orphans(before, folded.run)
        if folded.run.is_final:
            await self.workspaces.close(folded.run)
            await self.awaited.stopped(folded.run)
        return folded

    async def dismiss(self, run_id: str, *, by: str = "user", terms: RequestTerms = NO_TERMS) -> Folded:
        """Let nothing offer or resume a stopped run any more, but a person who names it."""
        return await self._request(run_id, partial(decide_dismiss, by=by), terms)

    async def steer(
        self, run_id: str, text: str, *, by: str = "user", terms: RequestTerms = NO_TERMS
    ) -> Folded:
        """Give the run's agents an instruction; the next agent step takes it."""
        return await self._request(run_id, partial(decide_steer, text=text, by=by), terms)

    async def _request(self, run_id: str, decide: Decide, terms: RequestTerms) -> Folded:
        return (await self.claims.request(run_id, decide, terms=terms)).folded

    async def cancel_child(self, child: str) -> None:
        """Cancel a run that no step manages any more; one that has ended, or never began, is left alone."""
        with contextlib.suppress(RunNotFound, Refused):
            await self.cancel((await latest(self.journal, child)).run.id, by=ORPHANED)

    async def cancel_orphans(self, before: Run, after: Run) -> None:
        """Cancel the runs whose managing steps a request closed."""
        for child in orphaned(before, after, ()):
            await self.cancel_child(child)
