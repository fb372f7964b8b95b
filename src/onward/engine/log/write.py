"""Events on their way to the log: applied to the run, sealed, and put together with its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from onward.engine.log.reader import EVENT_BYTES, Folded
from onward.engine.log.terms import NO_TERMS, RequestTerms
from onward.machine.decide.calls import doubtful_step, with_lost_calls
from onward.machine.fold.apply import apply
from onward.machine.fold.rows import CALLS, TOLD, call_rows, notifications, run_row
from onward.machine.fold.snapshot import encode_run
from onward.machine.fold.steps import ASKING, gate_rows
from onward.model.events import Event, RunClaimed
from onward.model.row import CallRow, GateRow
from onward.model.run import FOLD_VERSION, Run
from onward.store.codec import seal
from onward.store.port.log import Position, Snapshot, Write

SNAPSHOT_BYTES_MIN = 32 * 1024
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
    after: Position,
    token: int,
    at_us: int,
    full: bool,
    before: Folded | None = None,
    blobs: Mapping[str, bytes] | None = None,
    terms: RequestTerms = NO_TERMS,
) -> tuple[Write, Folded]:
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
    snapshot: Snapshot | None = None
    if before is not None and log_bytes > max(SNAPSHOT_BYTES_MIN, snapshot_bytes) and not run.is_final:
        body = encode_run(run)
        snapshot = Snapshot(head.seq, head.hash, FOLD_VERSION, body)
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
    write = Write(
        run_id=run.id,
        after=after,
        head=head,
        records=records,
        at_us=at_us,
        next_node=run.branches[""].next_node,
        doubtful=doubtful_step(run) if row is None else row.doubtful,
        steps_finished=run.steps_finished,
        row=row,
        gates=gates,
        calls=calls,
        pipeline=pipeline,
        notifications=told,
        blobs={**values, **blobs} if blobs else values,
        snapshot=snapshot,
    )
    return write, Folded(run, head, log_bytes, snapshot_bytes)
