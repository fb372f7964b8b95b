"""Folding the stops of a run: a run that continues keeps the newest of them, and how many there were."""

from __future__ import annotations

from msgspec.structs import replace

from onward.machine.fold.changes import Changes
from onward.model.run import Run, Stop

STOPS_MAX = 20
NO_STOPS: Changes = {"stops": (), "stops_count": 0}
"""A fork has no stops: those before it are its parent's."""


def stopped(run: Run, at_us: int, reason: str, detail: str, step: str = "") -> Changes:
    """One more stop. It was in `step`, or else in the first step that is open."""
    stop = Stop(
        seq=run.head + 1,
        at_us=at_us,
        reason=reason,
        detail=detail,
        step=step or next(iter(run.open_steps), ""),
        steps=run.steps_finished,
        answers=run.answers,
        cost_micro=run.cost_micro,
    )
    known = _ended(run.stops, at_us, None)
    return {"stops": (*known[1 - STOPS_MAX :], stop), "stops_count": run.stops_count + 1}


def stop_ended(run: Run, at_us: int, by: str | None = None) -> Changes:
    """The newest stop is over; `by` says who ended it, if a person did."""
    return {"stops": _ended(run.stops, at_us, by)}


def _ended(stops: tuple[Stop, ...], at_us: int, by: str | None) -> tuple[Stop, ...]:
    if not stops or stops[-1].ended_at_us is not None:
        return stops
    return (*stops[:-1], replace(stops[-1], ended_at_us=at_us, by=by))
