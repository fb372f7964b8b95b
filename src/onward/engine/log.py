"""Runs as their log has them: read and folded, and events on their way there.

- `RequestTerms`: the key of a request, under which it counts once however often it is sent, and the head of
  the log that it was decided for.
- Reading: fold what the log says, from the newest snapshot on, and check the hash chain on the way.
- Without secrets: what a step says and what people say is redacted once, before events are made of it: the
  log, its hashes, receipts, files and exports then agree. Fields that name something (a step, a node, a path,
  a hash) are not changed: the run could not be continued. A pipeline's source is not changed either: its hash
  is its identity, and `validate` warns.
- Writing: events are applied to the run, sealed, and put together with its row. Nothing is written here:
  `journal` does that.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from onward.clock import Clock
from onward.engine.persist import retry_store
from onward.errors import HistoryCorrupt, Refused, RunNotFound
from onward.machine.catalogue import CATALOGUE
from onward.machine.decide.calls import doubtful_step, with_lost_calls
from onward.machine.fold.changes import IllegalEvent
from onward.machine.fold.rows import CALLS, TOLD, call_rows, notifications, run_row
from onward.machine.fold.snapshot import decode_run, encode_run
from onward.machine.fold.steps import ASKING, gate_rows
from onward.machine.lifecycle import apply
from onward.machine.ticks import ticks_text
from onward.model.events import Event, LastOutput, Outcome, PrintedLine, RunClaimed, RunningCall
from onward.model.gate import Choice
from onward.model.ids import own_key
from onward.model.result import Result
from onward.model.row import CallRow, GateRow
from onward.model.run import FOLD_VERSION, Frozen, Run
from onward.redact.redactor import Redactor
from onward.store.codec import check_chain, content_hash, seal, unseal
from onward.store.port import log as logs
from onward.store.port.leases import Holder, Lease


class RequestTerms(msgspec.Struct, frozen=True):
    """How a request is made. The same key again gets the first answer.

    `body` is the request under the key. Its hash is stored with the events that the request wrote, so that
    the key cannot be used for something else; a request that wrote nothing has not used its key. `if_head` is
    the last event that the caller has seen.
    """

    key: str | None = None
    body: bytes | None = None
    if_head: int | None = None

    @property
    def content(self) -> dict[str, bytes]:
        """What is stored of the request: a hash of its body, which may be long and is stored already."""
        if self.key is None or self.body is None:
            return {}
        digest = content_hash(self.body).encode()
        return {content_hash(digest): digest}

    @property
    def refs(self) -> tuple[str, ...]:
        """What an event of the request refers to; it is stored for the event and not read with it."""
        return tuple(f"{logs.KEPT_APART}{name}" for name in self.content)

    def check_head(self, run_id: str, head: int) -> None:
        """Refuse the request if the run has moved on since the head that it names."""
        if self.if_head is not None and self.if_head != head:
            raise Refused(
                "stale_head",
                f"run {run_id} has moved on: the request was made for event {self.if_head}, and its log ends "
                f"at event {head}; look at the run again, then send the request again.",
                details={"run": run_id, "if_head": self.if_head, "head": head},
            )

    def is_of(self, event: logs.StoredEvent) -> bool:
        """Whether the event was written under this key, for the same body."""
        return bool(self.refs) and set(self.refs) <= set(event.refs)

    def check_same(self, first: logs.StoredEvent) -> None:
        """Refuse the key if `first`, an event that was written under it, has another body."""
        if self.refs and not self.is_of(first):
            raise Refused(
                "key_reused",
                f"the key {own_key(self.key or '')!r} was used for another request to run {first.run_id}; "
                "send that request unchanged, or choose a new key.",
                details={"run": first.run_id, "key": own_key(self.key or "")},
            )


NO_TERMS = RequestTerms()


EVENT_BYTES = 100  # what reading an event again costs besides its body, about
READ_ALL = 2**31


class Folded(Frozen, frozen=True):
    """A run and the place in its log that it is the fold of."""

    run: Run
    position: logs.Position
    log_bytes: int = 0
    snapshot_bytes: int = 0
    holder: Holder | None = None
    is_due: bool = True
    """Whether its wake time had come, by the database's clock, when it was loaded."""
    is_repeat: bool = False
    """Whether this answers a request that had been answered before; nothing was written for it."""

    @property
    def lease(self) -> Lease:
        """The lease under which this state was read; only a running run has one."""
        assert self.run.worker is not None
        return Lease(self.run.id, self.run.worker, self.run.token)


