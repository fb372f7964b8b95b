"""The one writer of a run that this process holds.

    decide ──► receipts ──► append ──► receipts are synced ──► observers
       ▲                      │
       └── catch up ◄─────────┘ another process appended first: a request

What is written is decided from the run as it is when it is written. Nothing else decides from a copy of the
folded state. Appends are made one at a time, in the order in which they came (`Turns`).

`EngineParts` are the parts of the engine that executing a run needs: the run loops of one engine share them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec

from onward.clock import Alarm, Clock, Dice
from onward.engine.child import ManagedRuns
from onward.engine.claims import Hold, LeaseKeeper, Observer
from onward.engine.control.limits import has_room
from onward.engine.control.requests import Interviewer
from onward.engine.effects import AtMostOnce
from onward.engine.files.receipts import StepReceipts
from onward.engine.files.rooms import Rooms
from onward.engine.files.workspaces import Workspaces
from onward.engine.journal import Journal
from onward.engine.log import Folded, applied, redacted_events
from onward.engine.messages import ChatHistory, Flusher
from onward.engine.stop import StopSwitch
from onward.errors import LeaseLost, LimitReached, StaleHistory
from onward.handlers.port import Handler
from onward.handlers.room import ShowLine
from onward.machine.decide.calls import limits_hit
from onward.machine.decide.owner_loss import orphaned
from onward.machine.definition import Definition
from onward.machine.plan.action import Action
from onward.machine.plan.planner import Advance, advance
from onward.machine.plan.results import ActionResult, events_of
from onward.machine.reasons import is_at_limit
from onward.model.call import HoldsLifted, LimitWarned
from onward.model.events import Event, RunInterrupted
from onward.model.run import Pending, Run
from onward.store.port.limits import Limits
from onward.store.port.retention import Blobs


class WaitingCalls:
    """How many calls of a process wait, for operators."""

    def __init__(self) -> None:
        self.number = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """A call waits inside."""
        self.number += 1
        try:
            yield
        finally:
            self.number -= 1


class RunServices(Protocol):
    """What few runs ask of their engine; it creates these parts when they are first used."""

    @property
    def effects(self) -> AtMostOnce:
        """Where older versions stored the effects of steps."""
        ...

    @property
    def flusher(self) -> Flusher:
        """Stores the text that calls stream."""
        ...

    @property
    def waiting(self) -> WaitingCalls:
        """How many calls of this process wait."""
        ...

    @property
    def history(self) -> ChatHistory:
        """Reads what was said in a chat before a run."""
        ...

    async def cancel_child(self, run_id: str) -> None:
        """Cancel a run that a step of this run managed."""
        ...

    async def sweep(self) -> object:
        """Look for runs whose holder died, which settles what their calls had reserved."""
        ...


class EngineParts(msgspec.Struct, frozen=True, kw_only=True):
    """What the run loops of one engine share."""

    journal: Journal
    keeper: LeaseKeeper
    clock: Clock
    dice: Dice
    handlers: Mapping[str, Handler]
    observe: Observer
    rooms: Rooms
    workspaces: Workspaces
    blobs: Blobs
    limits: Limits
    services: RunServices
    managed: ManagedRuns
    """Creates and executes the runs that flows wait for."""
    receipts: StepReceipts | None
    show: ShowLine | None
    """Who is shown what steps print."""
    interviewer: Interviewer | None = None
    """Who answers the gates of the run, and of those that its flows wait for."""


class Turns:
    """Like `asyncio.Lock`, for what is nearly always free: taking a free turn creates no coroutine.

    if turns.is_taken:
        await turns.wait()
    turns.is_taken = True
    try: ...
    finally: turns.end()
    """

    __slots__ = ("_waiting", "is_taken")

    def __init__(self) -> None:
        self.is_taken = False
        self._waiting: deque[asyncio.Future[None]] | None = None

    async def wait(self) -> None:
        """Return when it is the caller's turn: nobody else can take it in between."""
        waiting = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            if not waiting.cancelled():  # it had just become the caller's turn
                self.end()
            raise

    def end(self) -> None:
        """The turn is over: it is the next one's, if somebody waits."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return
        self.is_taken = False


Decide = Callable[[Run], Sequence[Event]]
"""What to write about a held run, as it is when it is written."""
GROUP_MAX = 500
"""How many calls write together at most."""


class Written(msgspec.Struct, frozen=True):
    """What was written of a request, and when."""

    events: Sequence[Event]
    at_us: int


class _Member(msgspec.Struct):
    """One of those who write together."""

    decide: Decide
    written: asyncio.Future[Written]

    def answer(self, written: Written) -> None:
        if not self.written.done():
            self.written.set_result(written)

    def refuse(self, error: BaseException) -> None:
        if not self.written.done():
            self.written.set_exception(error)


CHECKPOINT_AFTER_S = 1.0
"""How long after a step its run's `checkpoint.json` has it, at most."""


