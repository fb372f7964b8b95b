"""Who answers requests that only look.

On SQLite a read never yields, so that the loop would stand still for as long as it takes. So a server reads
from a second store in a thread: `ThreadReader`. `LoopReader` is for a database that cannot be opened twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from onward.operations.protocol import Operations
    from onward.store.reader import Reader as StoreReader

T = TypeVar("T")


class Reader(Protocol):
    """Asks operations that only look."""

    async def read(self, work: Callable[[Operations], Awaitable[T]]) -> T:
        """What `work` returns; it may run in another thread, and must share nothing with this one."""
        ...

    async def close(self) -> None:
        """Let go of what it reads."""
        ...


class LoopReader:
    """Asks in the loop of the caller."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def read(self, work: Callable[[Operations], Awaitable[T]]) -> T:
        """What `work` returns."""
        return await work(self._operations)

    async def close(self) -> None:
        """The operations belong to somebody else."""


class ThreadReader:
    """Asks operations on a store of their own, in its thread."""

    def __init__(self, reader: StoreReader[Operations]) -> None:
        self._reader = reader

    async def read(self, work: Callable[[Operations], Awaitable[T]]) -> T:
        """What `work` returns there."""
        return await self._reader.ask(work)

    async def close(self) -> None:
        """Close the store, and end the thread."""
        await self._reader.close()
