"""What people look at: lists of runs, gates and notifications, and how a database stands in numbers.

None of them reads a log. An inbox of gates is one query. A cursor says where a page of a list ended, as a
text that a caller gives back and does not read. It names an entry by what never changes about it: its time
and its names. So the next page begins right after that entry, whatever was added or changed in between, and
even if the entry is gone.

The outbox has what is to be told outside, written with the append that causes it, and what became of it. A
subscriber wants notifications, and says which kinds. Every process that appends writes a row for each
subscriber, so it does not matter which process created, executes or stopped a run. A subscription expires
when it is not renewed: without receivers the table does not grow. Delivery is at least once. A claim counts
as a try and is good for some time; then the row is due again. Its token is the fence: what came of an older
claim is not recorded.

The numbers are for operators: one look at one instant, cheap with a million old runs. Counts are exact. Those
of finished runs are scans of an index alone, never of the table; all others cost what is queued, held or
lately ended.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from onward.errors import InvalidInput
from onward.model.row import (
    DeliveryState,
    GateRow,
    NotificationKind,
    RegisteredWorker,
    RunRow,
    WaitingFor,
    waiting_for,
)
from onward.model.run import Frozen, RunStatus
from onward.model.values import LISTED, checked_tags
from onward.store.port.leases import Holder

RELATIVES_MAX = 1_000
AWAITED_US = 60_000_000
"""How far the clocks of processes may differ when it matters which of two runs changed first."""
TEXT_MAX = 200
SEARCHED_MAX = 100_000


class RunPlace(NamedTuple):
    """A run's place in a list: nothing that happens to it changes it."""

    created_at_us: int
    id: str


class Listed(msgspec.Struct, frozen=True):
    """A row in a list, and who holds the run."""

    row: RunRow
    holder: Holder | None

    @property
    def cursor(self) -> str:
        """Where a list that goes on after this run begins."""
        return write_cursor(RunPlace(self.row.created_at_us, self.row.id))


class RunQuery(msgspec.Struct, frozen=True):
    """Which runs to list, newest first by creation: those that fit every filter that is given.

    `text` is part of the id, the display id, the pipeline or the detail, whatever the case of its ASCII
    letters. Such a search may end after the newest SEARCHED_MAX runs that fit the other filters (for each
    status and reason that is given). `after` is the cursor of a run (`Listed.cursor`): the list continues
    with the next older one. `tags`: runs that have all of them. `chat`: those that were given this chat.
    `since_us`: those that were created then or later.
    """

    statuses: tuple[RunStatus, ...] = ()
    pipeline: str | None = None
    limit: int = 50
    reasons: tuple[str, ...] = ()
    parent: str | None = None
    text: str | None = None
    after: str | None = None
    tags: tuple[str, ...] = ()
    chat: str | None = None
    since_us: int | None = None

    def __post_init__(self) -> None:
        LISTED.check(self.limit, "limit")
        if len(self.text or "") > TEXT_MAX:
            raise InvalidInput(
                f"the text to look for has more than {TEXT_MAX} characters; use a shorter one."
            )
        checked_tags(self.tags)
        if self.after is not None:
            read_cursor(self.after, RunPlace)

    @property
    def place(self) -> RunPlace | None:
        """The place of the run that the list continues after."""
        return None if self.after is None else read_cursor(self.after, RunPlace)


def lowered(text: str) -> str:
    """The text with its ASCII letters in lower case: the same on every store, whatever its language."""
    return text.encode().lower().decode()


class RunHead(NamedTuple):
    """Where a run's log ends, how the run stands, and the number of its newest change."""

    id: str
    head: int
    status: RunStatus
    changed: int
    holder: Holder | None


class ChangedRun(NamedTuple):
    """A run as it is now, and the number of its newest change."""

    listed: Listed
    changed: int


class Changes(NamedTuple):
    """A page of what changed. `next` is where the following page begins: all changes up to it are here, or
    were on a page before it."""

    runs: Sequence[ChangedRun]
    next: int


