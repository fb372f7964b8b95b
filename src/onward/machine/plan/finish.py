"""What an attempt's result means for its step: an outcome, another attempt, or the end of the road."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onward.machine.definition import Definition
from onward.machine.fold.steps import context_after
from onward.machine.plan.fan import candidates, choosing
from onward.machine.plan.retry import retry_at_us
from onward.machine.plan.route import failure_transition, next_transition
from onward.model.events.event import Event
from onward.model.events.steps import AttemptFailed, Outcome, StepFinished, StepStatus, Transition
from onward.model.ids import branch_of
from onward.model.result import Result, log_lines
from onward.model.run import OpenStep, Run
from onward.model.values.frozenmap import FrozenMap
from onward.model.values.value import changes_between, copied
from onward.model.workspace import Tree
from onward.pipeline.graph import Node

FAIL = StepStatus.FAIL  # named for every step, and a member of an enum is looked up each time
DONE = (StepStatus.SUCCESS, StepStatus.PARTIAL_SUCCESS, StepStatus.SKIPPED)


def finish(
    definition: Definition,
    run: Run,
    step: str,
    result: Result,
    *,
    now_us: int,
    jitter: float,
    tree: Tree | None = None,
) -> list[Event]:
    """The events that record `result` for an open step. Its values must have been checked.

    `tree` is the work tree after it, if that has changed.
    """
    opened = run.open_steps[step]
    node = definition.graph.nodes[opened.node]
    if result.stop:
        return [_failed_attempt(opened, result, result.failure_reason, retry_at_us=None)]
    if result.status in DONE:
        return [_finished(definition, run, opened, node, result, tree, result.status)]
    may_retry = result.retryable and (result.status is StepStatus.RETRY or definition.retries_failures)
    if may_retry:
        policy = definition.retry_policy(node)
        again_us = retry_at_us(policy, retries_spent=opened.retries_spent, now_us=now_us, jitter=jitter)
        if again_us is not None:
            return [_failed_attempt(opened, result, result.failure_reason, retry_at_us=again_us)]
    if result.status is StepStatus.RETRY and node.allow_partial:
        return [_finished(definition, run, opened, node, result, tree, StepStatus.PARTIAL_SUCCESS)]
    return _failed(definition, run, opened, node, result, tree)


def _failed(
    definition: Definition, run: Run, opened: OpenStep, node: Node, result: Result, tree: Tree | None
) -> list[Event]:
    """Take the edge for failures, or leave the step open and failed: the plan stops the run there."""
    reason = result.failure_reason or "the step failed without a reason"
    if result.status is StepStatus.RETRY:
        reason = f"max retries exceeded: {reason}"
    finished = _finished(definition, run, opened, node, result, tree, FAIL, reason)
    if finished.next is not None or branch_of(opened.step):
        return [finished]  # a branch that fails has ended, and its fan-out continues with that
    return [_failed_attempt(opened, result, reason, retry_at_us=None)]


def _failed_attempt(
    opened: OpenStep, result: Result, reason: str, *, retry_at_us: int | None
) -> AttemptFailed:
    return AttemptFailed(
        step=opened.step,
        attempt=opened.attempt,
        status=result.status,
        reason=reason,
        retry_at_us=retry_at_us,
        log=log_lines(result.log) if result.log else (),
        output=result.output,
        keeps_calls=result.keeps_calls,
        stop=result.stop,
    )


def _finished(
    definition: Definition,
    run: Run,
    opened: OpenStep,
    node: Node,
    result: Result,
    tree: Tree | None,
    status: StepStatus,
    reason: str = "",
) -> StepFinished:
    before = run.branches[branch_of(opened.step)].context
    if node.id in definition.choosers:
        result = choosing(result, candidates(before))
    outcome = Outcome(
        status=status,
        preferred_label=result.preferred_label,
        suggested_next_ids=tuple(result.suggested_next_ids),
        notes=result.notes,
        failure_reason=reason,
    )
    updates = copied(result.context_updates) if result.context_updates else {}
    fresh, grown = changes_between(before, updates) if updates else ({}, {})
    return StepFinished(
        step=opened.step,
        node=opened.node,
        attempt=opened.attempt,
        outcome=outcome,
        context=fresh,
        grown=grown,
        next=_next(definition, opened, node, outcome, before, fresh, grown),
        log=log_lines(result.log) if result.log else (),
        response=result.response,
        artifacts=dict(result.artifacts) if result.artifacts else {},
        contents=dict(result.contents) if result.contents else {},
        workspace=tree,
        output=result.output,
    )


def _next(
    definition: Definition,
    opened: OpenStep,
    node: Node,
    outcome: Outcome,
    before: FrozenMap[Any],
    fresh: Mapping[str, Any],
    grown: Mapping[str, Any],
) -> Transition | None:
    """Where the outcome leads; the context is computed only where an edge may look at it."""
    if outcome.status is not FAIL and not outcome.preferred_label and not outcome.suggested_next_ids:
        only = definition.only_transition(node.id)
        if only is not None:
            return only
    after = context_after(before, outcome, fresh, grown)
    if outcome.status is FAIL:
        return failure_transition(definition, node, outcome, after, opened.retries_spent)
    return next_transition(definition.graph, node.id, outcome, after)
