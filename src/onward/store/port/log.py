"""The log of each run: the one door to durability.

`create`, `append`, `control` and `take` are one transaction each. It checks what it needs, writes events, and
updates the row, the ownership and the wake time with them.

First what a log is made of: events as they are stored, places in a log, and what is written at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec

from onward.model.row import CallRow, GateRow, RunRow, Telling
from onward.model.run import Frozen, RunStatus
from onward.store.port.leases import Holder, Lease


class Position(NamedTuple):
    """A place in a log: the number of an event and the hash that covers all up to it."""

    seq: int
    hash: bytes


ORIGIN = Position(0, b"")
NO_VALUES: Mapping[str, bytes] = MappingProxyType({})


class StoredEvent(Frozen, frozen=True):
    """An event as it is stored, in the log of `run_id`. `values` are the large values it names, by hash.

    `refs` are the hashes of all content that belongs to it. One behind `~` is kept for the event and not read
    with it: a log can be read without its artifacts.
    """

    run_id: str
    seq: int
    kind: str
    v: int
    at_us: int
    token: int
    body: str
    hash: bytes
    refs: tuple[str, ...] = ()
    values: Mapping[str, bytes] = NO_VALUES


KEPT_APART = "~"
_refs_of = attrgetter("refs")


def read_with(refs: Sequence[str]) -> Sequence[str]:
    """The hashes of the content that is read together with its event."""
    return [name for name in refs if not name.startswith(KEPT_APART)]


def content_named(records: Iterable[StoredEvent]) -> set[str]:
    """The hashes of all content that belongs to these events."""
    named: set[str] = set()
    for record in records:
        if record.refs:
            named.update(name.lstrip(KEPT_APART) for name in record.refs)
    return named


class Snapshot(NamedTuple):
    """A cached fold: good for the log whose event `seq` has `hash`, read by the same fold version."""

    seq: int
    hash: bytes
    fold_version: int
    body: bytes


class Write(Frozen, frozen=True, kw_only=True):
    """Events for one run, sealed after `after` and up to `head`, and what its row becomes.

    `at_us` is the writer's clock. A wake time is as far from it as the run is to wait: the database adds that
    to its own clock, and judges by that alone whether the run is due. `row` is None when only the position
    and the progress changed: the write of a step in passing. `gates` are those that its events open or close,
    `notifications` what they tell: each is stored for every subscriber that wants its kind.
    """

    run_id: str
    after: Position
    head: Position
    records: tuple[StoredEvent, ...]
    at_us: int
    next_node: str | None
    doubtful: str | None
    steps_finished: int
    tokens: int
    cost_micro: int
    ticks: str
    row: RunRow | None
    gates: tuple[GateRow, ...] = ()
    calls: tuple[CallRow, ...] = ()
    """The calls with a reservation or a message that its events begin or end."""
    pipeline: str = ""
    """The pipeline that what such a call cost is counted for."""
    notifications: Telling | None = None
    blobs: dict[str, bytes] = msgspec.field(default_factory=dict)
    snapshot: Snapshot | None = None

    def relied_on(self) -> set[str]:
        """The hashes of content that its events name, and that it does not bring: it must be stored."""
        if not any(map(_refs_of, self.records)):  # few steps name any, and all ask
            return set()
        return content_named(self.records) - self.blobs.keys()


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

    async def bodies(self, run_id: str, kind: str) -> Sequence[str]:
        """The run's events of one kind as JSON, in order, without the large values that they name."""
        ...

    async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[StoredEvent]:
        """Events after `after`, in order, from the run's own log and the logs it was forked from."""
        ...
