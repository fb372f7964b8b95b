"""What a log is made of: events as they are stored, places in a log, and what is written at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from onward.model.notification import Telling
from onward.model.row import CallRow, GateRow, RunRow
from onward.model.run import Frozen


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
