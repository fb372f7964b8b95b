"""The rules of the planner's own nodes: human gates, fan-outs and fan-ins.

At a gate a question is stored, the run waits, and the answer is a finished step. At a fan-out one branch
becomes several, and at a fan-in their results are ranked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from onward.errors import InvalidInput
from onward.machine import reasons
from onward.machine.decide.requests import expiry, has_expired, next_deadline
from onward.machine.definition import Definition
from onward.machine.fold.steps import context_after
from onward.machine.plan.action import Action, Append, failed, next_step, passed, stop_with
from onward.machine.plan.route import (
    failure_transition,
    next_transition,
    no_edge,
    rejection_transition,
)
from onward.model import events as ev
from onward.model.context import LAST_RESPONSE, as_seen, as_told, as_words, expand, find_value
from onward.model.gate import Choice, GateOpened
from onward.model.ids import new_branch_id
from onward.model.result import Result, excerpt, log_lines
from onward.model.run import Branch, Gate, Run
from onward.pipeline.condition import resolver
from onward.pipeline.gate import Find, Words, edge_of, question_of
from onward.pipeline.graph import Edge, Graph, Node

SELECTED, LABEL, TEXT, DATA = "human.gate.selected", "human.gate.label", "human.gate.text", "human.gate.data"


def open_gate(definition: Definition, run: Run, branch_id: str, node: Node, now_us: int) -> Action:
    """Store the question, with its choices and the time until when it can be answered."""
    branch = run.branches[branch_id]
    try:
        question = question_of(definition.graph, node, _words(branch, node.id), _find(branch, node.id))
    except (ValueError, InvalidInput) as error:
        return stop_with(run, ev.RunFailed(reason=reasons.PIPELINE_ERROR, detail=str(error)))
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
        f"the gate names ${name}, which is not in the context; the name is left in the text" for name in names
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
    return stop_with(run, ev.RunWaiting(wake_at_us=next_deadline(run)))


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
        outcome = ev.Outcome(
            status=ev.StepStatus.SUCCESS, preferred_label=choice.label, suggested_next_ids=(choice.to,)
        )
        words = _words(run.branches[branch_id], gate.node)
        edge = edge_of(graph, gate.node, choice, words)
        onward: ev.Transition | None = ev.Transition(
            to=choice.to, reason="gate", edge=edge.order if edge else None
        )
    else:
        outcome = ev.Outcome(status=ev.StepStatus.SUCCESS)
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
    outcome = ev.Outcome(status=ev.StepStatus.FAIL, failure_reason=why)
    onward = rejection_transition(
        graph, node, context_after(run.branches[branch_id].context, outcome, said, {})
    )
    if onward is None and not branch_id:
        return stop_with(run, ev.RunFailed(reason=reasons.REJECTED, detail=why, step=gate.gate))
    return Append((_finished(gate, outcome, said, onward, log),))


def _finished(
    gate: Gate,
    outcome: ev.Outcome,
    said: Mapping[str, Any],
    onward: ev.Transition | None,
    log: tuple[str, ...],
) -> ev.StepFinished:
    return ev.StepFinished(
        step=gate.gate, node=gate.node, attempt=1, outcome=outcome, context=dict(said), next=onward, log=log
    )


OPENING = ev.Outcome(status=ev.StepStatus.SUCCESS)
RESULTS = "parallel.results"
BEST_ID, BEST_OUTCOME = "parallel.fan_in.best_id", "parallel.fan_in.best_outcome"
_WORD = re.compile(r"[\w.]*\w")
_RANKS = {"success": 0, "partial_success": 1, "retry": 2, "fail": 3}


def fan_out(definition: Definition, run: Run, branch_id: str, node: Node, now_us: int) -> Action:
    """A branch for every edge whose condition, if it has one, holds."""
    if any(piece.startswith(f"{node.id}#") for piece in branch_id.split("/")):
        # Each branch would open as many again, without end.
        detail = f"a branch of {node.id} leads back to it; route it to the join or to another node"
        return stop_with(run, ev.RunFailed(reason=reasons.PIPELINE_ERROR, detail=detail))
    step = next_step(run, node.id, branch_id)
    edges = _open_edges(definition, run, branch_id, node)
    if not edges:
        return _no_branch(definition, run, branch_id, node, step)
    return Append(
        (
            ev.ParallelStarted(
                step=step,
                node=node.id,
                branches=_branches(step, edges),
                join=definition.joins.get(node.id),
                policy=definition.join_policy(node),
                max_parallel=definition.max_parallel(node),
            ),
        )
    )


def _no_branch(definition: Definition, run: Run, branch_id: str, node: Node, step: str) -> Action:
    """Without edges it is the end of its branch; with edges of which none is open, it fails."""
    edges = definition.graph.outgoing(node.id)
    if not edges:
        return passed(run, branch_id, node, OPENING, None)
    said = f"step {step} cannot open a branch"
    detail = no_edge(said, edges, OPENING.status.value, "", _seen_by(run, branch_id, node))
    return stop_with(run, ev.RunFailed(reason=reasons.NO_WAY_ON, detail=detail, step=step))


def _seen_by(run: Run, branch_id: str, node: Node) -> Mapping[str, Any]:
    return as_seen(context_after(run.branches[branch_id].context, OPENING, {}, {}), node.id)


def _open_edges(definition: Definition, run: Run, branch_id: str, node: Node) -> Sequence[Edge]:
    resolve = resolver(OPENING.status.value, "", _seen_by(run, branch_id, node))
    return [edge for edge in definition.graph.outgoing(node.id) if edge.guard.holds(resolve)]


def _branches(step: str, edges: Sequence[Edge]) -> tuple[ev.BranchPlan, ...]:
    """Named after where they lead; a second edge to the same node is a branch of its own."""
    seen: dict[str, int] = {}
    plans = []
    for edge in edges:
        number = seen[edge.target] = seen.get(edge.target, 0) + 1
        plans.append(
            ev.BranchPlan(path=new_branch_id(step, edge.target, number), to=edge.target, edge=edge.order)
        )
    return tuple(plans)


def fan_in(definition: Definition, run: Run, branch_id: str, node: Node, now_us: int) -> Action:
    """The best result by rule: status, then score, then name. It fails only if every branch did."""
    context = run.branches[branch_id].context
    results = candidates(context)
    best = best_of(results)
    if best is None or best["status"] == "fail":
        why = "every branch failed" if results else f"the context has no {RESULTS}"
        return _fail(definition, run, branch_id, node, f"{node.id} has nothing to choose from: {why}")
    outcome = ev.Outcome(status=ev.StepStatus.SUCCESS)
    changes = chosen(best)
    after = context_after(context, outcome, changes, {})
    return passed(
        run, branch_id, node, outcome, next_transition(definition.graph, node.id, outcome, after), changes
    )


def _fail(definition: Definition, run: Run, branch_id: str, node: Node, why: str) -> Action:
    outcome = ev.Outcome(status=ev.StepStatus.FAIL, failure_reason=why)
    after = context_after(run.branches[branch_id].context, outcome, {}, {})
    onward = failure_transition(definition, node, outcome, after)
    return failed(run, why) if onward is None else passed(run, branch_id, node, outcome, onward)


def candidates(context: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The results of the last fan-out; anything else under that name is ignored."""
    found = context.get(RESULTS)
    if not isinstance(found, list):
        return ()
    return [result for result in found if isinstance(result, dict) and {"id", "status"} <= result.keys()]


