"""Folding steps and attempts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from onward.machine.fold.branches import joined
from onward.machine.fold.calls import begun_again
from onward.machine.fold.change import Changes, IllegalEvent, without
from onward.machine.fold.gates import without_step
from onward.machine.fold.steering import taken
from onward.model.attempt.artifact import Artifact
from onward.model.events.steps import (
    AttemptFailed,
    AttemptInterrupted,
    GoalRedirected,
    Outcome,
    StepFinished,
    StepRouted,
    StepStarted,
    StepStatus,
)
from onward.model.ids import branch_of, place, place_of, step_id, whereabouts
from onward.model.result import excerpt
from onward.model.run import AttemptState, Branch, OpenStep, Run
from onward.model.values.frozenmap import FrozenMap
from onward.model.values.value import grow

# A member of an enum is looked up each time it is named, and these are named for every step.
SKIPPED, OPEN = StepStatus.SKIPPED, AttemptState.OPEN


def context_after(
    context: FrozenMap[Any], outcome: Outcome, fresh: Mapping[str, Any], grown: Mapping[str, Any]
) -> FrozenMap[Any]:
    """A branch's context when a step has finished: its changes, and the engine's own keys."""
    changes = dict(fresh)
    if grown:
        changes.update((key, grow(context[key], tail)) for key, tail in grown.items())
    if outcome.status is not SKIPPED:
        changes["outcome"] = str(outcome.status)
        if outcome.preferred_label:
            changes["preferred_label"] = outcome.preferred_label
    return context.with_all(changes)


def started(run: Run, event: StepStarted, at_us: int) -> Changes:
    before, (at, branch_id) = run.open_steps.get(event.step), whereabouts(event.step)
    changes: Changes = {}
    begun = OpenStep(
        step=event.step,
        node=event.node,
        attempt=event.attempt,
        token=run.token,
        state=OPEN,
        repeatable=event.repeatable,
        fidelity=event.fidelity,
        child=event.child,
        began_at_us=at_us,
        thread=event.thread,
    )
    if before is None:
        changes["visits"] = run.visits.with_(at, _new_visit(run, event, at, branch_id))
    elif before.state is OPEN and before.token == run.token:
        raise IllegalEvent(run.status, event, f"step {event.step} is already open under token {run.token}")
    else:
        tries = before.tries + 1 if before.attempt == event.attempt else 1
        begun = replace(
            begun,
            retries_spent=before.retries_spent,
            tries=tries,
            starts=before.starts + 1,
            worked_us=before.worked_us,
            steering=before.steering,
            calls=begun_again(before, run.head, event.attempt),
            holds=before.holds,
        )
    if event.steering:
        begun = replace(begun, steering=(*begun.steering, *taken(run, event)))
        changes["steering"] = run.steering[event.steering :]
    if before is None or before.attempt != event.attempt:
        changes["executions"] = run.executions.with_(at, run.executions.get(at, 0) + 1)
    if run.restore_workspace:
        changes["restore_workspace"] = False
    changes["open_steps"] = {**run.open_steps, event.step: begun}
    return changes


def _new_visit(run: Run, event: StepStarted | StepFinished, at: str, branch_id: str) -> int:
    """A step begins as the next visit of its node; any other would be one that has its outcome already."""
    visit = run.visits.get(at, 0) + 1
    if branch_id not in run.branches:
        raise IllegalEvent(run.status, event, f"step {event.step} belongs to no branch of this run")
    if event.step != step_id(event.node, visit, branch_id):
        visit = run.visits.get(place(event.node, branch_id), 0) + 1
        raise IllegalEvent(run.status, event, f"step {event.step} is not visit {visit} of node {event.node}")
    return visit


def _open_step(run: Run, event: AttemptFailed | AttemptInterrupted) -> OpenStep:
    found = run.open_steps.get(event.step)
    if found is None or found.attempt != event.attempt or found.state is not OPEN:
        raise IllegalEvent(run.status, event, f"step {event.step} has no open attempt {event.attempt}")
    return found


def attempt_failed(run: Run, event: AttemptFailed, at_us: int) -> Changes:
    before = _open_step(run, event)
    again = event.retry_at_us is not None
    spent = before.retries_spent + (1 if again else 0)
    failed = replace(
        before,
        state=AttemptState.RETRYING if again else AttemptState.FAILED,
        retries_spent=spent,
        retry_at_us=event.retry_at_us,
        reason=event.reason,
        worked_us=_worked_us(before, at_us),
        stop=event.stop,
    )
    if before.calls is not None and not event.keeps_calls:
        failed = replace(failed, calls=replace(before.calls, forgets=True))
    changes: Changes = {"open_steps": {**run.open_steps, event.step: failed}}
    if run.gates and not event.keeps_calls:
        changes |= without_step(run, event.step)
    if again:
        changes["retries"] = run.retries.with_(place_of(event.step), spent)
    return changes


def attempt_interrupted(run: Run, event: AttemptInterrupted, at_us: int) -> Changes:
    before = _open_step(run, event)
    # The next attempt begins with what its node says, so this lasts until a person has decided.
    repeatable = before.repeatable and not event.in_doubt
    stopped = replace(
        before,
        state=AttemptState.INTERRUPTED,
        reason=event.why,
        repeatable=repeatable,
        worked_us=_worked_us(before, at_us),
    )
    return {"open_steps": {**run.open_steps, event.step: stopped}}


def _worked_us(before: OpenStep, at_us: int) -> int:
    """How long a step has worked when its try ends; the wall clock may have been set back."""
    return before.worked_us + max(0, at_us - before.began_at_us)


def finished(run: Run, event: StepFinished, at_us: int) -> Changes:
    step = event.step
    at, branch_id = whereabouts(step)
    branch, opened = run.branches.get(branch_id), run.open_steps.get(step)
    if branch is None:
        raise IllegalEvent(run.status, event, f"step {step} belongs to no branch of this run")
    changes: Changes = {
        "branches": {**run.branches, branch_id: _moved(run, branch, opened, event)},
        "steps_finished": run.steps_finished + 1,
    }
    if opened is not None:
        changes["open_steps"] = without(run.open_steps, step)
        if run.gates:
            changes |= without_step(run, step)
        if opened.calls is not None and opened.calls.thread and opened.thread:
            changes["threads"] = run.threads.with_(opened.thread, opened.calls.thread)
    elif step in run.gates:
        changes["gates"] = without(run.gates, step)
    elif step in run.parallels:
        changes.update(joined(run, event, changes["branches"]))
    else:
        changes["visits"] = run.visits.with_(at, _new_visit(run, event, at, branch_id))
    if event.outcome.status is not SKIPPED:
        outcomes = changes.get("outcomes", run.outcomes)
        changes["outcomes"] = outcomes.with_(at, str(event.outcome.status))
    if step in run.directives:
        changes["directives"] = without(run.directives, step)
    if at in run.retries:
        changes["retries"] = changes.get("retries", run.retries).without(at)
    if run.losses:
        changes["losses"] = 0
    if event.artifacts:
        changes["artifacts"] = _kept(run.artifacts, event.artifacts)
    return changes


def _kept(before: FrozenMap[Artifact], changes: Mapping[str, Artifact | None]) -> FrozenMap[Artifact]:
    """A run's artifacts when a step has stored some and removed others."""
    for name in (name for name, artifact in changes.items() if artifact is None):
        before = before.without(name)
    return before.with_all({name: artifact for name, artifact in changes.items() if artifact is not None})


