"""Fold: what a log means. Total over legal events, and the only way a run's state comes about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from onward.machine.lifecycle import next_status
from onward.model.event import (
    AttemptFailed,
    AttemptInterrupted,
    CancelRequested,
    Event,
    GateDecided,
    GateOpened,
    GateWithdrawn,
    GoalRedirected,
    Outcome,
    PauseRequested,
    PipelineChanged,
    RunCancelled,
    RunClaimed,
    RunCompleted,
    RunCreated,
    RunFailed,
    RunForked,
    RunInterrupted,
    RunPaused,
    RunQueued,
    RunResumed,
    RunWaiting,
    StepFinished,
    StepStarted,
    StepStatus,
)
from onward.model.frozenmap import FrozenMap
from onward.model.ids import branch_of, step_id
from onward.model.run import (
    NOTHING_PENDING,
    AttemptState,
    Branch,
    Fork,
    Gate,
    OpenStep,
    Pending,
    Run,
    RunStatus,
)
from onward.model.value import grow

Changes = dict[str, Any]


class IllegalEvent(Exception):
    """An event that may not follow where it stands: a damaged log, or a defect in what wrote it."""

    def __init__(self, status: RunStatus | None, event: Event, why: str = "") -> None:
        self.status, self.event = status, event
        super().__init__(why or f"{event.kind} may not follow when the run is {status or 'not created'}")


def apply(run: Run | None, event: Event, *, run_id: str, at_us: int, token: int) -> Run:
    """The run after `event`; refuses what the lifecycle does not allow, and changes nothing else."""
    status = next_status(None if run is None else run.status, event)
    if status is None:
        raise IllegalEvent(None if run is None else run.status, event)
    if run is None:
        assert isinstance(event, RunCreated)
        return _created(event, run_id=run_id, at_us=at_us)
    if token < run.token:
        raise IllegalEvent(run.status, event, f"{event.kind} carries token {token}, older than {run.token}")
    changes = _EFFECTS[type(event)](run, event, at_us)
    if run.id != run_id:
        changes["id"] = run_id  # the prefix of a fork was folded as its parent
    return replace(run, status=status, head=run.head + 1, updated_at_us=at_us, **changes)


def fold(run: Run | None, events: Iterable[tuple[Event, int, int]], *, run_id: str) -> Run | None:
    """Apply `(event, at_us, token)` one after the other."""
    for event, at_us, token in events:
        run = apply(run, event, run_id=run_id, at_us=at_us, token=token)
    return run


def context_after(
    context: FrozenMap[Any], outcome: Outcome, fresh: Mapping[str, Any], grown: Mapping[str, Any]
) -> FrozenMap[Any]:
    """A branch's context when a step has finished: its changes, and the engine's own keys."""
    changes = dict(fresh)
    for key, tail in grown.items():
        changes[key] = grow(context[key], tail)
    if outcome.status is not StepStatus.SKIPPED:
        changes["outcome"] = outcome.status.value
        if outcome.preferred_label:
            changes["preferred_label"] = outcome.preferred_label
    return context.with_all(changes)


def _created(event: RunCreated, *, run_id: str, at_us: int) -> Run:
    return Run(
        id=run_id,
        pipeline=event.pipeline,
        pipeline_hash=event.pipeline_hash,
        path=event.path,
        start_node=event.start_node,
        status=RunStatus.QUEUED,
        on_owner_loss=event.on_owner_loss,
        exclusive_key=event.exclusive_key,
        simulation=event.simulation,
        created_at_us=at_us,
        updated_at_us=at_us,
        wake_at_us=at_us,
        head=1,
        branches={"": Branch(context=FrozenMap(event.context), next_node=event.start_node)},
        visits=FrozenMap(),
        executions=FrozenMap(),
        outcomes=FrozenMap(),
        retries=FrozenMap(),
    )


def _forked(run: Run, event: RunForked, at_us: int) -> Changes:
    root = run.root
    return {
        "branches": {**run.branches, "": replace(root, context=root.context.with_all(event.context))},
        "parent": Fork(run_id=event.parent, seq=event.parent_seq, hash=event.parent_hash),
        "on_owner_loss": event.on_owner_loss,
        "exclusive_key": event.exclusive_key,
        "created_at_us": at_us,
        "wake_at_us": at_us,
        "ended_at_us": None,
        "worker": None,
        "open_steps": {},
        "retries": FrozenMap(),
        "gates": {},
        "pending": NOTHING_PENDING,
        "losses": 0,
        "directives": {},
        "first_hop": True,
        **_NOT_STOPPED,
    }


_NOT_STOPPED: Changes = {"reason": "", "detail": "", "stopped_step": ""}


def _claimed(run: Run, event: RunClaimed, at_us: int) -> Changes:
    if event.token <= run.token:
        raise IllegalEvent(run.status, event, f"a claim with token {event.token} after token {run.token}")
    return {
        "token": event.token,
        "worker": event.worker,
        "wake_at_us": None,
        "losses": run.losses + 1 if event.lost else run.losses,
        "first_hop": run.first_hop or run.token > 0,
        **_NOT_STOPPED,
    }


def _pipeline_changed(run: Run, event: PipelineChanged, at_us: int) -> Changes:
    return {"pipeline_hash": event.pipeline_hash}


def _step_started(run: Run, event: StepStarted, at_us: int) -> Changes:
    before = run.open_steps.get(event.step)
    if before is None:
        _check_new_visit(run, event)
    elif before.state is AttemptState.OPEN and before.token == run.token:
        raise IllegalEvent(run.status, event, f"step {event.step} is already open under token {run.token}")
    begun = OpenStep(
        step=event.step,
        node=event.node,
        attempt=event.attempt,
        token=run.token,
        state=AttemptState.OPEN,
        repeatable=event.repeatable,
        fidelity=event.fidelity,
        retries_spent=before.retries_spent if before else 0,
    )
    changes: Changes = {"open_steps": {**run.open_steps, event.step: begun}}
    if before is None:
        changes["visits"] = run.visits.with_(event.node, run.visits.get(event.node, 0) + 1)
    if before is None or before.attempt != event.attempt:
        changes["executions"] = run.executions.with_(event.node, run.executions.get(event.node, 0) + 1)
    return changes


def _check_new_visit(run: Run, event: StepStarted | StepFinished) -> None:
    """A step begins as the next visit of its node; any other would be one that has its outcome already."""
    visit = run.visits.get(event.node, 0) + 1
    if event.step != step_id(event.node, visit, branch_of(event.step)):
        raise IllegalEvent(run.status, event, f"step {event.step} is not visit {visit} of node {event.node}")


def _open_step(run: Run, event: AttemptFailed | AttemptInterrupted) -> OpenStep:
    found = run.open_steps.get(event.step)
    if found is None or found.attempt != event.attempt or found.state is not AttemptState.OPEN:
        raise IllegalEvent(run.status, event, f"step {event.step} has no open attempt {event.attempt}")
    return found


def _attempt_failed(run: Run, event: AttemptFailed, at_us: int) -> Changes:
    before = _open_step(run, event)
    again = event.retry_at_us is not None
    spent = before.retries_spent + (1 if again else 0)
    failed = replace(
        before,
        state=AttemptState.RETRYING if again else AttemptState.FAILED,
        retries_spent=spent,
        retry_at_us=event.retry_at_us,
        reason=event.reason,
    )
    changes: Changes = {"open_steps": {**run.open_steps, event.step: failed}}
    if again:
        changes["retries"] = run.retries.with_(before.node, spent)
    return changes


def _attempt_interrupted(run: Run, event: AttemptInterrupted, at_us: int) -> Changes:
    stopped = replace(_open_step(run, event), state=AttemptState.INTERRUPTED, reason=event.why)
    return {"open_steps": {**run.open_steps, event.step: stopped}}


def _step_finished(run: Run, event: StepFinished, at_us: int) -> Changes:
    path = branch_of(event.step)
    branch = run.branches.get(path)
    if branch is None:
        raise IllegalEvent(run.status, event, f"step {event.step} belongs to no branch of this run")
    changes: Changes = {
        "branches": {**run.branches, path: _moved(run, branch, event)},
        "steps_finished": run.steps_finished + 1,
    }
    if event.outcome.status is not StepStatus.SKIPPED:
        changes["outcomes"] = run.outcomes.with_(event.node, event.outcome.status.value)
    opened = run.open_steps.get(event.step)
    if opened is not None:
        changes["open_steps"] = _without(run.open_steps, event.step)
        if opened.fidelity:
            changes["first_hop"] = False  # only an agent step has a fidelity to lose
    elif event.step in run.gates:
        changes["gates"] = _without(run.gates, event.step)
    else:
        _check_new_visit(run, event)
        changes["visits"] = run.visits.with_(event.node, run.visits.get(event.node, 0) + 1)
    if event.step in run.directives:
        changes["directives"] = _without(run.directives, event.step)
    if event.node in run.retries:
        changes["retries"] = run.retries.without(event.node)
    if run.losses:
        changes["losses"] = 0
    return changes


def _moved(run: Run, branch: Branch, event: StepFinished) -> Branch:
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
        label=branch.label if outcome.status is StepStatus.SKIPPED else outcome.preferred_label,
    )


def _without(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}


def _redirected(run: Run, event: GoalRedirected, at_us: int) -> Changes:
    moved = replace(run.root, next_node=event.next.to, edge=event.next.edge)
    return {"branches": {**run.branches, "": moved}, "reroutes": run.reroutes + 1}


def _gate_opened(run: Run, event: GateOpened, at_us: int) -> Changes:
    if event.gate in run.gates:
        raise IllegalEvent(run.status, event, f"gate {event.gate} is already open")
    gate = Gate(gate=event.gate, node=event.node, text=event.text, choices=event.choices, opened_at_us=at_us)
    return {
        "gates": {**run.gates, event.gate: gate},
        "visits": run.visits.with_(event.node, run.visits.get(event.node, 0) + 1),
    }


def _gate_decided(run: Run, event: GateDecided, at_us: int) -> Changes:
    gate = run.gates.get(event.gate)
    if gate is None or gate.decided is not None:
        raise IllegalEvent(run.status, event, f"gate {event.gate} is not open")
    decided = replace(gate, decided=event.choice, by=event.by, answer=event.text)
    changes: Changes = {"gates": {**run.gates, event.gate: decided}}
    if run.status is RunStatus.WAITING:
        changes["wake_at_us"] = at_us
    return changes


def _gate_withdrawn(run: Run, event: GateWithdrawn, at_us: int) -> Changes:
    if event.gate not in run.gates:
        raise IllegalEvent(run.status, event, f"gate {event.gate} is not open")
    return {"gates": _without(run.gates, event.gate)}


def _pause_requested(run: Run, event: PauseRequested, at_us: int) -> Changes:
    return {"pending": replace(run.pending, pause_after=event.after, pause_by=event.by)}


def _cancel_requested(run: Run, event: CancelRequested, at_us: int) -> Changes:
    return {"pending": replace(run.pending, cancel_by=event.by)}


def _released(wake_at_us: int | None) -> Changes:
    """Letting go of the lease and the next wake time are part of the stop itself."""
    return {"worker": None, "wake_at_us": wake_at_us}


def _waiting(run: Run, event: RunWaiting, at_us: int) -> Changes:
    return _released(None)


def _queued(run: Run, event: RunQueued, at_us: int) -> Changes:
    return {**_released(event.wake_at_us), "reason": "", "detail": event.why}


def _paused(run: Run, event: RunPaused, at_us: int) -> Changes:
    pending = Pending(cancel_by=run.pending.cancel_by)
    return {**_released(None), "reason": event.reason, "detail": event.detail, "pending": pending}


def _interrupted(run: Run, event: RunInterrupted, at_us: int) -> Changes:
    return {**_released(event.wake_at_us), "reason": event.reason, "detail": event.detail}


def _failed(run: Run, event: RunFailed, at_us: int) -> Changes:
    return {
        **_released(None),
        "reason": event.reason,
        "detail": event.detail,
        "stopped_step": event.step,
        "ended_at_us": at_us,
    }


def _resumed(run: Run, event: RunResumed, at_us: int) -> Changes:
    """A person's resume opens a new allowance of retries and crashes; visits and reroutes are kept.

    A pause was only a break: nothing had gone wrong, so the retries that were spent before it stay spent.
    """
    keeps = run.status is RunStatus.PAUSED
    steps = {step: _sent_on(opened, event, keeps_spent=keeps) for step, opened in run.open_steps.items()}
    changes: Changes = {
        "wake_at_us": at_us,
        "ended_at_us": None,
        "losses": 0,
        "pending": NOTHING_PENDING,
        "open_steps": steps,
        "retries": run.retries if keeps else FrozenMap(),
        **_NOT_STOPPED,
    }
    if event.step and event.action:
        changes["directives"] = {**run.directives, event.step: event.action}
    if event.from_node is not None:
        changes.update(open_steps={}, retries=FrozenMap(), gates={}, directives={})
        moved = replace(run.root, next_node=event.from_node, edge=None)
        changes["branches"] = {**run.branches, "": moved}
    return changes


def _sent_on(opened: OpenStep, event: RunResumed, *, keeps_spent: bool) -> OpenStep:
    asked = event.step == opened.step and event.action in ("retry", "continue")
    if opened.state is AttemptState.FAILED or asked:
        return replace(opened, state=AttemptState.RETRYING, retries_spent=0, retry_at_us=None)
    return opened if keeps_spent else replace(opened, retries_spent=0)


def _completed(run: Run, event: RunCompleted, at_us: int) -> Changes:
    return {**_released(None), "ended_at_us": at_us, "pending": NOTHING_PENDING, **_closed(run, event)}


def _cancelled(run: Run, event: RunCancelled, at_us: int) -> Changes:
    return {
        **_released(None),
        "reason": event.reason,
        "detail": "",
        "ended_at_us": at_us,
        "pending": NOTHING_PENDING,
        **_closed(run, event),
    }


def _closed(run: Run, event: Event) -> Changes:
    """A final status leaves nothing open: the same append must have withdrawn and closed it."""
    if any(gate.decided is None for gate in run.gates.values()):
        raise IllegalEvent(run.status, event, f"{event.kind} leaves gates open: {', '.join(run.gates)}")
    if any(step.state is AttemptState.OPEN for step in run.open_steps.values()):
        raise IllegalEvent(
            run.status, event, f"{event.kind} leaves attempts open: {', '.join(run.open_steps)}"
        )
    return {"open_steps": {}, "gates": {}, "directives": {}}


_EFFECTS: Mapping[type[Event], Callable[[Run, Any, int], Changes]] = {
    RunForked: _forked,
    RunClaimed: _claimed,
    PipelineChanged: _pipeline_changed,
    StepStarted: _step_started,
    AttemptFailed: _attempt_failed,
    AttemptInterrupted: _attempt_interrupted,
    StepFinished: _step_finished,
    GoalRedirected: _redirected,
    GateOpened: _gate_opened,
    GateDecided: _gate_decided,
    GateWithdrawn: _gate_withdrawn,
    PauseRequested: _pause_requested,
    CancelRequested: _cancel_requested,
    RunWaiting: _waiting,
    RunQueued: _queued,
    RunPaused: _paused,
    RunInterrupted: _interrupted,
    RunFailed: _failed,
    RunResumed: _resumed,
    RunCompleted: _completed,
    RunCancelled: _cancelled,
}