class LogReader:
    """Reads runs. Nothing is written."""

    def __init__(self, log: logs.RunLog, clock: Clock) -> None:
        self._log, self._clock = log, clock

    async def load(self, run_id: str) -> Folded:
        """A run as it stands, its hash chain checked from the snapshot on."""
        loaded = await self._log.load(run_id, fold_version=FOLD_VERSION)
        if loaded is None:
            raise RunNotFound(run_id)
        start = from_snapshot(loaded.snapshot)
        if needs_pages(loaded, start):
            # Up to where the row said: the log may have grown since that one consistent read.
            folded = await self._folded_by_pages(start, run_id, loaded.position.seq)
        else:
            folded = fold_tail(start, loaded.tail, run_id)
        return replace(checked_whole(folded, loaded), holder=loaded.holder, is_due=loaded.is_due)

    async def _folded_by_pages(self, start: Folded | None, run_id: str, upto: int) -> Folded | None:
        """Fold a log of any length up to an event; other tasks run between the pages."""
        folded = start
        async for page in self.pages(run_id, after=start.position.seq if start else 0, upto=upto):
            folded = fold_tail(folded, page, run_id)
            await asyncio.sleep(0)
        return folded

    async def pages(self, run_id: str, *, after: int, upto: int) -> AsyncIterator[Sequence[logs.StoredEvent]]:
        """The stored log in pages, behind one event and up to another."""
        while after < upto:
            page = await self._log.read(run_id, after=after, limit=min(logs.TAIL_MAX, upto - after))
            if not page:
                return
            yield page
            after = page[-1].seq

    async def load_at(self, run_id: str, seq: int) -> Folded:
        """A run as it stood after event `seq`."""
        folded = await self._folded_by_pages(None, run_id, seq)
        if folded is None or folded.position.seq != seq:
            raise RunNotFound(run_id)
        return folded

    async def read(self, run_id: str, *, after: int = 0, limit: int = READ_ALL) -> Sequence[logs.StoredEvent]:
        """The stored log."""
        return await self._log.read(run_id, after=after, limit=limit)

    async def tail(self, folded: Folded, count: int) -> Sequence[logs.StoredEvent]:
        """The last `count` events up to where `folded` stands."""
        run_id, seq = folded.run.id, folded.position.seq
        after = max(0, seq - count)
        if after == seq:
            return ()
        return await retry_store(self._clock, lambda: self._log.read(run_id, after=after, limit=seq - after))

    async def catch_up(self, folded: Folded) -> Folded:
        """The same run with whatever has been appended since."""
        run_id, seq = folded.run.id, folded.position.seq
        tail = await retry_store(self._clock, lambda: self._log.read(run_id, after=seq, limit=READ_ALL))
        return fold_tail(folded, tail, run_id) or folded


def checked_whole(folded: Folded | None, loaded: logs.Loaded) -> Folded:
    """The fold, if it covers the log up to where the row says that it ends."""
    if folded is None or folded.position != loaded.position:
        why = "the log does not end where the run's row says"
        raise HistoryCorrupt(loaded.row.id, loaded.position.seq, why)
    return folded


def needs_pages(loaded: logs.Loaded, start: Folded | None) -> bool:
    """Whether a log has to be read page by page: it is too long, or its snapshot cannot be decoded."""
    return loaded.is_cut or (loaded.snapshot is not None and start is None)


def from_snapshot(snapshot: logs.Snapshot | None) -> Folded | None:
    """The run that a snapshot holds; None if there is none, or it cannot be decoded."""
    if snapshot is None:
        return None
    run = decode_run(snapshot.body)
    if run is None:
        return None
    return Folded(run, logs.Position(snapshot.seq, snapshot.hash), 0, len(snapshot.body))


def fold_tail(start: Folded | None, tail: Sequence[logs.StoredEvent], run_id: str) -> Folded | None:
    """Fold the events after `start`, checking that each stands where its hash says."""
    if not tail:
        return start
    position = check_chain(start.position if start else logs.ORIGIN, tail)
    run = start.run if start else None
    log_bytes = start.log_bytes if start else 0
    for stored in tail:
        try:
            run = apply(run, unseal(stored), run_id=run_id, at_us=stored.at_us, token=stored.token)
        except IllegalEvent as error:
            raise HistoryCorrupt(stored.run_id, stored.seq, str(error)) from None
        log_bytes += len(stored.body) + EVENT_BYTES
    assert run is not None
    return Folded(run, position, log_bytes, start.snapshot_bytes if start else 0)


SNAPSHOT_BYTES_MIN = 16 * 1024
BESIDE = ASKING | CALLS | TOLD
"""The events that are written with more than themselves and their run's row."""


def applied(
    run: Run | None, events: Sequence[Event], *, run_id: str, at_us: int
) -> tuple[Run, Sequence[Event]]:
    """The run after `events`, and what to write: they close the calls that they end."""
    events = with_lost_calls(run, events)
    for event in events:
        token = event.token if isinstance(event, RunClaimed) else (run.token if run else 0)
        run = apply(run, event, run_id=run_id, at_us=at_us, token=token)
    assert run is not None
    return run, events