class Runs(Protocol):
    """Finding runs.

    A *change* of a run is its creation, another status, and a gate that opens or closes; a step in passing is
    none. Changes are numbered for the whole database, in an order in which they can be followed: below a
    number that was given out by `changed` or `change_number`, nothing appears any more. A run has the number
    of its newest change alone: whoever follows them sees each run as it is, and not what it was in between.
    """

    async def find(self, wanted: str) -> Sequence[Listed]:
        """The run with this id; if there is none, runs by display id; if there is none, by prefix of either.

        An id comes first, so that what names one run exactly never means another.
        """
        ...

    async def list(self, query: RunQuery) -> Sequence[Listed]:
        """Runs, newest first."""
        ...

    async def heads(self, ids: Collection[str]) -> Mapping[str, RunHead]:
        """The ends of these runs' logs, by id; those that are not there are left out."""
        ...

    async def changed(self, after: int, limit: int) -> Changes:
        """The runs whose newest change has a number above `after`, in the order of these.

        Those that were changed in one transaction come together, so there may be more than `limit`. Where
        numbers are those of transactions, a change waits for older transactions that still write.
        """
        ...

    async def change_number(self) -> int:
        """The number up to which all changes can be read now: where to begin to follow them.

        A number that is above this one is from another database, or from before this one was restored.
        """
        ...

    async def of_chats(self, chats: Collection[str]) -> Mapping[str, Listed]:
        """The newest run that does the work of each chat: no other run's steps manage it, and no model reads
        a message in it. Chats without one are left out."""
        ...

    async def relatives(self, run_id: str) -> Sequence[Listed]:
        """The forks of this run and the runs that its steps manage, oldest first; at most RELATIVES_MAX."""
        ...

    async def awaited(self, reason: str) -> Sequence[tuple[str, str]]:
        """Runs that wait, or were interrupted for this reason, each with a run that its steps manage and that
        has ended since then, or up to AWAITED_US before; at most RELATIVES_MAX.

        Whether it waits for that one is in its log.
        """
        ...

    async def held(self) -> Sequence[Listed]:
        """Every run that a process holds, whether that process is alive or not."""
        ...

    async def count(self) -> Mapping[RunStatus, int]:
        """How many runs there are in each status."""
        ...


class GatePlace(NamedTuple):
    """A gate's place in a list: nothing that happens to it changes it."""

    opened_at_us: int
    run_id: str
    gate: str


class GateQuery(msgspec.Struct, frozen=True):
    """Which open gates to list, oldest first; `after` the gate that a cursor names, if there is one.

    Of all runs, of one run, or of those that were given a chat.
    """

    pipeline: str | None = None
    after: str | None = None
    limit: int = 50
    run_id: str | None = None
    chat: str | None = None

    def __post_init__(self) -> None:
        LISTED.check(self.limit, "limit")
        if self.after is not None:
            read_cursor(self.after, GatePlace)

    @property
    def place(self) -> GatePlace | None:
        """The place of the gate that the list continues after."""
        return None if self.after is None else read_cursor(self.after, GatePlace)


def gate_cursor(row: GateRow) -> str:
    """Where a list that continues after this gate begins."""
    return write_cursor(GatePlace(row.opened_at_us, row.run_id, row.gate))


class Gates(Protocol):
    """Finding questions."""

    async def open(self, query: GateQuery) -> Sequence[GateRow]:
        """The gates that are open, oldest first, whatever the status of their runs."""
        ...

    async def of(self, run_id: str) -> Sequence[GateRow]:
        """Every gate of a run, open or not, oldest first."""
        ...


class Delivery(Frozen, frozen=True, kw_only=True):
    """A notification on its way to a subscriber.

    `token` counts its claims, `tries` those since it was last asked for. `response` is the HTTP status, or
    the exit code of a command; `error` says why the last try failed.
    """

    id: str
    subscriber: str
    run_id: str
    seq: int
    kind: NotificationKind
    body: str
    created_at_us: int
    state: DeliveryState
    token: int
    tries: int
    due_at_us: int | None = None
    tried_at_us: int | None = None
    delivered_at_us: int | None = None
    response: int | None = None
    error: str = ""


class Attempted(NamedTuple):
    """What came of a try. With `wait_us` it is made again after that time."""

    state: DeliveryState
    response: int | None = None
    error: str = ""
    wait_us: int | None = None


class DeliveryPlace(NamedTuple):
    """A place in the list of notifications: nothing that happens to one changes it."""

    created_at_us: int
    id: str
    subscriber: str


class DeliveryQuery(msgspec.Struct, frozen=True):
    """Which notifications to list, newest first; `after` the one that a cursor names."""

    run_id: str | None = None
    state: DeliveryState | None = None
    after: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        LISTED.check(self.limit, "limit")
        if self.after is not None:
            read_cursor(self.after, DeliveryPlace)

    @property
    def place(self) -> DeliveryPlace | None:
        """The place of the notification that the list continues after."""
        return None if self.after is None else read_cursor(self.after, DeliveryPlace)


def delivery_cursor(delivery: Delivery) -> str:
    """Where a list that continues after this notification begins."""
    return write_cursor(DeliveryPlace(delivery.created_at_us, delivery.id, delivery.subscriber))


