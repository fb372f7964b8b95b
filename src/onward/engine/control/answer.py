"""Answering gates: the decision and the claim are one transaction. An expired deadline is an answer, too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from onward.clock import Clock
from onward.engine.control.interview import AsksSeveral, Informed, Interviewer, answers_of
from onward.engine.control.workdir import check_still_there
from onward.engine.lease.claims import Claims
from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.engine.log.retry_store import retry_store
from onward.engine.log.terms import NO_TERMS, RequestTerms
from onward.engine.loop.runner import Runner
from onward.engine.loop.stop import StopSwitch
from onward.errors import Refused
from onward.machine.decide.requests import (
    Decide,
    decide_and_claim,
    decide_answer,
    decide_woken,
    next_deadline,
    next_reminder,
    overdue,
    woken,
)
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
        text: str = "",
        run: bool = True,
        terms: RequestTerms = NO_TERMS,
        stop: StopSwitch | None = None,
        interviewer: Interviewer | None = None,
    ) -> Folded:
        """Decide a gate; with `run`, claim the run in the same transaction and execute it.

        `interviewer` answers the gates of runs that this one then manages.
        """
        said = answer if isinstance(answer, Answer) else Answer(answer, text)
        decide = partial(decide_answer, gate_id=gate, answer=said, by=by)
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