def sealed(
    run: Run,
    events: Sequence[Event],
    *,
    after: logs.Position,
    token: int,
    at_us: int,
    full: bool,
    before: Folded | None = None,
    blobs: Mapping[str, bytes] | None = None,
    terms: RequestTerms = NO_TERMS,
) -> tuple[logs.Write, Folded]:
    """The write of these events, with a snapshot if the log has grown enough, and the run after it.

    `token` is the run's before them.
    """
    ready = seal(run.id, after, events, token=token, at_us=at_us)
    records, values, head = ready.records, ready.blobs, ready.head
    if terms.key is not None and terms.refs:  # a step has neither, and each pays for what is asked here
        records = tuple(replace(record, refs=(*record.refs, *terms.refs)) for record in records)
        values = {**values, **terms.content}
    log_bytes = (before.log_bytes if before else 0) + ready.size + EVENT_BYTES * len(records)
    snapshot_bytes = before.snapshot_bytes if before else 0
    snapshot: logs.Snapshot | None = None
    if before is not None and log_bytes > max(SNAPSHOT_BYTES_MIN, snapshot_bytes) and not run.is_final:
        body = encode_run(run)
        snapshot = logs.Snapshot(head.seq, head.hash, FOLD_VERSION, body)
        log_bytes, snapshot_bytes = 0, len(body)
    gates: tuple[GateRow, ...] = ()
    calls: tuple[CallRow, ...] = ()
    told, pipeline = None, ""
    if not BESIDE.isdisjoint(map(type, events)):  # nearly all steps write events alone
        known = before.run if before else None
        kinds, pipeline = {*map(type, events)}, run.pipeline
        if not ASKING.isdisjoint(kinds):
            gates = gate_rows(known, events, run, at_us)
        if not CALLS.isdisjoint(kinds):
            calls = call_rows(known, events)
        if not TOLD.isdisjoint(kinds):
            told = notifications(events, run, after=after.seq, at_us=at_us)
    row = run_row(run) if full else None
    write = logs.Write(
        run_id=run.id,
        after=after,
        head=head,
        records=records,
        at_us=at_us,
        next_node=run.branches[""].next_node,
        doubtful=doubtful_step(run) if row is None else row.doubtful,
        steps_finished=run.steps_finished,
        tokens=run.tokens,
        cost_micro=run.cost_micro,
        ticks=ticks_text(run) if row is None else row.ticks,
        row=row,
        gates=gates,
        calls=calls,
        pipeline=pipeline,
        notifications=told,
        blobs={**values, **blobs} if blobs else values,
        snapshot=snapshot,
    )
    return write, Folded(run, head, log_bytes, snapshot_bytes)


EventT = TypeVar("EventT", bound=Event)
SAID: Mapping[type[msgspec.Struct], tuple[str, ...]] = {
    **{kind: row.said for kind, row in CATALOGUE.items()},
    Outcome: ("preferred_label", "suggested_next_ids", "notes", "failure_reason"),
    LastOutput: ("lines", "error", "traceback"),
    RunningCall: ("where", "about"),
    PrintedLine: ("text",),
    Choice: ("label", "data"),
}
"""The fields that hold what steps and people say, of events and of the parts of such fields."""


def redacted_events(redactor: Redactor, events: Sequence[Event]) -> Sequence[Event]:
    """The same events without secrets."""
    if redactor.is_empty:
        return events
    return [_struct(redactor, event) for event in events]


def redacted_event(redactor: Redactor, event: EventT) -> EventT:
    """The same event without secrets."""
    return event if redactor.is_empty else cast("EventT", _struct(redactor, event))


def _struct(redactor: Redactor, struct: Any) -> Any:
    changes = {}
    for name in SAID.get(type(struct), struct.__struct_fields__):  # of a part without a row, all
        if before := getattr(struct, name):
            after = _value(redactor, before)
            if after is not before and after != before:
                changes[name] = after
    return replace(struct, **changes) if changes else struct


def _value(redactor: Redactor, value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return _struct(redactor, value)
    if isinstance(value, tuple):
        return tuple(_value(redactor, one) for one in value)
    if isinstance(value, bytes):
        return redactor.redact_bytes(value)
    return redactor.redact_value(value)


def redacted_result(redactor: Redactor, result: Result) -> Result:
    """The same result without secrets. Its artifacts are redacted when they are stored."""
    if redactor.is_empty:
        return result
    redact = redactor.redact
    changes: dict[str, Any] = {}
    for name in ("notes", "failure_reason", "response", "preferred_label"):
        text = getattr(result, name)
        if text and (clean := redact(text)) is not text:
            changes[name] = clean
    for name in ("context_updates", "log", "suggested_next_ids"):
        value = getattr(result, name)
        if value and (clean := redactor.redact_value(value)) is not value:
            changes[name] = clean
    return dataclasses.replace(result, **changes) if changes else result
