"""Drive one held run until it stops: plan, record, act, and plan again.

Starting, resuming, taking over and waking are all this loop. What an attempt came to is recorded
against the run as it then is: if the log grew meanwhile, the tail is folded and everything planned again.
A run with one line performs its effects right here; branches perform theirs beside each other, and all of
them are recorded by this one loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from onward.engine.files.receipts import StepReceipts
from onward.engine.lease.keeper import Hold
from onward.engine.log.journal import Folded, applied
from onward.engine.loop.attempt import Interrupter
from onward.engine.loop.attempt_tasks import Flights
from onward.engine.loop.execute import EXPIRED, STOPPED, Performer, Upshot
from onward.engine.loop.ports import Tools
from onward.engine.loop.stop import StopSwitch
from onward.errors import HistoryCorrupt, LeaseLost, StaleHistory, StoreError
from onward.machine.decide.orphans import orphaned
from onward.machine.definition import Definition
from onward.machine.plan.action import Action, Merge, Perform, Restart, Sleep, Wait
from onward.machine.plan.advance import advance
from onward.machine.plan.restart import restarted
from onward.model.event import Event, RunCompleted, RunQueued, StepStarted
from onward.model.run import NOTHING_PENDING, Run, RunStatus
from onward.version import VERSION

HALTED = "it is not needed any more"


class Drive:
    """One run under one lease. A wait of more than `patience_s` is left to whoever takes the run then."""

    def __init__(
        self,
        tools: Tools,
        definition: Definition,
        folded: Folded,
        stop: StopSwitch,
        patience_s: float | None = None,
    ) -> None:
        self._patience_s = patience_s
        self._tools, self._definition, self._folded, self._stop = tools, definition, folded, stop
        self._interrupter = Interrupter(tools.clock)
        self._news, self._stopping = asyncio.Event(), asyncio.Event()
        self._performer = Performer(tools, definition, stop, self._stopping)
        self._flights: Flights[Upshot] = Flights(self._news.set, tools.clock)
        self._hold: Hold | None = None
        self._successor: str | None = None
        self._looking: asyncio.Task[None] | None = None
        # A holder whose clock is behind claims the run at its wake time, and counts on from there: by its own
        # clock it would find nothing to do yet, and hand the run back again and again.
        self._ahead_us = max(0, folded.run.updated_at_us - tools.clock.now_us())

    def _now_us(self) -> int:
        """The time, which is never before the claim."""
        return self._tools.clock.now_us() + self._ahead_us

    async def run(self, *, claimed_s: float, action: Action | None = None) -> Folded:
        """Until the run stops. LeaseLost: somebody else has it, and nothing here counts any more.

        `action` is what was planned together with the claim, if anything was.
        """
        tools, performer = self._tools, self._performer
        unlisten = self._stop.listen(self._asked_to_stop)
        self._hold = tools.keeper.hold(
            self._folded.lease,
            claimed_s=claimed_s,
            on_head=self._head_is,
            on_expired=self._expired,
            on_lost=self._lost,
        )
        try:
            upshot: Upshot = _nothing
            if self._folded.run.workspace is not None:
                unusable = await performer.open_workspace(self._folded.run, self._hold)
                if unusable is not None:
                    upshot, action = unusable, None
            while True:
                action = action or await self._advance(upshot)
                match action:
                    case Perform():  # nothing is unpacked here: every step comes this way
                        upshot = await performer.perform(
                            self._folded, self._hold, action.started, self._interrupter
                        )
                    case Wait(starts, halt, until_us):
                        self._launch(starts)
                        self._flights.interrupt(HALTED, halt)
                        upshot = await self._landed(until_us)
                    case Restart(to, run_id):
                        upshot = await self._restart(to, run_id)
                    case Merge(step, starts):
                        self._launch(starts)
                        upshot = await performer.merge(self._folded.run, self._hold, step)
                    case Sleep(until_us) if self._is_too_long(until_us):
                        upshot = _handed_back(until_us)
                    case Sleep(until_us):
                        upshot = _nothing
                        await self._sleep(until_us)
                    case _:
                        return self._folded
                action = None
        finally:
            unlisten()
            if self._looking is not None:
                self._looking.cancel()
            await self._flights.ground()
            tools.keeper.release(self._hold)
            self._hold = None  # it knows this drive: together they would stay until garbage is collected

    async def _advance(self, upshot: Upshot) -> Action:
        """Record what came of the last effect and all that follows from it; returns what to do next."""
        while True:
            now_us, before = self._now_us(), self._folded
            ahead = advance(
                self._definition,
                before.run,
                upshot(before.run, now_us),
                now_us=now_us,
                stop_reason=self._stop.reason,
            )
            if not ahead.events:
                return ahead.action
            if self._tools.receipts is not None and self._tools.receipts.is_kept(before.run.id):
                await self._leave_receipts(self._tools.receipts, ahead.events, now_us)
            try:
                self._folded = await self._tools.journal.record(before, ahead.events, ahead.run, now_us)
            except StaleHistory:
                await self._catch_up()
                continue
            self._tools.observe(ahead.run, ahead.events)
            if before.run.open_steps:
                for child in orphaned(before.run, ahead.run, ahead.events):
                    await self._tools.forsake(child)
            if self._successor is not None and ahead.run.status is RunStatus.CANCELLED:
                await self._tools.forsake(self._successor)
            return ahead.action

    async def _leave_receipts(self, receipts: StepReceipts, events: Sequence[Event], now_us: int) -> None:
        """Before the commit; but whoever may have lost the run writes over nothing that another left."""
        assert self._hold is not None
        if self._tools.keeper.is_trusted(self._hold):
            await receipts.before(self._definition, self._folded, events, now_us)

    def _launch(self, starts: Sequence[StepStarted]) -> None:
        for started in starts:
            self._flights.launch(started.step, partial(self._perform, started))

    async def _landed(self, until_us: int | None) -> Upshot:
        """Wait for an effect to be done, for news, or for the time; returns how to record what is done."""
        self._news.clear()
        done = self._flights.take()
        if not done:
            await self._wait(until_us)
            done = self._flights.take()
        if not done:
            await self._catch_up()
        return self._together(done)

    @staticmethod
    def _together(done: Sequence[Upshot]) -> Upshot:
        """Several effects in one append: each is judged by the run as the one before it left it."""

        def record(run: Run, now_us: int) -> Sequence[Event]:
            events: list[Event] = []
            for first in done:
                new = first(run, now_us)
                run, _ = applied(run, new, run_id=run.id, at_us=now_us)
                events += new
            return events

        return done[0] if len(done) == 1 else record

    async def _perform(self, started: StepStarted, interrupter: Interrupter) -> Upshot:
        assert self._hold is not None
        return await self._performer.perform(self._folded, self._hold, started, interrupter)

    async def _restart(self, to: str, run_id: str) -> Upshot:
        """Make the run that takes over. Made again after a crash, it is the same one."""
        event = restarted(self._definition, self._folded.run, to, VERSION)
        at_us = self._now_us()
        run, stamped = applied(None, (event,), run_id=run_id, at_us=at_us)
        append_id = f"restart of {self._folded.run.id}"
        await self._tools.journal.create(run, stamped, at_us=at_us, append_id=append_id)
        self._successor = run_id
        return _unless_asked(RunCompleted(restarted_as=run_id))

    def _is_too_long(self, until_us: int) -> bool:
        """Whether a wait is not worth holding the run for."""
        if self._patience_s is None or self._stop.reason is not None:
            return False
        return (until_us - self._now_us()) / 1_000_000 > self._patience_s

    async def _sleep(self, until_us: int) -> None:
        """Wait for a retry's time, or for news."""
        self._news.clear()
        if self._stop.reason is None:
            await self._wait(until_us)
        await self._catch_up()

    async def _wait(self, until_us: int | None) -> None:
        """Until there is news, or it is time."""
        if until_us is None:
            await self._news.wait()
        elif (seconds := (until_us - self._now_us()) / 1_000_000) > 0:
            await self._tools.clock.wait_s(seconds, self._news)
        assert self._hold is not None
        if self._hold.is_lost:
            raise self._hold.loss

    async def _catch_up(self) -> None:
        """Fold what others wrote, but never go on under another's lease, which the log may name by now."""
        assert self._hold is not None
        folded, lease = await self._tools.journal.catch_up(self._folded), self._hold.lease
        if (folded.run.worker, folded.run.token) != (lease.owner, lease.token):
            raise LeaseLost(lease.run_id, lease.token)
        self._folded = folded
        if folded.run.pending.pause_after is not None:
            self._stopping.set()

    # -- news from outside ---------------------------------------------------------------------------

    def _asked_to_stop(self) -> None:
        self._news.set()
        self._stopping.set()
        if self._stop.is_now:
            self._interrupt(STOPPED)

    def _lost(self) -> None:
        self._news.set()
        self._interrupt("the lease was lost")

    def _expired(self) -> None:
        """The lease may be over: what is under way ends, and the database is asked before it starts anew."""
        self._interrupt(EXPIRED)

    def _head_is(self, head: int) -> None:
        """Somebody appended to a run that is being driven: a request."""
        if head > self._folded.position.seq and self._looking is None:
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        try:
            pending = (await self._tools.journal.catch_up(self._folded)).run.pending
        except (StoreError, HistoryCorrupt):
            return  # the next heartbeat looks again, and the next append cannot miss it
        finally:
            self._looking = None
        self._news.set()
        if pending.pause_after is not None:
            self._stopping.set()
        if pending.cancel_by is not None:
            self._interrupt(f"cancelled by {pending.cancel_by}")
        elif pending.pause_after == "now":
            # Another process may resume the run, so a function that cannot be ended is waited for.
            self._interrupt(f"paused by {pending.pause_by}", patiently=True)

    def _interrupt(self, why: str, *, patiently: bool = False) -> None:
        self._interrupter.interrupt(why, patiently=patiently)
        self._flights.interrupt(why, patiently=patiently)


def _handed_back(until_us: int) -> Upshot:
    return _unless_asked(RunQueued(why="waits for its next attempt", wake_at_us=until_us))


def _unless_asked(stop: Event) -> Upshot:
    """A stop that was planned before it is written: a request that came first is left to the next plan."""
    return lambda run, now_us: () if run.pending != NOTHING_PENDING else (stop,)


def _nothing(run: Run, now_us: int) -> Sequence[Event]:
    return ()
