"""A wrapper around any store that makes a chosen call fail.

    faulty = FaultyStore(store, Fault.DIE_AFTER, at=7)     # the seventh call is made, then its caller dies

Dying raises `Died`, which no engine catches, in this call and, because a task beside the run may have made
it, in every later one; the test must also let the owner die for the other processes. Of a store whose
`is_dead` was set, no call returns, as for a process that has ended. The other faults raise what a real store
would raise. A call is named after its part, as in `log.append`. Only calls in `counted` have a number:
renewals depend on the clock, so counting them would make the numbers depend on it. A manual clock that is set
as `clock` never jumps during a call, however long the database takes; `delay`, awaited before and after each
call, makes it take longer.

To change a method of one part, write a subclass of `Around`:

    class Late(Around[RunLog]):
        async def append(self, write: Write, lease: Lease) -> None:
            await asyncio.sleep(1)
            await self.part.append(write, lease)

    faulty = FaultyStore(store, log=Late)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import StrEnum
from inspect import iscoroutinefunction
from typing import Any, Generic, TypeVar

from onward.errors import StoreError, StoreUnavailable
from onward.model.ids import Identity
from onward.store.port.store import Store, Unwatch
from onward.testing.clock import ManualClock

Part = TypeVar("Part")
EFFECTS = frozenset({"effects.begin", "effects.finish", "effects.forget"})
WRITES = frozenset({"log.create", "log.append", "log.control", "log.take"})
WRITES |= {"retention.delete", "blobs.sweep", "blobs.put", "carrying.receive"}
READS = frozenset({"log.load", "log.read", "blobs.find", "blobs.find_many"})


class Fault(StrEnum):
    """How the chosen call fails."""

    DIE_BEFORE = "die before the effect"
    DIE_AFTER = "die after the effect, before the reply"
    LOSE_REPLY = "report a failure after the effect"
    REFUSE = "report a failure without the effect"


class Died(BaseException):
    """The process ended here. Not an Exception: nothing may continue after it."""


class Around(Generic[Part]):
    """A part of a faulty store; a subclass overrides some of its methods."""

    def __init__(self, part: Part, store: FaultyStore) -> None:
        self.part, self.store = part, store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.part, name)


class FaultyStore:
    """Delegates to `store`, except for the faults. `parts` are wrappers of its parts, by name."""

    def __init__(
        self,
        store: Store,
        fault: Fault | None = None,
        at: int = 0,
        *,
        times: int = 1,
        error: StoreError | None = None,
        counted: Collection[str] = WRITES | READS,
        **parts: Callable[[Any, FaultyStore], Around[Any]],
    ) -> None:
        self.store, self.fault, self._counted = store, fault, counted
        self._range = range(at, at + times)
        self._error = error or StoreUnavailable("the connection timed out; this is a test.")
        self.calls: list[str] = []
        self.is_dead = False
        self._death: str | None = None
        self.clock: ManualClock | None = None
        self.delay: Callable[[], Awaitable[None]] | None = None

        def faulty(name: str) -> Any:
            part = _FaultyPart(self, name)
            return parts.pop(name)(part, self) if name in parts else part

        self.log, self.leases, self.runs = faulty("log"), faulty("leases"), faulty("runs")
        self.blobs, self.effects = faulty("blobs"), faulty("effects")
        self.retention, self.carrying = faulty("retention"), faulty("carrying")
        self.workers = faulty("workers")
        self.measures, self.gates, self.backfill = faulty("measures"), faulty("gates"), faulty("backfill")
        self.outbox, self.limits = faulty("outbox"), faulty("limits")
        self.messages, self.pipelines = faulty("messages"), faulty("pipelines")
        self.intakes = faulty("intakes")
        self.principals, self.audit = faulty("principals"), faulty("audit")
        assert not parts, f"a store has no {', '.join(parts)}"

    def fail(self, fault: Fault, *, within: int = 1, times: int = 1) -> None:
        """Make the next counted call fail (or the `within`th from now), and `times` in a row."""
        self.fault = fault
        self._range = range(len(self.calls) + within, len(self.calls) + within + times)

    async def call(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Call a part, unless the call is to fail."""
        if self._death is not None:
            raise Died(self._death)
        if self.is_dead:
            await asyncio.Event().wait()
        with self.clock.busy() if self.clock is not None else contextlib.nullcontext():
            return await self._answered(name, call if self.delay is None else self._delayed(call, self.delay))

    @staticmethod
    def _delayed(
        call: Callable[[], Awaitable[Any]], delay: Callable[[], Awaitable[None]]
    ) -> Callable[[], Awaitable[Any]]:
        async def delayed() -> Any:
            await delay()
            try:
                return await call()
            finally:
                await delay()

        return delayed

    async def _answered(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if name not in self._counted:
            return await call()
        self.calls.append(name)
        if self.fault is None or len(self.calls) not in self._range:
            return await call()
        if self.fault in (Fault.DIE_AFTER, Fault.LOSE_REPLY):
            await call()
        if self.fault in (Fault.LOSE_REPLY, Fault.REFUSE):
            raise self._error
        self.is_dead = True
        self._death = f"{self.fault}: call {len(self.calls)}, {name}"
        raise Died(self._death)

    @property
    def identity(self) -> Identity:
        return self.store.identity

    async def watch(self, on_due: Callable[[], None]) -> Unwatch:
        return await self.store.watch(on_due)

    async def version(self) -> int | None:
        return await self.store.version()

    async def check(self) -> Sequence[tuple[str, bool, str]]:
        return await self.store.check()

    async def close(self) -> None:
        await self.store.close()


class _FaultyPart:
    """A part whose calls are counted and may fail."""

    def __init__(self, store: FaultyStore, name: str) -> None:
        self._store, self._name = store, name

    def __getattr__(self, name: str) -> Any:
        found = getattr(getattr(self._store.store, self._name), name)
        if not iscoroutinefunction(found):
            return found

        async def call(*values: Any, **named: Any) -> Any:
            return await self._store.call(f"{self._name}.{name}", lambda: found(*values, **named))

        return call
