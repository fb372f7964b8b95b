"""What a database keeps, forgets and takes in: content, registered pipelines, and whole runs.

- `Blobs`: content by its hash: definitions, large values and artifacts.
- `Pipelines`: registered names, and the versions of their sources, which are such content.
- `Retention`: which runs could be forgotten, and which other runs still need them. The engine decides what
  may go. A store gives the facts and makes sure, in the transaction that deletes, that nothing has changed
  since.
- `Carrying`: runs that come from another database: whole, with a log that was written elsewhere.
- `Backfill`: runs from before a migration, which could not fill in what only the fold of a log knows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from onward.model.chat import Message
from onward.model.row import GateRow
from onward.model.run import Frozen, RunStatus
from onward.store.port.leases import Effect
from onward.store.port.log import Position, StoredEvent, Write


class Swept(NamedTuple):
    """How many blobs were deleted, and how many stored bytes they had."""

    blobs: int
    bytes: int

    def plus(self, other: Swept) -> Swept:
        return Swept(self.blobs + other.blobs, self.bytes + other.bytes)


NOTHING_SWEPT = Swept(0, 0)


class Blobs(Protocol):
    """Content by its hash. A write to a log stores the content that it brings by itself."""

    async def find(self, hash: str) -> bytes | None:
        """The content with this BLAKE3, or None."""
        ...

    async def find_many(self, hashes: Collection[str]) -> Mapping[str, bytes]:
        """The contents that are there, by their hashes."""
        ...

    async def put(self, blobs: Mapping[str, bytes], *, at_us: int) -> None:
        """Store content before the run that refers to it; it stays at least as long as any other does."""
        ...

    async def sweep(self, before_us: int, limit: int) -> Swept:
        """Delete up to `limit` blobs that nothing refers to and that were not touched since `before_us`.

        No clock decides whether content that is referred to stays. Blobs are marked, then references are
        looked for again, and then those that still have the mark are deleted. A write that uses a blob takes
        the mark off in its own transaction, or stores the content again if it is gone by then.
        """
        ...


class RegisteredPipeline(NamedTuple):
    """A name. New runs get the version `enabled`; None if the name was removed. `newest` is the last version.

    `changed_by` and `changed_at_us`: who enabled a version or removed the name last, and when.
    """

    name: str
    enabled: int | None
    newest: int
    changed_by: str
    changed_at_us: int


class RegisteredVersion(NamedTuple):
    """A version of a pipeline, which never changes. `hash` names its source; `file` is where that was."""

    name: str
    version: int
    hash: str
    file: str
    added_by: str
    added_at_us: int


class Added(NamedTuple):
    """A version that was added, or was there already, and the name as it is then."""

    pipeline: RegisteredPipeline
    version: RegisteredVersion


class NewSource(msgspec.Struct, frozen=True):
    """A source to be registered under a name. `hash` is the BLAKE3 of its `content`."""

    name: str
    hash: str
    content: bytes
    file: str
    by: str


class Pipelines(Protocol):
    """Registered pipelines. Every call can be repeated when its reply was lost.

    The source of a version is never collected while its name is registered.
    """

    async def add(self, new: NewSource, *, at_us: int, enables: bool = True) -> Added:
        """Store a source as the next version of its name; one that is there already is the same version.

        The version is enabled; without `enables`, only if none is. A removed name is registered again.
        """
        ...

    async def enable(self, name: str, version: int, *, by: str, at_us: int) -> RegisteredPipeline | None:
        """Choose the version that new runs get. A removed name stays removed. The name as it is then.

        The version must be there; none ever goes.
        """
        ...

    async def remove(self, name: str, *, by: str, at_us: int) -> RegisteredPipeline | None:
        """Take the name away; its versions keep their numbers. The name as it is then, None if unknown."""
        ...

    async def find(self, name: str) -> RegisteredPipeline | None:
        """The name, also if it was removed; None if it was never registered."""
        ...

    async def list(self, *, after: str = "", limit: int) -> Sequence[RegisteredPipeline]:
        """The registered names after `after`, in their order; none that was removed."""
        ...

    async def versions(
        self, name: str, *, upto: int | None = None, limit: int
    ) -> Sequence[RegisteredVersion]:
        """The versions of a name, newest first, from `upto` on."""
        ...


class Kin(Frozen, frozen=True, kw_only=True):
    """A run, and the runs it is related to: forked from, managed by, restarted from, and continued as."""

    id: str
    head: int
    status: RunStatus
    parent: str | None = None
    successor: str | None = None
    manager: str | None = None
    restart_of: str | None = None

    @property
    def is_final(self) -> bool:
        return self.status in (RunStatus.COMPLETED, RunStatus.CANCELLED)


class Expiry(msgspec.Struct, frozen=True):
    """Runs in these statuses that nothing has happened to since `before_us`, without the `keep` newest."""

    statuses: tuple[RunStatus, ...]
    before_us: int
    keep: int = 0


class Retention(Protocol):
    """Forgetting runs."""

    async def expired(self, expiry: Expiry) -> Sequence[Kin]:
        """The runs that are old enough, oldest first."""
        ...

    async def attached(self) -> Sequence[Kin]:
        """The runs that may need others: all that are not final, and all forks; in no order."""
        ...

    async def delete(self, runs: Sequence[Kin]) -> Sequence[str]:
        """Delete runs with all that is theirs, in this order and one transaction; the ids that are gone now.

        Theirs are also the effects whose keys begin with the run's id and a `/`, and the chat that a run has
        if it was given none. What it said in another chat stays there.

        One stays if its log has grown, if a process holds it, or if a fork stands on it.
        """
        ...


ARRIVED = "arrived"


class Arrival(msgspec.Struct, frozen=True):
    """A run to take in. `write` has its row, its end and its first records; `rest` gives those after them,
    a few at a time, and again from their beginning if it is called again."""

    write: Write
    rest: Callable[[], Iterator[Sequence[StoredEvent]]]
    effects: Sequence[Effect] = ()
    messages: Sequence[Message] = ()
    """Those of its calls: ended, without chunks, and with their text stored as content."""

    @property
    def message_content(self) -> set[str]:
        """The hashes of the text of its messages."""
        return {message.content for message in self.messages if message.content is not None}

    @property
    def append_id(self) -> str:
        """The same run again is the same request."""
        return f"{ARRIVED} {self.write.head.hash.hex()}"


class Carrying(Protocol):
    """Taking in runs of another database. Taking them elsewhere needs nothing but reading."""

    async def receive(self, arrival: Arrival) -> None:
        """Store a run that no process holds, all of it or nothing; a success if this very log is there.

        Its id must be free and what it was forked from must be there. No process is at its effects any more:
        one that has no result is in doubt. One whose key is taken stays as it is.
        Its messages stand at the end of their chats, in their order.
        """
        ...


class Filling(msgspec.Struct, frozen=True):
    """What the log of a run says up to `position`: the columns and rows that its row lacks."""

    run_id: str
    position: Position
    doubtful: str | None
    gates: tuple[GateRow, ...]
    tokens: int = 0
    cost_micro: int = 0
    ticks: str = ""

    @property
    def columns(self) -> dict[str, str | int | None]:
        """The columns of the run's row."""
        return {
            "doubtful": self.doubtful,
            "tokens": self.tokens,
            "cost_micro": self.cost_micro,
            "ticks": self.ticks,
        }


class Backfill(Protocol):
    """The list of runs to fill in; it is empty for good soon after a migration."""

    async def missing(self) -> Sequence[str]:
        """The runs that are not filled in yet."""
        ...

    async def fill(self, filling: Filling) -> bool:
        """Write what was missing and take the run off the list; False if its log has grown since."""
        ...

    async def skip(self, run_id: str) -> None:
        """Take a run off the list whose log cannot be read."""
        ...
