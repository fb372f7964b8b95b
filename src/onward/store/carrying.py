"""Runs that come from another database: whole, with a log that was written elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from onward.store.port import Effect, Record, Write

ARRIVED = "arrived"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A run to take in. `write` has its row, its end and its first records; `rest` gives those behind them,
    a few at a time, and again from their beginning if it is called again."""

    write: Write
    rest: Callable[[], Iterator[Sequence[Record]]]
    effects: Sequence[Effect] = ()

    @property
    def append_id(self) -> str:
        """The same run again is the same request."""
        return f"{ARRIVED} {self.write.head.hash.hex()}"


class Carrying(Protocol):
    """Taking runs elsewhere, and taking them in."""

    async def keep_blobs(self, blobs: Mapping[str, bytes], *, at_us: int) -> None:
        """Store content ahead of the run that refers to it; it stays at least as long as any other does."""
        ...

    async def receive(self, arrival: Arrival) -> None:
        """Store a run that nobody holds, all of it or nothing; a success if this very log is there.

        Its id must be free and what it was forked from must be there. Its effects are nobody's any more: one
        that has no result is in doubt. One whose key is taken stays as it is.
        """
        ...
