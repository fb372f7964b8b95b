"""Folding questions and their answers, and the rows by which open questions are found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import asdict, replace

from onward.machine.fold.change import Changes, IllegalEvent, without
from onward.model.events.event import Event
from onward.model.events.gates import GateDecided, GateOpened, GateWithdrawn
from onward.model.events.runs import RunForked
from onward.model.ids import is_in_step, place_of, step_of_gate
from onward.model.row import GateRow
from onward.model.run import AttemptState, Gate, Run, RunStatus

ASKING = frozenset({GateOpened, GateDecided, GateWithdrawn, RunForked})


def opened(run: Run, event: GateOpened, at_us: int) -> Changes:
    if event.gate in run.gates:
        raise IllegalEvent(run.status, event, f"gate {event.gate} is already open")
    changes: Changes = {"gates": {**run.gates, event.gate: _opened(event, at_us)}}
    if is_in_step(event.gate):
        asking = run.open_steps.get(step_of_gate(event.gate))
        if asking is None or asking.state is not AttemptState.OPEN:
            raise IllegalEvent(run.status, event, f"gate {event.gate} has no open attempt that asks")
        return changes
    at = place_of(event.gate)
    return changes | {"visits": run.visits.with_(at, run.visits.get(at, 0) + 1)}


def _opened(event: GateOpened, at_us: int) -> Gate:
    return Gate(**asdict(event), opened_at_us=at_us)  # it has every field of its event


def decided(run: Run, event: GateDecided, at_us: int) -> Changes:
    gate = run.gates.get(event.gate)
    if gate is None or gate.decided is not None:
        raise IllegalEvent(run.status, event, f"gate {event.gate} is not open")
    answered = replace(
        gate,
        decided=event.choice,
        by=event.by,
        answer=event.text,
        rejected=event.rejected,
        expired=event.expired,
    )
    changes: Changes = {"gates": {**run.gates, event.gate: answered}}
    if run.status is RunStatus.WAITING:
        changes["wake_at_us"] = at_us
    return changes


def of_step(run: Run, step: str) -> list[Gate]:
    """The gates that the calls of a step have opened, and that are still known."""
    return [gate for name, gate in run.gates.items() if is_in_step(name) and step_of_gate(name) == step]


def without_step(run: Run, step: str) -> Changes:
    """The gates without those that the calls of a step opened: their answers are not needed any more."""
    gone = {gate.gate for gate in of_step(run, step)}
    return {"gates": {name: gate for name, gate in run.gates.items() if name not in gone}} if gone else {}


def asked_anew(gates: Mapping[str, Gate], at_us: int) -> dict[str, Gate]:
    """The same questions, asked now: after a fork there is as much time to answer as there was then."""
    return {name: _asked_anew(gate, at_us) for name, gate in gates.items()}


def _asked_anew(gate: Gate, at_us: int) -> Gate:
    if gate.decided is not None:
        return gate
    deadline_us = None if gate.deadline_us is None else at_us + gate.deadline_us - gate.opened_at_us
    return replace(gate, opened_at_us=at_us, deadline_us=deadline_us)


def withdrawn(run: Run, event: GateWithdrawn, at_us: int) -> Changes:
    if event.gate not in run.gates:
        raise IllegalEvent(run.status, event, f"gate {event.gate} is not open")
    return {"gates": without(run.gates, event.gate)}


def gate_rows(before: Run | None, events: Sequence[Event], run: Run, at_us: int) -> tuple[GateRow, ...]:
    """The rows of the gates that these events open or close. They lead from `before` to `run`.

    A fork begins with its own event alone, so what it asks anew is what is open in `run`.
    """
    rows: dict[str, GateRow] = {}
    for event in events:
        if type(event) not in ASKING:  # nearly always
            continue
        match event:
            case GateOpened():
                rows[event.gate] = _row(run, _opened(event, at_us))
            case GateDecided(gate=name) | GateWithdrawn(gate=name):
                known = rows.get(name) or _row(run, (before or run).gates[name])
                by = event.by if isinstance(event, GateDecided) else known.decided_by
                rows[name] = replace(known, decided_by=by, closed_at_us=at_us)
            case RunForked():
                rows = {name: _row(run, gate) for name, gate in run.gates.items() if gate.decided is None}
    return tuple(rows.values()) if rows else ()


def note_gates(rows: dict[str, GateRow], before: Run | None, event: Event, run: Run, at_us: int) -> None:
    """Bring the rows of a run's gates up to `event`, which leads from `before` to `run`."""
    if type(event) is RunForked:
        rows.clear()  # what was asked before the fork is its parent's
    rows.update((row.gate, row) for row in gate_rows(before, (event,), run, at_us))


def _row(run: Run, gate: Gate) -> GateRow:
    return GateRow(
        run_id=run.id,
        gate=gate.gate,
        pipeline=run.pipeline,
        node=gate.node,
        text=gate.text,
        about=gate.about,
        type=gate.type,
        choices=gate.choices,
        opened_at_us=gate.opened_at_us,
        deadline_us=gate.deadline_us,
        decided_by=gate.by if gate.decided is not None else None,
    )
