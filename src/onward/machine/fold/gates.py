"""Folding questions and their answers."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import asdict, replace

from onward.machine.fold.change import Changes, IllegalEvent, without
from onward.model.event import GateDecided, GateOpened, GateWithdrawn
from onward.model.ids import place_of
from onward.model.run import Gate, Run, RunStatus


def opened(run: Run, event: GateOpened, at_us: int) -> Changes:
    if event.gate in run.gates:
        raise IllegalEvent(run.status, event, f"gate {event.gate} is already open")
    at = place_of(event.gate)
    gate = Gate(**asdict(event), opened_at_us=at_us)  # it has every field of its event
    return {
        "gates": {**run.gates, event.gate: gate},
        "visits": run.visits.with_(at, run.visits.get(at, 0) + 1),
    }


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