class Outbox(Protocol):
    """Notifications on their way. Times are the database's, but for when a notification was created."""

    async def subscribe(
        self, subscriber: str, kinds: Sequence[NotificationKind], *, for_us: int, renew_us: int = 0
    ) -> None:
        """Want notifications of these kinds from now on, for this long.

        Nothing is written if the subscriber wants the same already, and for longer than `renew_us`.
        """
        ...

    async def claim(self, subscriber: str, *, limit: int, lease_us: int) -> Sequence[Delivery]:
        """Begin a try of what is due, oldest first; nobody else gets it until the lease is over."""
        ...

    async def record(self, claimed: Delivery, attempted: Attempted) -> None:
        """Store what came of a claimed try, if no newer one has begun."""
        ...

    async def waiting(self, subscriber: str) -> int:
        """How many notifications are still to be delivered."""
        ...

    async def read(self, query: DeliveryQuery) -> Sequence[Delivery]:
        """Notifications, newest first."""
        ...

    async def retry(self, id: str) -> Sequence[Delivery]:
        """Let a notification be due now, with no tries so far, whatever became of it; returns it for each
        subscriber that has it."""
        ...


HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US


class Stand(NamedTuple):
    """How runs stand: their status, why, and whether a person may resume them."""

    status: RunStatus
    reason: str
    recoverable: bool


class EndedRuns(NamedTuple):
    """How many runs came to an end lately."""

    hour: int
    day: int


class HeldRuns(NamedTuple):
    """A process that holds runs; stalled ones are those that it cannot be at work on any more."""

    owner: str
    runs: int
    stalled: int


class Stuck(NamedTuple):
    """A due run that could not be claimed: how often that failed, when it did last, and why."""

    run: str
    failures: int
    failed_at_us: int
    why: str


class Undelivered(NamedTuple):
    """Notifications that wait, since when the oldest does by its writer's clock, and that were given up."""

    waiting: int = 0
    failed: int = 0
    oldest_us: int | None = None


NONE_UNDELIVERED = Undelivered()
STUCK_MAX = 100
NEEDS_MAX = 10_000


class Measured(msgspec.Struct, frozen=True):
    """One look. `due` runs wait for a worker now, `later` ones for their time; `at_us` is the instant.

    `oldest_due_us` is since when the oldest due run has waited. `size` is in bytes, with what is beside the
    tables: indexes, logs that are not merged yet, space that is free for new rows. Of `stuck` runs the latest
    STUCK_MAX are there.
    """

    at_us: int
    runs: Mapping[Stand, int]
    due: int
    later: int
    oldest_due_us: int | None
    holdings: tuple[HeldRuns, ...]
    ended: Mapping[RunStatus, EndedRuns]
    size: int
    stuck: tuple[Stuck, ...] = ()
    needs: Mapping[str, int] = msgspec.field(default_factory=dict)
    """How many runs at the front of the queue have which needs, as they are stored."""
    workers: tuple[RegisteredWorker, ...] = ()
    undelivered: Undelivered = NONE_UNDELIVERED

    @property
    def unserved(self) -> Mapping[WaitingFor, int]:
        """How many due runs wait for what no live worker has; of the first NEEDS_MAX in the queue."""
        found = Counter[WaitingFor]()
        for needs, number in self.needs.items():
            waiting = waiting_for(needs.split(), self.workers)
            if waiting is not None:
                found[waiting] += number
        return found

    @property
    def statuses(self) -> Mapping[RunStatus, int]:
        """Runs by status alone; every status is there."""
        found = dict.fromkeys(RunStatus, 0)
        for stand, number in self.runs.items():
            found[stand.status] += number
        return found

    @property
    def recoverable(self) -> int:
        return sum(number for stand, number in self.runs.items() if stand.recoverable)

    @property
    def held(self) -> int:
        return sum(holding.runs for holding in self.holdings)

    @property
    def stalled(self) -> int:
        return sum(holding.stalled for holding in self.holdings)

    @property
    def queue_age_s(self) -> float:
        """How long the oldest due run has waited; 0 when none does."""
        return 0.0 if self.oldest_due_us is None else max(0, self.at_us - self.oldest_due_us) / 1_000_000


class Measures(Protocol):
    """Numbers for operators."""

    async def measure(self) -> Measured:
        """How the database stands, as one consistent look that blocks no other process."""
        ...

    async def note_stuck(self, run_id: str, why: str) -> None:
        """Note that a due run could not be claimed. Once its log has grown, the note says nothing."""
        ...


P = TypeVar("P", bound=tuple[int | str, ...])
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
"""The integers that every database has."""


def write_cursor(place: tuple[int | str, ...]) -> str:
    """The cursor of the entry at this place: its time, then its names."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def read_cursor(cursor: str, place: type[P]) -> P:
    """The place that a cursor names; refuses a text that is no cursor of such a list."""
    try:
        found = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        read = msgspec.json.decode(found, type=place)
        if not all(isinstance(one, str) or INTEGER_MIN <= one <= INTEGER_MAX for one in read):
            raise ValueError(cursor)  # no database has such a number
        return read
    except (ValueError, msgspec.MsgspecError):
        raise InvalidInput(
            "the cursor is not one of this list; use the cursor of the last entry, or start without one."
        ) from None