def _ignore(pending: Pending) -> None:
    """The listener of a run that is not executed any more."""


class Appender:
    """Owns the folded state of one held run, and writes to its log, one append at a time."""

    def __init__(
        self,
        parts: EngineParts,
        definition: Definition,
        folded: Folded,
        hold: Hold,
        stop: StopSwitch,
        on_requests: Callable[[Pending], None],
    ) -> None:
        """`on_requests` hears of requests that are found while a call is written."""
        self._parts, self._definition, self._hold, self._stop = parts, definition, hold, stop
        self.folded = folded
        """The run as this process knows it, with its place in the log. Only this object changes it."""
        self._on_requests = on_requests
        self._turns = Turns()
        self._checkpoint: Alarm | None = None
        self._warned: tuple[Event, ...] = ()
        self._group: list[_Member] = []
        self._writing: asyncio.Task[None] | None = None
        # If this process's clock is slow, it counts from the run's wake time: by its own clock there would be
        # nothing to do yet, and it would requeue the run again and again.
        self._ahead_us = max(0, folded.run.updated_at_us - parts.clock.now_us())

    @property
    def run(self) -> Run:
        """The run as this process knows it."""
        return self.folded.run

    def now_us(self) -> int:
        """The time, which is never before the claim."""
        return self._parts.clock.now_us() + self._ahead_us

    async def append(self, results: Sequence[ActionResult] = ()) -> Action:
        """Append these results and all that follows from them; returns what to do next.

        Only the run loop calls this.
        """
        turns, journal, lease = self._turns, self._parts.journal, self._hold.lease
        if turns.is_taken:
            await turns.wait()
        turns.is_taken = True
        try:
            while True:
                now_us, before = self.now_us(), self.folded
                run, definition = before.run, self._definition
                first = events_of(definition, run, results, now_us=now_us) if results else ()
                if warned := self._warnings():
                    first = (*warned, *first)
                ahead = advance(definition, run, first, now_us=now_us, stop_reason=self._stop.reason)
                if not ahead.events:
                    return ahead.action
                if type(ahead.events[-1]) is RunInterrupted:
                    ahead = await self._judged(ahead, run, first, now_us)
                receipts, syncing = self._receipts(), None
                if receipts is not None:
                    syncing = await receipts.before(definition, before, ahead.events, now_us)
                try:
                    self.folded = await journal.record(before, ahead.events, ahead.run, now_us, lease)
                except StaleHistory:
                    await self.catch_up()
                    continue
                finally:
                    # Written before the commit, synced beside it: nothing follows before the disk has both.
                    if receipts is not None:
                        await receipts.synced(run.id, syncing)
                self._warned = ()
                self._parts.observe(ahead.run, ahead.events)
                for child in orphaned(run, ahead.run, ahead.events) if run.open_steps else ():
                    await self._parts.services.cancel_child(child)
                if receipts is not None and ahead.run.worker is not None:
                    self._write_soon(receipts)
                return ahead.action
        finally:
            turns.end()

    async def record(self, decide: Decide) -> Sequence[Event]:
        """Append what `decide` makes of the run, for a step that is under way; returns what was written.

        What is written has no secrets, and is what a resume would read. Nothing is planned. What `decide`
        raises is a refusal, and nothing is written.
        """
        return (await self.write(decide)).events

    async def write(self, decide: Decide, *, together: bool = False) -> Written:
        """The same, with the time that was written. What waits for its turn is one append.

        `together`: others are about to write, so this waits for them until the loop's next turn. A database
        that commits in place would never let a queue form.
        """
        if not (together or self._turns.is_taken):
            self._turns.is_taken = True
            try:
                return await self._write(decide)
            finally:
                self._turns.end()
        member = _Member(decide, asyncio.get_running_loop().create_future())
        self._group.append(member)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_groups())
        return await member.written

    async def _write_groups(self) -> None:
        """Write what waits, as one append each time it is our turn, until nothing waits."""
        try:
            await asyncio.sleep(0)
            while self._group:
                if self._turns.is_taken:
                    await self._turns.wait()
                self._turns.is_taken = True
                try:
                    members, self._group = self._group[:GROUP_MAX], self._group[GROUP_MAX:]
                    await self._write_together(members)
                finally:
                    self._turns.end()
        except BaseException as error:
            for member in self._group:
                member.refuse(error)
            raise
        finally:
            self._writing = None

    async def _write_together(self, members: Sequence[_Member]) -> None:
        """One append for all. Each sees the run after the one before; a refusal is its caller's alone."""
        journal, lease = self._parts.journal, self._hold.lease
        try:
            while True:
                now_us, before = self.now_us(), self.folded
                warned = self._warnings()
                run, events = applied(before.run, warned, run_id=before.run.id, at_us=now_us)
                parts: list[tuple[_Member, Sequence[Event]]] = []
                written = list(events)
                for member in members:
                    try:
                        decided = redacted_events(journal.redactor, member.decide(run))
                        run, own = applied(run, decided, run_id=before.run.id, at_us=now_us)
                    except Exception as error:
                        member.refuse(error)
                        continue
                    parts.append((member, own))
                    written += own
                if len(written) > len(events):
                    try:
                        self.folded = await journal.record(before, written, run, now_us, lease)
                    except StaleHistory:
                        await self.catch_up()
                        self._on_requests(self.run.pending)
                        members = [member for member, _ in parts]
                        continue
                    self._warned = ()
                    self._parts.observe(run, written)
                for member, own in parts:
                    member.answer(Written(own, now_us))
                return
        except LimitReached as reached:
            if len(members) == 1:
                members[0].refuse(reached)
            else:
                await self._write_one_by_one(members)
        except BaseException as error:  # whatever it is, it is theirs: nothing may wait in vain
            for member in members:
                member.refuse(error)
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _write_one_by_one(self, members: Sequence[_Member]) -> None:
        """Something in the group does not fit into a limit: each hears whether it is the one."""
        for member in members:
            if not member.written.done():
                await self._write_together([member])

    async def _write(self, decide: Decide) -> Written:
        journal, lease = self._parts.journal, self._hold.lease
        while True:
            now_us, before = self.now_us(), self.folded
            decided = redacted_events(journal.redactor, decide(before.run))
            if not decided:
                return Written((), now_us)
            warned = self._warnings()
            decided = (*warned, *decided)
            run, events = applied(before.run, decided, run_id=before.run.id, at_us=now_us)
            try:
                self.folded = await journal.record(before, events, run, now_us, lease)
            except StaleHistory:
                await self.catch_up()
                self._on_requests(self.run.pending)
                continue
            self._warned = ()
            self._parts.observe(run, events)
            return Written(events[len(warned) :], now_us)

    async def _judged(self, ahead: Advance, run: Run, first: Sequence[Event], now_us: int) -> Advance:
        """What follows where the run stops. Before a limit stops it, that is judged once more: it may have
        been raised when nothing was held yet, so that nothing was lifted."""
        stop = ahead.events[-1]
        if not isinstance(stop, RunInterrupted) or not is_at_limit(stop.reason):
            return ahead
        if not await has_room(self._parts.limits, limits_hit(ahead.run)):
            return ahead
        first = (*first, HoldsLifted(why="its limit was raised before the run stopped"))
        return advance(self._definition, run, first, now_us=now_us, stop_reason=self._stop.reason)

    def _warnings(self) -> tuple[Event, ...]:
        """Limits that are nearly spent, to be said with what is written next."""
        for one in self._parts.limits.take_warnings(self.folded.run.id):
            said = LimitWarned(scope=one.scope, measure=one.measure, limit=one.limit, spent=one.spent)
            self._warned = (*self._warned, said)
        return self._warned

    async def requests(self) -> Pending:
        """The requests to the run, read from the log; the state here does not change."""
        return (await self._parts.journal.catch_up(self.folded)).run.pending

    async def look(self) -> None:
        """Fold what others appended, when it is this caller's turn."""
        if self._turns.is_taken:
            await self._turns.wait()
        self._turns.is_taken = True
        try:
            await self.catch_up()
        finally:
            self._turns.end()

    async def catch_up(self) -> None:
        """Fold what others appended. LeaseLost: another process has claimed the run."""
        folded, lease = await self._parts.journal.catch_up(self.folded), self._hold.lease
        if (folded.run.worker, folded.run.token) != (lease.owner, lease.token):
            raise LeaseLost(lease.run_id, lease.token)
        self.folded = folded

    async def close(self) -> None:
        """Return when the run's files are written. Nothing more is written then."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        self._on_requests = _ignore  # the run loop refers to this: garbage would have to be collected
        if self._checkpoint is not None:
            self._checkpoint.cancel()
        if self._parts.receipts is not None:
            run = self.folded.run
            is_ours = run.worker is None or self._parts.keeper.is_trusted(self._hold)
            await self._parts.receipts.close(run, is_ours=is_ours)

    def _receipts(self) -> StepReceipts | None:
        """Where files of this run are written, if there are any.

        A process that may have lost the run writes none: it would overwrite those of the next holder.
        """
        receipts = self._parts.receipts
        if receipts is None or not receipts.is_kept(self.folded.run.id):
            return None
        return receipts if self._parts.keeper.is_trusted(self._hold) else None

    def _write_soon(self, receipts: StepReceipts) -> None:
        receipts.write_soon(self.folded.run.id)
        if self._checkpoint is None:
            at_s = self._parts.clock.awake_s() + CHECKPOINT_AFTER_S
            self._checkpoint = self._parts.clock.alarm(at_s, self._write_checkpoint)

    def _write_checkpoint(self) -> None:
        self._checkpoint, receipts = None, self._receipts()
        if receipts is not None:
            receipts.write_checkpoint(self.folded.run)
