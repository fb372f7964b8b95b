"""Deleting content that nothing refers to, beside writers that may just begin to use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from onward.clock import SystemIds
from onward.store.port.blobs import NOTHING, Swept

DELETED_AT_ONCE = 100
"""How many blobs one transaction marks or deletes: writers wait for no more than that."""
MARK_DIGITS = 15  # of a hexadecimal number: with its sign it fits into 64 bits


class Sweepable(Protocol):
    """The three steps of a sweep, each a transaction of its own."""

    async def unused(self, before_us: int, limit: int) -> Sequence[str]:
        """Blobs that nothing refers to and that were not touched since."""
        ...

    async def mark(self, names: Sequence[str], *, before_us: int, mark: int) -> None:
        """Mark those of these blobs that are still untouched: a write that uses one takes the mark off."""
        ...

    async def delete(self, names: Sequence[str], *, mark: int) -> Swept:
        """Delete those of these blobs that still have the mark."""
        ...


async def sweep(blobs: Sweepable, before_us: int, limit: int) -> Swept:
    """Mark blobs that nothing refers to, look again, and delete those that still have the mark."""
    mark, swept = new_mark(), NOTHING
    names = await blobs.unused(before_us, limit)
    for batch in _batched(names):
        await blobs.mark(batch, before_us=before_us, mark=mark)
    for batch in _batched(await blobs.unused(0, limit) if names else ()):
        swept = swept.plus(await blobs.delete(batch, mark=mark))
    return swept


def new_mark() -> int:
    """What a sweep writes in place of the time at which a blob was touched: below all times, and its own."""
    return -1 - int(SystemIds().unique()[:MARK_DIGITS], 16)


def _batched(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), DELETED_AT_ONCE):
        yield names[start : start + DELETED_AT_ONCE]
