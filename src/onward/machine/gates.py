"""Human gates: a question is stored, the run waits, and the answer is a finished step."""

from __future__ import annotations

from onward.machine.action import Action, Record
from onward.machine.definition import Definition
from onward.machine.passing import honouring_a_pause
from onward.machine.route import choices_of, edge_of
from onward.model.event import (
    GateOpened,
    Outcome,
    RunFailed,
    RunWaiting,
    StepFinished,
    StepStatus,
    Transition,
)
from onward.model.ids import place, step_id
from onward.model.run import Gate, Run
from onward.pipeline.graph import Node


def open_gate(definition: Definition, run: Run, path: str, node: Node) -> Action:
    """Store the question, with a choice for each edge."""
    choices = choices_of(definition.graph, node.id)
    if not choices:
        detail = f"human gate {node.id} has no edges to choose from"
        return honouring_a_pause(run, RunFailed(reason="pipeline_error", detail=detail))
    gate = step_id(node.id, run.visits.get(place(node.id, path), 0) + 1, path)
    return Record((GateOpened(gate=gate, node=node.id, text=node.label, choices=choices),))


def at_gate(definition: Definition, run: Run, gate: Gate) -> Action:
    """An undecided gate parks the run; a decided one is a finished step."""
    choice = gate.decided
    if choice is None:
        return honouring_a_pause(run, RunWaiting())
    edge = edge_of(definition.graph, gate.node, choice)
    outcome = Outcome(
        status=StepStatus.SUCCESS, preferred_label=choice.label, suggested_next_ids=(choice.to,)
    )
    answered = {"human.gate.selected": choice.key, "human.gate.label": choice.label}
    if gate.answer:
        answered["human.gate.text"] = gate.answer
    onward = Transition(to=choice.to, reason="gate", edge=edge.order if edge else None)
    return Record(
        (
            StepFinished(
                step=gate.gate, node=gate.node, attempt=1, outcome=outcome, context=answered, next=onward
            ),
        )
    )