def _moved(run: Run, branch: Branch, opened: OpenStep | None, event: StepFinished) -> Branch:
    outcome, onward = event.outcome, event.next
    try:
        context = context_after(branch.context, outcome, event.context, event.grown)
    except (KeyError, TypeError):
        why = f"step {event.step} adds to a context value that is missing or of another type"
        raise IllegalEvent(run.status, event, why) from None
    return replace(
        branch,
        context=context,
        next_node=onward.to if onward else None,
        edge=onward.edge if onward else None,
        previous=event.node,
        label=branch.label if outcome.status is SKIPPED else outcome.preferred_label,
        reason=outcome.failure_reason,
        suggested=() if onward else outcome.suggested_next_ids,
        first_hop=branch.first_hop and not _has_hopped(opened, event),
        response=excerpt(event.response) if event.response else branch.response,
        tree=event.workspace or branch.tree,
    )


def _has_hopped(opened: OpenStep | None, event: StepFinished) -> bool:
    """Whether this was an agent's step, and an agent worked in it: only those have a session."""
    return opened is not None and opened.fidelity != "" and event.outcome.status is not SKIPPED


def routed(run: Run, event: StepRouted, at_us: int) -> Changes:
    branch_id = branch_of(event.step)
    branch = run.branches.get(branch_id)
    if branch is None or branch.next_node is not None or branch.ended:
        raise IllegalEvent(run.status, event, f"step {event.step} is not where its branch ended")
    moved = replace(branch, next_node=event.next.to, edge=event.next.edge, suggested=())
    return {"branches": {**run.branches, branch_id: moved}}


def redirected(run: Run, event: GoalRedirected, at_us: int) -> Changes:
    moved = replace(run.root, next_node=event.next.to, edge=event.next.edge)
    return {"branches": {**run.branches, "": moved}, "reroutes": run.reroutes + 1}
