"""Fold: what a log means. Total over legal events, and the only way a run's state comes about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from onward.machine.catalogue import CATALOGUE, Fold
from onward.machine.fold.changes import IllegalEvent
from onward.machine.fold.runs import run_created
from onward.machine.lifecycle import FIRST, RUN, check_closed
from onward.model.events import Event, RunCreated
from onward.model.run import Run


def apply(run: Run | None, event: Event, *, run_id: str, at_us: int, token: int) -> Run:
    """The run after `event`; refuses what the lifecycle does not allow, and changes nothing else."""
    if run is None:
        if type(event) not in FIRST:
            raise IllegalEvent(None, event)
        assert isinstance(event, RunCreated)
        return run_created(event, run_id=run_id, at_us=at_us)
    kind = type(event)
    status = RUN[run.status].get(kind)
    if status is None:
        raise IllegalEvent(run.status, event)
    if token < run.token:
        raise IllegalEvent(run.status, event, f"{event.kind} carries token {token}, older than {run.token}")
    if run.open_calls or run.gates:
        check_closed(run, event)
    changes = _FOLDS[kind](run, event, at_us)
    if run.id != run_id:
        changes["id"] = run_id  # the prefix of a fork was folded as its parent
    return replace(run, status=status, head=run.head + 1, updated_at_us=at_us, **changes)


def fold(run: Run | None, events: Iterable[tuple[Event, int, int]], *, run_id: str) -> Run | None:
    """Apply `(event, at_us, token)` one after the other."""
    for event, at_us, token in events:
        run = apply(run, event, run_id=run_id, at_us=at_us, token=token)
    return run


_FOLDS: Mapping[type[Event], Fold] = {
    kind: row.fold for kind, row in CATALOGUE.items() if row.fold is not None
}
