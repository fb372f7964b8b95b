"""What the engine asks of a database, in a few small protocols.

The one door to durability is `create`, `append` and `control`: each is one transaction that checks what
it needs, writes events, and updates the row, the ownership and the wake time with them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec

from onward.model.identity import Identity
from onward.model.row import RunRow
from onward.model.run import Frozen, RunStatus
from onward.model.values.bounds import LISTED
from onward.store.carrying import Carrying
from onward.store.measures import Measures
from onward.store.retention import Retention


class Position(NamedTuple):
    """A place in a log: the number of an event and the hash that covers all up to it."""

    seq: int
    hash: bytes


ORIGIN = Position(0, b"")
TAIL_MAX = 1_000
"""How many events are read together with a run. A longer log is folded page by page, and under no lock."""
NO_VALUES: Mapping[str, bytes] = MappingProxyType({})


class Record(Frozen, frozen=True):
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


def read_with(refs: Sequence[str]) -> Sequence[str]:
    """The hashes of the content that is read together with its event."""
    return [name for name in refs if not name.startswith(KEPT_APART)]


def content_named(records: Iterable[Record]) -> set[str]:
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


class Lease(NamedTuple):
    """The right to do a run's work. The token only grows, so an old lease is never mistaken for a new one."""

    run_id: str
    owner: str
    token: int


class Write(Frozen, frozen=True, kw_only=True):
    """Events for one run, sealed after `after` and up to `head`, and what its row becomes.

    `at_us` is the writer's clock. A wake time is as far from it as the run is to wait: the database adds that
    to its own clock, and judges by that alone whether the run is due. `row` is None when only the position
    and the progress changed: the write of a step in passing.
    """

    run_id: str
    after: Position
    head: Position
    records: tuple[Record, ...]
    at_us: int
    next_node: str | None
    steps_finished: int
    row: RunRow | None
    blobs: dict[str, bytes] = msgspec.field(default_factory=dict)
    snapshot: Snapshot | None = None

    @property
    def relied_on(self) -> set[str]:
        """The hashes of content that its events name, and that it does not bring: it must be stored."""
        named = content_named(self.records)
        return named - self.blobs.keys() if named else named  # few steps name any, and all ask


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a run, and whether that process can still be doing so."""

    owner: str
    token: int
    is_alive: bool


@dataclass(frozen=True, slots=True)
class Held:
    """A run under its lock: where its log ends, who holds it, and who asks."""

    position: Position
    status: RunStatus
    holder: Holder | None
    me: str


Decide = Callable[[Held, Sequence[Record]], Write | None]


@dataclass(frozen=True, slots=True)
class Controlled:
    """What came of a control request: the log's end, and whether this answer was given before."""

    head: Position
    is_repeat: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """A run as one consistent read: its row, its holder, the newest usable snapshot and the log after it.

    `is_cut`: the log after the snapshot has more than TAIL_MAX events and was left out; `read` gives it.
    `is_due`: the run has no wake time, or it has come by the database's clock.
    """

    row: RunRow
    position: Position
    holder: Holder | None
    snapshot: Snapshot | None
    tail: Sequence[Record]
    is_cut: bool = False
    is_due: bool = True


@dataclass(frozen=True, slots=True)
class Listed:
    """A row in a list, and who holds the run."""

    row: RunRow
    holder: Holder | None


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs to list, newest first."""

    statuses: tuple[RunStatus, ...] = ()
    pipeline: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        LISTED.check(self.limit, "limit")


@dataclass(frozen=True, slots=True)
class Wanted:
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
    """The one door.

    Whatever is written stores the content it brings in the same transaction, and is refused
    (`content_missing`) if its events name content that it does not bring and that is not stored.
    """

    async def create(self, write: Write, append_id: str | None = None) -> None:
        """Make a run with its first events. The same again is a success, anything else finds the id taken.

        Without an append id, which is for ids that nobody else can come upon, the same is this very write;
        with one, whatever was asked for under it.
        """
        ...

    async def append(self, write: Write, lease: Lease) -> None:
        """Write for the holder: all of it, or LeaseLost, or StaleHistory. The same write again succeeds."""
        ...

    async def control(self, run_id: str, *, since: int, append_id: str, decide: Decide) -> Controlled:
        """Lock the run, show `decide` the records after `since`, and write what it returns."""
        ...

    async def take(self, wanted: Wanted, *, fold_version: int, decide: DecideLoaded) -> Controlled | None:
        """Lock the first run that is due and show it to `decide`, as `control` does; None if none is due.

        A run is due by the database's clock, whatever the clocks of its writer and of the asker say. What is
        read under the lock has an end: see `Loaded.is_cut`. A StoreError names the run that was locked.

        The highest priority comes first, then the one that has been due for longest. What others are about
        to take, what has a key in use, and pipelines with as many runs held as they may have are passed over.
        """
        ...

    async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
        """A run's state as one consistent read, or None if there is no such run."""
        ...

    async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[Record]:
        """Events behind `after`, in order, from the run's own log and the logs it was forked from."""
        ...


