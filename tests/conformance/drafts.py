"""Writes like those of the engine, for tests of what a store does with them.

A `Draft` is a run as its writer knows it. `then` folds events onto it and seals them with the real codec; it
returns the write, and the draft after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from onward.machine.decide.calls import doubtful_step, with_lost_calls
from onward.machine.fold.rows import call_rows, notifications, run_row
from onward.machine.fold.snapshot import encode_run
from onward.machine.fold.steps import gate_rows
from onward.machine.lifecycle import apply
from onward.machine.ticks import ticks_text
from onward.model.events import (
    Event,
    Outcome,
    RunClaimed,
    RunCreated,
    RunForked,
    RunQueued,
    StepFinished,
    StepStarted,
    StepStatus,
    Transition,
)
from onward.model.run import FOLD_VERSION, Run
from onward.store.codec import seal, unseal
from onward.store.port.leases import Lease
from onward.store.port.log import ORIGIN, Position, Snapshot, StoredEvent, Write
from onward.store.port.store import Store

START_US = 1_700_000_000_000_000
TICK_US = 1_000
ALL = 2**31
_numbers = itertools.count(1)


class Draft(msgspec.Struct, frozen=True):
    """A run, and the position in its log."""

    run: Run
    position: Position

    @property
    def id(self) -> str:
        return self.run.id

    @property
    def lease(self) -> Lease:
        """The lease of the holder in this draft."""
        assert self.run.worker is not None, "no process holds the run in this draft"
        return Lease(self.run.id, self.run.worker, self.run.token)

    def then(
        self,
        *events: Event,
        with_row: bool = True,
        snapshot_version: int | None = None,
        blobs: Mapping[str, bytes] | None = None,
    ) -> tuple[Write, Draft]:
        """The write that appends `events`, and the run after it."""
        at_us = self.run.updated_at_us + TICK_US
        write, draft = _composed(self.id, self.run, self.position, events, at_us, blobs or {})
        if snapshot_version is not None:
            snapshot = Snapshot(*draft.position, snapshot_version, encode_run(draft.run))
            write = replace(write, snapshot=snapshot)
        return write if with_row else replace(write, row=None), draft

    def after(self, tail: Sequence[StoredEvent]) -> Draft:
        """The run after events that others wrote."""
        run, position = self.run, self.position
        for record in tail:
            run = apply(run, unseal(record), run_id=run.id, at_us=record.at_us, token=record.token)
            position = Position(record.seq, record.hash)
        return Draft(run, position)


def creation(
    run_id: str | None = None,
    *,
    at_us: int = START_US,
    owner: str | None = None,
    blobs: Mapping[str, bytes] | None = None,
    **fields: Any,
) -> tuple[Write, Draft]:
    """The write that creates a run, claimed by `owner` if given; `fields` are those of RunCreated."""
    given = {"pipeline": "story", "pipeline_hash": "0" * 64, "start_node": "start", **fields}
    events: list[Event] = [RunCreated(**given)]
    if owner is not None:
        events.append(RunClaimed(token=1, worker=owner))
    return _composed(run_id or f"run-{next(_numbers)}", None, ORIGIN, events, at_us, blobs or {})


def fork(parent: Draft, run_id: str | None = None, /, **context: Any) -> tuple[Write, Draft]:
    """The write that forks `parent` at the position of this draft."""
    point = parent.position
    event = RunForked(
        parent=parent.id, parent_seq=point.seq, parent_hash=point.hash.hex(), by="tests", context=context
    )
    at_us = parent.run.updated_at_us + TICK_US
    return _composed(run_id or f"fork-{next(_numbers)}", parent.run, point, [event], at_us, {})


def _composed(
    run_id: str,
    run: Run | None,
    after: Position,
    events: Sequence[Event],
    at_us: int,
    blobs: Mapping[str, bytes],
) -> tuple[Write, Draft]:
    before, events = run, with_lost_calls(run, events)
    for event in events:
        token = event.token if isinstance(event, RunClaimed) else (run.token if run else 0)
        run = apply(run, event, run_id=run_id, at_us=at_us, token=token)
    assert run is not None
    sealed = seal(run_id, after, events, token=before.token if before else 0, at_us=at_us)
    write = Write(
        run_id=run_id,
        after=after,
        head=sealed.head,
        records=sealed.records,
        at_us=at_us,
        next_node=run.next_node,
        doubtful=doubtful_step(run),
        steps_finished=run.steps_finished,
        tokens=run.tokens,
        cost_micro=run.cost_micro,
        ticks=ticks_text(run),
        row=run_row(run),
        gates=gate_rows(before, events, run, at_us),
        calls=call_rows(before, events),
        pipeline=run.pipeline,
        notifications=notifications(events, run, after=after.seq, at_us=at_us),
        blobs={**sealed.blobs, **blobs},
    )
    return write, Draft(run, write.head)


def step(draft: Draft, /, **context: Any) -> tuple[Event, ...]:
    """The events of one step, started and finished, that leads to the next."""
    visit = draft.run.visits.get("start", 0) + 1
    begun = StepStarted(step=f"start#{visit}", node="start", attempt=1)
    ended = StepFinished(
        step=begun.step,
        node="start",
        attempt=1,
        outcome=Outcome(status=StepStatus.SUCCESS),
        context=context,
        next=Transition(to="start", reason="only edge", edge=0),
    )
    return begun, ended


async def created(store: Store, run_id: str | None = None, **fields: Any) -> Draft:
    """A stored run that no process holds."""
    write, draft = creation(run_id, **fields)
    await store.log.create(write, "creation")
    return draft


async def held(store: Store, run_id: str | None = None, **fields: Any) -> Draft:
    """A stored run that `store` holds."""
    return await created(store, run_id, owner=store.leases.owner, **fields)


async def queued(store: Store, run_id: str | None = None, *, wait_us: int = 0, **fields: Any) -> Draft:
    """A stored run in the queue, due after `wait_us`, which may be negative."""
    draft = await held(store, run_id, **fields)
    at_us = draft.run.updated_at_us + TICK_US
    write, after = draft.then(RunQueued(why="tests", wake_at_us=at_us + wait_us))
    await store.log.append(write, draft.lease)
    return after


async def stepped(store: Store, draft: Draft, /, *, times: int = 1, **context: Any) -> Draft:
    """The run after some more steps, each appended by its holder."""
    for _ in range(times):
        write, after = draft.then(*step(draft, **context), with_row=False)
        await store.log.append(write, draft.lease)
        draft = after
    return draft


async def grown(store: Store, draft: Draft, *, steps: int) -> Draft:
    """The run after `steps` more steps in one append, two events each, without a snapshot."""
    first = draft.run.visits.get("start", 0)
    events: list[Event] = []
    for number in range(first, first + steps):
        begun, ended = step(draft)
        assert isinstance(begun, StepStarted)
        assert isinstance(ended, StepFinished)
        name = f"start#{number + 1}"
        events += [replace(begun, step=name), replace(ended, step=name)]
    write, after = draft.then(*events, with_row=False)
    await store.log.append(write, draft.lease)
    return after


async def requested(store: Store, draft: Draft, *events: Event, append_id: str = "request") -> Draft:
    """The run after a control request appended `events`."""
    write, after = draft.then(*events)
    await store.log.control(draft.id, since=draft.position.seq, append_id=append_id, decide=lambda *_: write)
    return after


async def claimed(store: Store, draft: Draft) -> Draft:
    """The run after `store` claimed it, from a holder or not."""
    claim = RunClaimed(
        token=draft.run.token + 1, worker=store.leases.owner, lost=draft.run.worker is not None
    )
    return await requested(store, draft, claim, append_id=f"claim-{claim.token}")


async def log_of(store: Store, run_id: str) -> Sequence[StoredEvent]:
    """The whole stored log."""
    return await store.log.read(run_id, after=0, limit=ALL)


async def everything_of(store: Store, run_id: str) -> object:
    """Everything a store knows about a run; two of these are equal if nothing was written between them."""
    loaded = await store.log.load(run_id, fold_version=FOLD_VERSION)
    return (loaded, await log_of(store, run_id))