def best_of(results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The first in the order of status, score and name."""
    return min(results, key=_rank, default=None)


def _rank(result: Mapping[str, Any]) -> tuple[int, float, str]:
    score = result.get("score")
    number = float(score) if isinstance(score, int | float) and score == score else 0.0
    return _RANKS.get(str(result["status"]), len(_RANKS)), -number, str(result["id"])


def choosing(result: Result, results: Sequence[Mapping[str, Any]]) -> Result:
    """A model's choice as a fan-in's result: the candidate that it names, or else the best by rule."""
    if result.status not in (ev.StepStatus.SUCCESS, ev.StepStatus.PARTIAL_SUCCESS) or not results:
        return result
    best = _named(result, results) or best_of(results)
    assert best is not None
    return replace(result, context_updates={**chosen(best), **result.context_updates})


def _named(result: Result, results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """By its label, by a suggested id, or by being the only one that the answer mentions."""
    by_id = {str(candidate["id"]): candidate for candidate in results}
    for name in (result.preferred_label, *result.suggested_next_ids):
        if name in by_id:
            return by_id[name]
    words = set(_WORD.findall(str(result.context_updates.get("last_response", ""))))
    mentioned = [candidate for name, candidate in by_id.items() if name in words]
    return mentioned[0] if len(mentioned) == 1 else None


def chosen(best: Mapping[str, Any]) -> dict[str, Any]:
    """What the context says about the choice."""
    return {BEST_ID: best["id"], BEST_OUTCOME: best["status"]}
