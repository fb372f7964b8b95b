"""The statuses of a run, and the fold: what a log means.

`RUN` says which events may happen in each status and where they lead; it is a use of `catalogue`, and
nothing else assigns a status. A pair that is absent is refused (`IllegalEvent`). `apply` is the only
way a run's state comes about. `docs/state-machine.md` is generated from these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from onward.machine.catalogue import CATALOGUE, Ends, Fold
from onward.machine.fold.calls import HELD
from onward.machine.fold.changes import IllegalEvent
from onward.machine.fold.runs import run_created
from onward.model.call import AttemptHeld
from onward.model.events import (
    AttemptInterrupted,
    Event,
    RunClaimed,
    RunCreated,
    RunForked,
    RunInterrupted,
    RunPaused,
    RunQueued,
    RunResumed,
    RunWaiting,
)
from onward.model.ids import branch_of, is_in_step, step_of_gate
from onward.model.run import OpenCall, Run, RunStatus

FIRST: Mapping[type[Event], RunStatus] = {
    kind: row.moves[None] for kind, row in CATALOGUE.items() if None in row.moves
}
"""The first event of a log, when there is no status yet."""
RUN: Mapping[RunStatus, Mapping[type[Event], RunStatus]] = {
    status: {kind: row.moves[status] for kind, row in CATALOGUE.items() if status in row.moves}
    for status in RunStatus
}
"""The events that may happen in a status, and the status that each leads to."""


# -- what an event ends: open calls, and what they asked -------------------------------------------------
_ENDS: Mapping[type[Event], Ends] = {
    kind: row.ends for kind, row in CATALOGUE.items() if row.ends is not Ends.NOTHING
}


def ends_calls(event: Event) -> Callable[[str], bool] | None:
    """Of which steps an event ends the open calls; None if of none."""
    ends = _ENDS.get(type(event))
    if ends is None:  # nearly always
        return None
    if ends is Ends.STEP:
        ended = event.step  # type: ignore[attr-defined]
        return lambda step: step == ended
    if ends is Ends.BRANCH:
        branch = event.branch  # type: ignore[attr-defined]
        return lambda step: branch_of(step) == branch or step.startswith(f"{branch}/")
    return lambda step: True


def open_calls(run: Run, of: Callable[[str], bool]) -> Iterator[tuple[str, str, OpenCall]]:
    """The calls that are open in these steps: step, call, and what began."""
    for step, opened in run.open_steps.items():
        if opened.calls is not None and opened.calls.open and of(step):
            for call, begun in opened.calls.open.items():
                yield step, call, begun


_LETS_FLOWS_ASK: frozenset[type[Event]] = frozenset(
    {AttemptHeld, AttemptInterrupted, RunClaimed, RunInterrupted, RunPaused, RunQueued, RunWaiting}
)
"""What ends the attempt of a flow whose questions stay open: it continues later and finds the answers."""


def ended_gates(run: Run, event: Event) -> list[str]:
    """The open gates of the attempts that an event ends. What a held attempt asked stays open, and so does
    what a flow asks while it is only not executed.

    A person's decision about a held step ends its attempt, too.
    """
    ended = ends_calls(event)
    if isinstance(event, RunResumed):
        ended = None if event.action is None else lambda step: step == event.step
    if ended is None:
        return []
    keeps_held = _ENDS.get(type(event)) is Ends.RUN
    kept = event.gates if isinstance(event, AttemptHeld) else ()
    found = []
    for name, gate in run.gates.items():
        if gate.decided is not None or name in kept or not is_in_step(name):
            continue
        opened = run.open_steps.get(step := step_of_gate(name))
        is_held = opened is not None and opened.state is HELD
        if gate.stays and type(event) in _LETS_FLOWS_ASK:
            continue
        if ended(step) and not (keeps_held and is_held):
            found.append(name)
    return found


def check_closed(run: Run, event: Event) -> None:
    """A call is open only while its run is running under the token that began it.

    So is a gate that it opened, unless the attempt is held for the answer. A fork leaves the gates of its
    parent behind.
    """
    of = ends_calls(event)
    left = [call for _, call, _ in open_calls(run, of)] if of is not None else []
    if left:
        raise IllegalEvent(run.status, event, f"{event.kind} leaves calls open: {', '.join(left)}")
    gates = ended_gates(run, event) if run.gates and not isinstance(event, RunForked) else []
    if gates:
        raise IllegalEvent(run.status, event, f"{event.kind} leaves gates open: {', '.join(gates)}")


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
