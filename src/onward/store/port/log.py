"""The log of each run: the one door to durability.

`create`, `append`, `control` and `take` are one transaction each. It checks what it needs, writes events, and
updates the row, the ownership and the wake time with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from onward.model.row import RunRow
from onward.model.run import RunStatus
from onward.store.port.leases import Holder, Lease
from onward.store.port.stored import Position, Snapshot, StoredEvent, Write

TAIL_MAX = 1_000
"""How many events are read together with a run. A longer log is folded page by page, and under no lock."""


class Held(msgspec.Struct, frozen=True):
    """A run under its lock: where its log ends, who holds it, and which process asks."""

    position: Position
    status: RunStatus
    holder: Holder | None
    asker: str


Decide = Callable[[Held, Sequence[StoredEvent]], Write | None]


class Controlled(msgspec.Struct, frozen=True):
    """What came of a control request: the log's end, and whether this answer was given before.

    `answered` is the last event that was written under the append id, when the answer was given before.
    """

    head: Position
    is_repeat: bool = False
    answered: int | None = None


class Loaded(msgspec.Struct, frozen=True):
    """A run as one consistent read: its row, its holder, the newest usable snapshot and the log after it.

    `is_cut`: the log after the snapshot has more than TAIL_MAX events and was left out; `read` gives it.
    `is_due`: the run has no wake time, or it has come by the database's clock.
    """

    row: RunRow
    position: Position
    holder: Holder | None
    snapshot: Snapshot | None
    tail: Sequence[StoredEvent]
    is_cut: bool = False
    is_due: bool = True


class TakeFilter(msgspec.Struct, frozen=True):
    """Which due runs to take: none that needs one of these sets of handlers, and none of these runs.

    `known` is a run and an event up to which the asker has folded it: of that run only the log after this
    event is shown, and no snapshot.
    """

    unserved: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    known: tuple[str, int] | None = None

    def known_of(self, run_id: str) -> int | None:
        """Up to which event the asker knows this run."""
        return self.known[1] if self.known is not None and self.known[0] == run_id else None


DecideLoaded = Callable[[Held, Loaded], Write | None]


class RunLog(Protocol):
    """The one door to durability.

    Whatever is written stores the content it brings in the same transaction, and is refused
    (`content_missing`) if its events name content that it does not bring and that is not stored.
    """

    async def create(self, write: Write, append_id: str | None = None) -> None:
        """Make a run with its first events. The same again is a success, anything else finds the id taken.

        Without an append id, which is for run ids that no other process can choose, the same is this very
        write; with one, whatever was asked for under it.
        """
        ...

    async def append(self, write: Write, lease: Lease) -> None:
        """Write for the holder: all of it, or LeaseLost, or StaleHistory. The same write again succeeds."""
        ...

    async def control(self, run_id: str, *, since: int, append_id: str, decide: Decide) -> Controlled:
        """Lock the run, show `decide` the records after `since`, and write what it returns."""
        ...

    async def take(self, wanted: TakeFilter, *, fold_version: int, decide: DecideLoaded) -> Controlled | None:
        """Lock the first run that is due and show it to `decide`, as `control` does; None if none is due.

        A run is due by the database's clock, whatever the clocks of its writer and of the asker say. What is
        read under the lock has an end: see `Loaded.is_cut`. A StoreError names the run that was locked.

        The highest priority comes first, then the one that has been due for longest. Passed over are runs
        that other processes are about to take, runs with a key in use, and pipelines with as many runs held
        as they may have.
        """
        ...

    async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
        """A run's state as one consistent read, or None if there is no such run."""
        ...

    async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[StoredEvent]:
        """Events after `after`, in order, from the run's own log and the logs it was forked from."""
        ...
