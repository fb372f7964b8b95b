"""The result of an action, as a value: recorded against the run as it is when it is written.

What an attempt's result means for its step is in `finish`: an outcome, another attempt, or a failure that
stops the run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from onward.machine import reasons
from onward.machine.definition import Definition, retry_at_us
from onward.machine.fold.calls import RATE_LIMIT
from onward.machine.fold.steps import context_after
from onward.machine.lifecycle import apply
from onward.machine.plan.action import stop_with
from onward.machine.plan.nodes import candidates, choosing
from onward.machine.plan.planner import branches_joined
from onward.machine.plan.route import failure_transition, next_transition
from onward.model import events as ev
from onward.model.context import FrozenMap, changes_between, copied
from onward.model.ids import branch_of
from onward.model.result import REASON_MAX, Result, excerpt, log_lines
from onward.model.run import NOTHING_PENDING, AttemptState, Frozen, OpenStep, Run
from onward.pipeline.flow_source import is_flow_kind
from onward.pipeline.graph import Node


class AttemptEnded(Frozen, frozen=True):
    """An attempt has a result. `jitter` spreads retries; `tree` is the work tree after it, if changed."""

    step: str
    result: Result
    jitter: float
    tree: ev.Tree | None = None


class AttemptCut(Frozen, frozen=True):
    """An attempt was ended from outside. `in_doubt`: something of it still runs; `running`: these calls."""

    step: str
    attempt: int
    why: str
    in_doubt: bool = False
    output: ev.LastOutput | None = None
    running: tuple[ev.RunningCall, ...] = ()


class AttemptLeft(Frozen, frozen=True):
    """An attempt is over, and the log says how already: it was held between two calls."""

    step: str


class BranchesMerged(Frozen, frozen=True):
    """The work of a fan-out's branches is in the run's work tree."""

    step: str
    merged: ev.Merged


class WorkspaceUnusable(Frozen, frozen=True):
    """The work tree is not what it should be. `has_begun`: attempts of this holder may have run."""

    why: str
    has_begun: bool


class SuccessorCreated(Frozen, frozen=True):
    """The run that a restart continues as exists."""

    run_id: str


class WaitTooLong(Frozen, frozen=True):
    """There is nothing to do before `until_us`, and holding the run until then is not worth it."""

    until_us: int


ActionResult = (
    AttemptEnded
    | AttemptCut
    | AttemptLeft
    | BranchesMerged
    | WorkspaceUnusable
    | SuccessorCreated
    | WaitTooLong
)


def events_of(
    definition: Definition, run: Run, results: Sequence[ActionResult], *, now_us: int
) -> Sequence[ev.Event]:
    """The events that record these results, each judged by the run as the one before it left it."""
    if len(results) == 1:
        return _events_of(definition, run, results[0], now_us)
    events: list[ev.Event] = []
    for result in results:
        for event in _events_of(definition, run, result, now_us):
            run = apply(run, event, run_id=run.id, at_us=now_us, token=run.token)
            events.append(event)
    return events


def _events_of(definition: Definition, run: Run, result: ActionResult, now_us: int) -> Sequence[ev.Event]:
    match result:
        case AttemptEnded():  # nothing is unpacked here: every step comes this way
            return finish(
                definition,
                run,
                result.step,
                result.result,
                now_us=now_us,
                jitter=result.jitter,
                tree=result.tree,
            )
        case AttemptCut():
            cut = ev.AttemptInterrupted(
                step=result.step,
                attempt=result.attempt,
                why=result.why,
                in_doubt=result.in_doubt,
                output=result.output,
                running=result.running,
            )
            return (cut,)
        case AttemptLeft():
            return ()
        case BranchesMerged(step, merged):
            return branches_joined(definition, run, step, merged)
        case WorkspaceUnusable(why, has_begun):
            return _without_workspace(run, why, has_begun)
        case SuccessorCreated(run_id):
            return _unless_asked(run, ev.RunCompleted(restarted_as=run_id))
        case _:  # WaitTooLong
            return _unless_asked(run, _waits(run, result.until_us))


def _waits(run: Run, until_us: int) -> ev.Event:
    """Release the run until then: a provider asked for it, or the next attempt is not due yet.

    If a question is open, its answer must not have to wait that long.
    """
    if any(gate.decided is None for gate in run.gates.values()):
        return ev.RunWaiting(wake_at_us=until_us)
    for opened in run.open_steps.values():
        if opened.state is AttemptState.HELD and opened.held == RATE_LIMIT:
            return ev.RunInterrupted(reason=reasons.RATE_LIMIT, detail=opened.reason, wake_at_us=until_us)
    return ev.RunQueued(why="waits for its next attempt", wake_at_us=until_us)


def _unless_asked(run: Run, stop: ev.Event) -> Sequence[ev.Event]:
    """A stop that was planned before it is written: a request that came first is left to the next plan."""
    return () if run.pending != NOTHING_PENDING else (stop,)


def _without_workspace(run: Run, why: str, has_begun: bool) -> Sequence[ev.Event]:
    """Stop the run: nothing is executed on a wrong work tree."""
    if run.pending.cancel_by is not None:
        return ()  # the plan cancels it
    never = () if has_begun else [s for s in run.open_steps.values() if s.state is AttemptState.OPEN]
    attempts = [
        ev.AttemptFailed(
            step=step.step,
            attempt=step.attempt,
            status=ev.StepStatus.FAIL,
            reason="it was not started, because its workspace cannot be used",
            keeps_calls=True,
        )
        for step in never
        if step.token == run.token
    ]
    stop = stop_with(run, ev.RunFailed(reason=reasons.PIPELINE_ERROR, detail=f"workspace: {why}"))
    return (*attempts, *stop.events)


FAIL = ev.StepStatus.FAIL  # named for every step, and a member of an enum is looked up each time
DONE = (ev.StepStatus.SUCCESS, ev.StepStatus.PARTIAL_SUCCESS, ev.StepStatus.SKIPPED)


def finish(
    definition: Definition,
    run: Run,
    step: str,
    result: Result,
    *,
    now_us: int,
    jitter: float,
    tree: ev.Tree | None = None,
) -> list[ev.Event]:
    """The events that record `result` for an open step. Its values must have been checked.

    `tree` is the work tree after it, if that has changed.
    """
    opened = run.open_steps[step]
    node = definition.graph.nodes[opened.node]
    if not result.keeps_calls and is_flow_kind(definition.kind(node.id)):
        result = dataclasses.replace(result, keeps_calls=True)  # no failure makes a flow repeat its steps
    if len(result.failure_reason) > REASON_MAX:
        result = dataclasses.replace(result, failure_reason=excerpt(result.failure_reason, REASON_MAX))
    if result.stop:
        return [_failed_attempt(opened, result, result.failure_reason, retry_at_us=None)]
    if result.status in DONE:
        return [_finished(definition, run, opened, node, result, tree, result.status)]
    may_retry = result.retryable and (result.status is ev.StepStatus.RETRY or definition.retries_failures)
    if may_retry:
        policy = definition.retry_policy(node)
        again_us = retry_at_us(policy, retries_spent=opened.retries_spent, now_us=now_us, jitter=jitter)
        if again_us is not None:
            return [_failed_attempt(opened, result, result.failure_reason, retry_at_us=again_us)]
    if result.status is ev.StepStatus.RETRY and node.allow_partial:
        return [_finished(definition, run, opened, node, result, tree, ev.StepStatus.PARTIAL_SUCCESS)]
    return _failed(definition, run, opened, node, result, tree)


def _failed(
    definition: Definition, run: Run, opened: OpenStep, node: Node, result: Result, tree: ev.Tree | None
) -> list[ev.Event]:
    """Take the edge for failures, or leave the step open and failed: the plan stops the run there."""
    reason = result.failure_reason or "the step failed without giving a reason"
    if result.status is ev.StepStatus.RETRY:
        reason = f"max retries exceeded: {reason}"
    finished = _finished(definition, run, opened, node, result, tree, FAIL, reason)
    if finished.next is not None or branch_of(opened.step):
        return [finished]  # a branch that fails has ended, and its fan-out continues with that
    return [_failed_attempt(opened, result, reason, retry_at_us=None)]


def _failed_attempt(
    opened: OpenStep, result: Result, reason: str, *, retry_at_us: int | None
) -> ev.AttemptFailed:
    return ev.AttemptFailed(
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
    tree: ev.Tree | None,
    status: ev.StepStatus,
    reason: str = "",
) -> ev.StepFinished:
    before = run.branches[branch_of(opened.step)].context
    if node.id in definition.choosers:
        result = choosing(result, candidates(before))
    outcome = ev.Outcome(
        status=status,
        preferred_label=result.preferred_label,
        suggested_next_ids=tuple(result.suggested_next_ids),
        notes=result.notes,
        failure_reason=reason,
    )
    updates = copied(result.context_updates) if result.context_updates else {}
    fresh, grown = changes_between(before, updates) if updates else ({}, {})
    return ev.StepFinished(
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
    outcome: ev.Outcome,
    before: FrozenMap[Any],
    fresh: Mapping[str, Any],
    grown: Mapping[str, Any],
) -> ev.Transition | None:
    """Where the outcome leads; the context is computed only where an edge may look at it."""
    if outcome.status is not FAIL and not outcome.preferred_label and not outcome.suggested_next_ids:
        only = definition.only_transition(node.id)
        if only is not None:
            return only
    after = context_after(before, outcome, fresh, grown)
    if outcome.status is FAIL:
        return failure_transition(definition, node, outcome, after, opened.retries_spent)
    return next_transition(definition.graph, node.id, outcome, after)