class Leases(Protocol):
    """Holding on."""

    @property
    def me(self) -> str:
        """How this process is named as an owner."""
        ...

    @property
    def lease_s(self) -> float | None:
        """How long a claim or renewal is good for; None when only the process's death ends it."""
        ...

    @property
    def heartbeat_s(self) -> float:
        """How often to call `renew`: often enough to keep the lease and to learn of requests."""
        ...

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        """Hold on to these; answers the head of each run that is still held by that lease."""
        ...


class Runs(Protocol):
    """Finding runs."""

    async def find(self, wanted: str) -> Sequence[Listed]:
        """Runs by display id; if there is none, by full id; if there is none, by prefix of either."""
        ...

    async def list(self, query: RunQuery) -> Sequence[Listed]:
        """Runs, newest first."""
        ...

    async def forks(self, run_id: str) -> Sequence[Listed]:
        """The runs that came off this one, oldest first."""
        ...

    async def held(self) -> Sequence[Listed]:
        """Every run that somebody owns, alive or not."""
        ...

    async def count(self) -> Mapping[RunStatus, int]:
        """How many runs there are in each status."""
        ...


class Blobs(Protocol):
    """Content by its hash."""

    async def blob(self, hash: str) -> bytes | None:
        """The content with this BLAKE3, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect that was begun under `token`; `result` is there when it has finished.

    `is_alive` tells whether whoever began it can still be at it. Begun, unfinished and not alive: in doubt.
    """

    key: str
    token: str
    owner: str
    is_alive: bool
    begun_at_us: int
    finished_at_us: int | None = None
    result: bytes | None = None


class Effects(Protocol):
    """Effects that are made at most once. The token of a beginning is unique, so an old one is never taken
    for a new one, and every call can be made again when its reply was lost."""

    async def begin_effect(
        self, key: str, token: str, *, at_us: int, instead_of: str | None = None
    ) -> Effect:
        """Begin it, unless it is there already; answers the one that is there then: ours has our token.

        One that was begun under the token `instead_of`, and has not finished, is begun again.
        """
        ...

    async def finish_effect(self, key: str, token: str, result: bytes, *, at_us: int) -> bool:
        """Store what came of it; False if it is not the caller's any more, and then nothing is stored."""
        ...

    async def renew_effect(self, key: str, token: str, *, is_at_it: bool = True) -> bool:
        """The caller is still at it, or not any more; False if it is not the caller's in any case."""
        ...

    async def forget_effect(self, key: str, token: str) -> None:
        """As if it had never begun, if it is still the one with this token."""
        ...

    async def find_effect(self, key: str) -> Effect | None:
        """The effect of this key, or None."""
        ...

    async def read_effects(self, under: str, *, limit: int) -> Sequence[Effect]:
        """The effects whose keys begin with `under` and a slash, finished or not, by their keys."""
        ...


Unwatch = Callable[[], Awaitable[None]]


class Store(RunLog, Leases, Runs, Blobs, Effects, Retention, Carrying, Measures, Protocol):
    """Everything together."""

    @property
    def identity(self) -> Identity:
        """Which database this is: the same for every process at it, and no other's."""
        ...

    async def watch(self, on_due: Callable[[], None]) -> Unwatch:
        """Call when a run may have become due, if the database can tell; returns how to stop that.

        It may call too often and it may miss some: whoever waits for runs also looks by itself.
        """
        ...

    async def close(self) -> None:
        """Let go of files and connections. Runs still held are left for others to take over."""
        ...

    async def check(self) -> Sequence[tuple[str, bool, str]]:
        """What `onward doctor` says about this database: subject, whether it is well, and a sentence."""
        ...
