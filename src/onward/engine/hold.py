"""Stop an attempt between two calls, and continue it later.

From the moment a hold is asked for, only calls inside an open one may begin. The hold waits for the leaves
that are under way: calls with none inside them. Then the attempt is over, and what its handler returns is
dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import NoReturn, Protocol

import msgspec
from msgspec.structs import replace

from onward.engine.appender import Appender
from onward.engine.persist import unbroken
from onward.errors import InvalidInput, Refused
from onward.handlers.calls import StepQuestion
from onward.machine.decide.calls import attempt_over, hold_attempt
from onward.machine.fold.calls import CHILD, GATE, PAUSE, WAIT
from onward.model.call import AttemptHeld, LimitHit
from onward.model.events import Event, StepStarted
from onward.model.run import Run


class HeldAttempt(Protocol):
    """An attempt, as what holds it sees it."""

    def stops_at_call(self) -> str:
        """Why the attempt should stop before its next call; empty if it should not."""
        ...

    def end(self) -> None:
        """Stop its handler: the attempt is held."""
        ...


class AttemptHold:
    """Whether one attempt is to stop, or has stopped."""

    def __init__(self, appender: Appender, started: StepStarted, attempt: HeldAttempt) -> None:
        self._appender, self._started, self._attempt = appender, started, attempt
        self._leaves: set[str] = set()
        self._left: set[str] = set()
        self._wanted: AttemptHeld | None = None
        self._asked: dict[str, StepQuestion] = {}
        self._writing: asyncio.Task[None] | None = None
        self._is_held, self.over = False, asyncio.Event()

    async def boundary(self) -> None:
        """Pass from one call to the next; if the attempt is to stop, this never returns."""
        why = self._attempt.stops_at_call()
        if why:
            self.ask(PAUSE, why)
        if self._wanted is not None:
            await self.over.wait()
            raise attempt_over(self._appender.run.id, self._started.step)

    def begin(self, call: str, inside: str | None) -> None:
        """A call is under way; the one that it is inside of is not a leaf any more."""
        if inside is not None:
            self._leaves.discard(inside)
        self._leaves.add(call)

    def end(self, call: str) -> None:
        """A call is not under way any more."""
        if call not in self._left:
            self._leaves.discard(call)
            self._hold_if_idle()

    def leave(self, call: str) -> None:
        """The function of a call still runs, although its caller has gone: it stays under way."""
        self._left.add(call)

    def ask(
        self, reason: str, detail: str = "", until_us: int | None = None, limit: LimitHit | None = None
    ) -> None:
        """Let no further call begin, and end the attempt when those that are open have finished."""
        if self._wanted is None:
            self._wanted = AttemptHeld(
                step=self._started.step,
                attempt=self._started.attempt,
                reason=reason,
                detail=detail,
                until_us=until_us,
                limit=limit,
            )
        self._hold_if_idle()

    @property
    def is_shared(self) -> bool:
        """Whether several calls are under way: then what they write can be written together."""
        return len(self._leaves) > 1

    @property
    def is_asking(self) -> bool:
        """Whether the attempt is to stop for an answer; it may ask more until it has stopped."""
        return self._wanted is not None and self._wanted.reason == GATE

    async def wait_for_answer(self, call: str, gate: str, question: StepQuestion) -> NoReturn:
        """Put a question to people and end the attempt; it continues with the answer."""
        self._asked[gate] = question
        self.ask(GATE, f"it waits for an answer at {gate}")
        self.end(call)
        await self.over.wait()
        raise attempt_over(self._appender.run.id, self._started.step)

    @property
    def is_wanted(self) -> bool:
        """Whether the attempt is to stop, and begins no further call."""
        return self._wanted is not None

    def park(
        self,
        detail: str,
        until_us: int | None,
        gates: Sequence[str],
        runs: Sequence[str] = (),
        *,
        is_stopped: bool = False,
    ) -> None:
        """End the attempt of a flow all of whose branches wait; it continues with the first that need not.

        `is_stopped`: it waits for nothing but `runs`, which have stopped.
        """
        self._wanted = self._wanted or AttemptHeld(
            step=self._started.step,
            attempt=self._started.attempt,
            reason=CHILD if is_stopped else WAIT,
            detail=detail,
            until_us=until_us,
            gates=tuple(gates),
            runs=tuple(runs),
        )
        self._hold_if_idle()

    async def is_held(self) -> bool:
        """Whether the log says that the attempt was held; waits for a hold that is being written.

        Raises what kept the hold from being written.
        """
        if self._writing is not None:
            await unbroken(self._writing)
        return self._is_held

    def close(self) -> None:
        """The attempt is over: calls that wait are refused."""
        self.over.set()

    def _hold_if_idle(self) -> None:
        is_writing = self._writing is not None and not self._writing.done()
        if self._wanted is not None and not self._leaves and not is_writing and not self.over.is_set():
            self._writing = asyncio.create_task(self._write(self._wanted))
            self._writing.add_done_callback(_note_failure)

    async def _write(self, wanted: AttemptHeld) -> None:
        """Record the hold and end the handler; nothing if a nested call has begun meanwhile."""
        try:
            self._is_held = bool(await self._appender.record(partial(self._decide, wanted)))
        except Refused:
            pass  # something else ended the attempt first
        finally:
            if not self._leaves:  # held, or the run is lost: either way the attempt is over
                self.close()
                self._attempt.end()

    def _decide(self, wanted: AttemptHeld, run: Run) -> Sequence[Event]:
        """The hold, together with all that was asked until now: only then is anybody asked."""
        if wanted.reason != GATE:
            return hold_attempt(run, wanted, self._leaves)
        now_us, node = self._appender.now_us(), self._started.node
        asked = [question.opened(gate, node, now_us) for gate, question in self._asked.items()]
        return hold_attempt(run, replace(wanted, gates=tuple(self._asked)), self._leaves, asked)


def _note_failure(writing: asyncio.Task[None]) -> None:
    """`is_held` raises what failed; an attempt that ended otherwise does not ask for it."""
    if not writing.cancelled():
        writing.exception()


class Enclosing(msgspec.Struct, frozen=True):
    """The call that the current code is inside of."""

    calls: UnderWay
    key: str
    repeatable: bool


_enclosing: ContextVar[Enclosing | None] = ContextVar("onward_enclosing_call", default=None)


class UnderWay:
    """Those of one attempt. A hold waits for them, unless they only wait for calls inside them."""

    def __init__(self, step: str, holding: AttemptHold) -> None:
        self._step, self._holding = step, holding
        self._keys: set[str] = set()

    def check_idle(self, key: str) -> None:
        """Refuse a call that is already in progress."""
        if key in self._keys:
            raise Refused("call_under_way", f"call {key!r} of step {self._step} is already in progress.")

    def outer(self, key: str) -> Enclosing | None:
        """The call that this one is inside of; InvalidInput if that one must not be repeated."""
        outer = _enclosing.get()
        if outer is None or outer.calls is not self or outer.key not in self._keys:
            return None
        if not outer.repeatable:
            raise InvalidInput(
                f"call {outer.key!r} must not be repeated, so it cannot contain call {key!r}; run the calls "
                "one after the other."
            )
        return outer

    @contextmanager
    def one(self, key: str, outer: Enclosing | None) -> Iterator[None]:
        """The call is under way."""
        self._keys.add(key)
        self._holding.begin(key, None if outer is None else outer.key)
        try:
            yield
        finally:
            self._keys.discard(key)
            self._holding.end(key)

    @contextmanager
    def inside(self, key: str, *, repeatable: bool) -> Iterator[None]:
        """Calls that are made here are inside this one."""
        token = _enclosing.set(Enclosing(self, key, repeatable))
        try:
            yield
        finally:
            _enclosing.reset(token)
