"""Human gates: a question is stored, the run waits, and the answer is a finished step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from onward.errors import InvalidInput
from onward.machine.decide.answers import expiry, has_expired, next_deadline
from onward.machine.definition import Definition
from onward.machine.fold.steps import context_after
from onward.machine.plan.action import Action, Append
from onward.machine.plan.route import next_transition, rejection_transition
from onward.machine.plan.stops import next_step, stop_with
from onward.model.events.gates import Choice, GateOpened
from onward.model.events.runs import RunFailed, RunWaiting
from onward.model.events.steps import Outcome, StepFinished, StepStatus, Transition
from onward.model.result import excerpt, log_lines
from onward.model.run import Branch, Gate, Run
from onward.model.values.namespace import LAST_RESPONSE, as_told
from onward.model.values.references import as_words, expand, find_value
from onward.pipeline.gate.choices import Find, Words, edge_of
from onward.pipeline.gate.questions import question_of
from onward.pipeline.graph import Graph, Node

SELECTED, LABEL, TEXT, DATA = "human.gate.selected", "human.gate.label", "human.gate.text", "human.gate.data"


def open_gate(definition: Definition, run: Run, branch_id: str, node: Node, now_us: int) -> Action:
    """Store the question, with its choices and the time until when it can be answered."""
    branch = run.branches[branch_id]
    try:
        question = question_of(definition.graph, node, _words(branch, node.id), _find(branch, node.id))
    except (ValueError, InvalidInput) as error:
        return stop_with(run, RunFailed(reason="pipeline_error", detail=str(error)))
    opened = GateOpened(
        gate=next_step(run, node.id, branch_id),
        node=node.id,
        text=question.text,
        about=_last_response(branch) if question.about is None else excerpt(question.about),
        choices=question.choices,
        type=question.type,
        default=question.default,
        deadline_us=None if question.timeout_s is None else now_us + _us(question.timeout_s),
        on_timeout=question.on_timeout,
        remind_us=None if question.remind_s is None else _us(question.remind_s),
        metadata=question.metadata,
    )
    return Append((opened,))


def _words(branch: Branch, node_id: str) -> Words:
    """Puts the values of a branch into the texts of its gate."""
    seen = as_told(branch.context, branch.response, node_id)
    return lambda text: expand(text, seen).text


def _find(branch: Branch, node_id: str) -> Find:
    """Gives the values of a branch by their names."""
    return partial(find_value, context=as_told(branch.context, branch.response, node_id))


def _kept_in(texts: list[str], text: str) -> str:
    texts.append(text)
    return text


def _unknown(graph: Graph, branch: Branch, node: Node) -> tuple[str, ...]:
    """A line for each name in the texts of a gate that the context does not have."""
    texts: list[str] = []
    with suppress(ValueError, InvalidInput):  # the pipeline may have changed since it was asked
        question_of(graph, node, partial(_kept_in, texts), _find(branch, node.id))
    seen = as_told(branch.context, branch.response, node.id)
    names = dict.fromkeys(name for text in texts for name in expand(text, seen).unknown)
    return log_lines(
        f"the gate names ${name}, which is not in the context; it stays as it is written" for name in names
    )


def _last_response(branch: Branch) -> str:
    """What was answered last in the branch; a handler may have put it into the context itself."""
    return branch.response or excerpt(as_words(branch.context.get(LAST_RESPONSE)))


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)


def at_gate(definition: Definition, run: Run, branch_id: str, node: Node, gate: Gate, now_us: int) -> Action:
    """An undecided gate parks the run until an answer or its deadline comes; a decided one leads on."""
    if gate.decided is None:
        return unanswered(run, [gate], now_us)
    branch = run.branches[branch_id]
    said = _said(gate, gate.decided, branch.context)
    log = _unknown(definition.graph, branch, node)
    if gate.rejected:
        return _rejected(definition.graph, run, branch_id, node, gate, said, log)
    return _answered(definition.graph, run, branch_id, gate, gate.decided, said, log)


def unanswered(run: Run, gates: Sequence[Gate], now_us: int) -> Action:
    """Wait for an answer to one of these gates; one whose deadline has come is decided by its rule."""
    for gate in gates:
        if has_expired(gate, now_us):
            return Append((expiry(gate),))
    return stop_with(run, RunWaiting(wake_at_us=next_deadline(run)))


def _said(gate: Gate, choice: Choice, before: Mapping[str, Any]) -> dict[str, Any]:
    """What later steps learn of the answer. Words and data belong to their gate: the next answer clears them.

    Every member of the data has a key of its own, too, for conditions.
    """
    said: dict[str, Any] = {SELECTED: choice.key, LABEL: choice.label}
    if gate.answer or TEXT in before:
        said[TEXT] = gate.answer
    if choice.data or DATA in before:
        said |= {key: None for key in before if key.startswith(f"{DATA}.")}
        said |= {DATA: choice.data, **{f"{DATA}.{name}": value for name, value in choice.data.items()}}
    return said


def _answered(
    graph: Graph,
    run: Run,
    branch_id: str,
    gate: Gate,
    choice: Choice,
    said: Mapping[str, Any],
    log: tuple[str, ...],
) -> Action:
    """Take the chosen edge; for free text without one, choose an edge as after any step."""
    if choice.to:
        outcome = Outcome(
            status=StepStatus.SUCCESS, preferred_label=choice.label, suggested_next_ids=(choice.to,)
        )
        words = _words(run.branches[branch_id], gate.node)
        edge = edge_of(graph, gate.node, choice, words)
        onward: Transition | None = Transition(to=choice.to, reason="gate", edge=edge.order if edge else None)
    else:
        outcome = Outcome(status=StepStatus.SUCCESS)
        onward = next_transition(
            graph, gate.node, outcome, context_after(run.branches[branch_id].context, outcome, said, {})
        )
    return Append((_finished(gate, outcome, said, onward, log),))


def _rejected(
    graph: Graph,
    run: Run,
    branch_id: str,
    node: Node,
    gate: Gate,
    said: Mapping[str, Any],
    log: tuple[str, ...],
) -> Action:
    """No, and no edge takes it: a way for failures does, or it is the end of the branch, or of the run."""
    why = f"{gate.by} rejected {gate.gate}"
    if gate.expired:
        why = f"{gate.gate} was not answered in time, which rejects it"
    if gate.answer:
        why += f": {gate.answer}"
    outcome = Outcome(status=StepStatus.FAIL, failure_reason=why)
    onward = rejection_transition(
        graph, node, context_after(run.branches[branch_id].context, outcome, said, {})
    )
    if onward is None and not branch_id:
        return stop_with(run, RunFailed(reason="rejected", detail=why, step=gate.gate))
    return Append((_finished(gate, outcome, said, onward, log),))


def _finished(
    gate: Gate, outcome: Outcome, said: Mapping[str, Any], onward: Transition | None, log: tuple[str, ...]
) -> StepFinished:
    return StepFinished(
        step=gate.gate, node=gate.node, attempt=1, outcome=outcome, context=dict(said), next=onward, log=log
    )
