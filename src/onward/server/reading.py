"""Where read-only requests are executed.

On SQLite a read never yields, so it would block the event loop. So a server reads from a second store in a
thread: `ThreadReader`. `LoopReader` is for a database that cannot be opened twice.

A status takes a tenth of a millisecond, less than a switch to another thread and back. So on SQLite a status
is read in the loop, unless one of the same run took long before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from onward.clock import Clock
    from onward.operations.protocol import Operations
    from onward.store.reader import Reader as StoreReader

T = TypeVar("T")
GLANCE_S_MAX, GLANCES_LONG_MAX = 0.002, 3
"""What takes longer so often, one time after another, is read in the thread from then on. A single time says
little: another thread or process may have had its turn meanwhile."""
FAR_TOO_LONG = 10
"""What takes so many times as long is read in the thread at once: a long log without a snapshot of this
version, which every status folds from its beginning."""
SUBJECTS_MAX = 1_000


class Reader(Protocol):
    """Executes read-only operations."""

    async def read(self, work: Callable[[Operations], Awaitable[T]]) -> T:
        """What `work` returns; it may run in another thread, and must share nothing with this one."""
        ...

    async def glance(self, subject: str, work: Callable[[Operations], Awaitable[T]]) -> T:
        """The same for what is usually read in no time; `subject` is what it is about."""
        ...

    async def close(self) -> None:
        """Close what it reads from."""
        ...


class LoopReader:
    """Executes them in the loop of the caller."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def read(self, work: Callable[[Operations], Awaitable[T]]) -> T:
        """What `work` returns."""
        return await work(self._operations)

    async def glance(self, subject: str, work: Callable[[Operations], Awaitable[T]]) -> T:
        """What `work` returns."""
        return await work(self._operations)

    async def close(self) -> None:
        """The operations belong to somebody else."""


class ThreadReader:
    """Asks operations on a store of their own, in its thread; `here` are those for glances in this one."""

    def __init__(
        self, reader: StoreReader[Operations], *, here: Operations | None = None, clock: Clock
    ) -> None:
        self._reader, self._here, self._clock = reader, here, clock
        self._long: dict[str, int] = {}

    async def read(self, work: Callable[[Operations], Awaitable[T]]) -> T:
        """What `work` returns there."""
        return await self._reader.ask(work)

    async def glance(self, subject: str, work: Callable[[Operations], Awaitable[T]]) -> T:
        """What `work` returns: here, unless that took too long before."""
        if self._here is None or self._long.get(subject, 0) >= GLANCES_LONG_MAX:
            return await self._reader.ask(work)
        began_s = self._clock.awake_s()
        try:
            return await work(self._here)
        finally:
            self._note(subject, self._clock.awake_s() - began_s)

    def _note(self, subject: str, took_s: float) -> None:
        if took_s <= GLANCE_S_MAX:
            self._long.pop(subject, None)
            return
        if len(self._long) >= SUBJECTS_MAX:
            self._long.clear()
        times = GLANCES_LONG_MAX if took_s > FAR_TOO_LONG * GLANCE_S_MAX else 1
        self._long[subject] = self._long.get(subject, 0) + times

    async def close(self) -> None:
        """Close the store, and end the thread."""
        await self._reader.close()
