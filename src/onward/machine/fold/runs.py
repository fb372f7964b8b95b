"""Folding events of whole runs: how they begin, who holds them, requests, stops and resumes."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from onward.machine.fold.calls import (
    RATE_LIMIT,
    WAIT,
    after_resume,
    let_go,
    lifted,
    looks_again,
    steering_given_back,
)
from onward.machine.fold.changes import Changes, IllegalEvent
from onward.machine.fold.steps import asked_anew, drop_branches, without_gates_of
from onward.machine.fold.stops import NO_STOPS, stop_ended, stopped
from onward.machine.reasons import CRASH
from onward.machine.ticks import way_of
from onward.model import events as ev
from onward.model.context import NOTHING, FrozenMap
from onward.model.ids import branch_of, is_in_step, step_of_gate
from onward.model.row import with_directory
from onward.model.run import (
    DEAD_END,
    NOTHING_PENDING,
    RESTARTED_AS,
    AttemptState,
    Branch,
    Fork,
    Gate,
    OpenStep,
    Run,
    RunStatus,
    simulation_of,
)

HELD, QUEUED = AttemptState.HELD, RunStatus.QUEUED


def run_created(event: ev.RunCreated, *, run_id: str, at_us: int) -> Run:
    return Run(
        id=run_id,
        pipeline=event.pipeline,
        pipeline_hash=event.pipeline_hash,
        path=event.path,
        start_node=event.start_node,
        status=QUEUED,
        on_owner_loss=event.on_owner_loss,
        exclusive_key=event.exclusive_key,
        simulation=simulation_of(event),
        priority=event.priority,
        needs=event.needs,
        max_running=event.max_running,
        restart_of=event.restart_of,
        restarts=event.restarts,
        managed_by=event.managed_by,
        workdir=event.workdir,
        variables=event.variables,
        workspace=event.workspace,
        trims_output=event.trims_output,
        chat=event.chat,
        project=event.project,
        charged_to=event.charged_to,
        pipeline_version=event.pipeline_version,
        max_visits=event.max_visits,
        way=way_of(event.plan),
        tags=event.tags,
        created_at_us=at_us,
        updated_at_us=at_us,
        wake_at_us=max(at_us, event.wake_at_us or 0),
        head=1,
        branches={
            "": Branch(
                context=FrozenMap(event.context),
                next_node=event.start_node,
                tree=event.workspace.start if event.workspace else None,
            )
        },
        visits=NOTHING,
        executions=NOTHING,
        outcomes=NOTHING,
        retries=NOTHING,
    )


def run_forked(run: Run, event: ev.RunForked, at_us: int) -> Changes:
    branches = _without_sessions(run.branches)
    branches[""] = replace(branches[""], context=run.context.with_all(event.context))
    return {
        "branches": branches,
        "parent": Fork(run_id=event.parent, seq=event.parent_seq, hash=event.parent_hash),
        "on_owner_loss": event.on_owner_loss,
        "exclusive_key": event.exclusive_key,
        "created_at_us": at_us,
        "wake_at_us": at_us,
        "ended_at_us": None,
        "worker": None,
        "last_worker": None,
        # Other branches may have had attempts under way, whose end is unknown, and so has a flow that is
        # forked between its calls, or after one that a person answered while it was stopped. The child of
        # such a step stays with the other run.
        "open_steps": {
            name: _without_children(step)
            for name, step in run.open_steps.items()
            if branch_of(name) or step.calls is not None
        },
        "managed_by": None,
        # A fork always has its own work tree.
        "workspace": replace(run.workspace, mode=ev.WORKTREE) if run.workspace else None,
        "restore_workspace": False,
        "gates": asked_anew(_gates_kept(run), at_us),
        "retries": NOTHING,
        "pending": NOTHING_PENDING,
        "losses": 0,
        "directives": {},
        "is_dismissed": False,
        # What its parent spent is in the parent's row.
        "tokens": 0,
        "cost_micro": 0,
        **NO_STOPS,
        **NOT_STOPPED,
    }


def _without_children(step: OpenStep) -> OpenStep:
    calls = None if step.calls is None else replace(step.calls, children={})
    return replace(step, child=None, calls=calls, awaits=())


def _gates_kept(run: Run) -> dict[str, Gate]:
    """What is asked in branches, and what a flow was told. The question of an attempt that was under way is
    asked when that runs."""
    return {
        name: gate
        for name, gate in run.gates.items()
        if (branch_of(step := step_of_gate(name)) or gate.stays)
        and not (gate.decided is None and is_in_step(name) and run.open_steps[step].state is not HELD)
    }


def run_claimed(run: Run, event: ev.RunClaimed, at_us: int) -> Changes:
    if event.token <= run.token:
        raise IllegalEvent(run.status, event, f"a claim with token {event.token} after token {run.token}")
    changes: Changes = {
        "token": event.token,
        "worker": event.worker,
        "last_worker": event.worker,
        "wake_at_us": None,
        **NOT_STOPPED,
    }
    if event.lost:
        changes.update(losses=run.losses + 1, lost_at=run.head + 1)
    if run.stops:
        changes |= stop_ended(run, at_us)
    # Sessions live in a process: the one that held the run last still has them.
    if run.token > 0 and event.worker != run.last_worker:
        changes["branches"] = _without_sessions(run.branches)
    return changes


def _without_sessions(branches: Mapping[str, Branch]) -> dict[str, Branch]:
    """The branches whose live sessions may have died: the next agent step of each gets a summary."""
    return {
        branch_id: branch if branch.ended else replace(branch, first_hop=True)
        for branch_id, branch in branches.items()
    }


def pipeline_changed(run: Run, event: ev.PipelineChanged, at_us: int) -> Changes:
    return {"pipeline_hash": event.pipeline_hash, "way": way_of(event.plan)}


def workdir_changed(run: Run, event: ev.WorkdirChanged, at_us: int) -> Changes:
    return {"workdir": event.workdir, "needs": with_directory(run.needs, event.workdir)}


NOT_STOPPED: Changes = {"reason": "", "detail": "", "stopped_step": ""}


def pause_requested(run: Run, event: ev.PauseRequested, at_us: int) -> Changes:
    return {"pending": replace(run.pending, pause_after=event.after, pause_by=event.by)}


def cancel_requested(run: Run, event: ev.CancelRequested, at_us: int) -> Changes:
    asked = {"cancel_by": event.by, "cancel_detail": event.detail, "cancel_reason": event.reason}
    return {"pending": replace(run.pending, **asked)}


def _released(wake_at_us: int | None) -> Changes:
    """The release of the lease and the next wake time are part of the stop itself."""
    return {"worker": None, "wake_at_us": wake_at_us}


def run_waiting(run: Run, event: ev.RunWaiting, at_us: int) -> Changes:
    parked = [step.reason for step in run.open_steps.values() if step.held == WAIT and step.reason]
    return {**_released(event.wake_at_us), "detail": "; ".join(parked)}


def run_queued(run: Run, event: ev.RunQueued, at_us: int) -> Changes:
    changes = {**_released(event.wake_at_us), "reason": "", "detail": event.why}
    if run.status is not RunStatus.RUNNING:
        changes["open_steps"] = {step: looks_again(opened, at_us) for step, opened in run.open_steps.items()}
    if run.lost_at == run.head > 0:  # the claim before it says that its holder died
        changes |= stopped(run, at_us, CRASH, event.why)
    return changes


def run_paused(run: Run, event: ev.RunPaused, at_us: int) -> Changes:
    pending = replace(run.pending, pause_after=None, pause_by="")
    return {**_stopped(run, event, at_us), **_released(None), "pending": pending}


def run_interrupted(run: Run, event: ev.RunInterrupted, at_us: int) -> Changes:
    return {**_stopped(run, event, at_us), **_released(event.wake_at_us)}


def _stopped(run: Run, event: ev.RunPaused | ev.RunInterrupted | ev.RunFailed, at_us: int) -> Changes:
    step = event.step if isinstance(event, ev.RunFailed) else ""
    said: Changes = {"reason": event.reason, "detail": event.detail}
    return said | stopped(run, at_us, event.reason, event.detail, step)


def run_failed(run: Run, event: ev.RunFailed, at_us: int) -> Changes:
    changes = {**_stopped(run, event, at_us), **_released(None)}
    return {**changes, "stopped_step": event.step, "ended_at_us": at_us}


def run_resumed(run: Run, event: ev.RunResumed, at_us: int) -> Changes:
    """A person's resume opens a new allowance of retries and crashes; visits and reroutes are kept.

    A pause was only a break: nothing had gone wrong, so the retries that were spent before it stay spent.
    """
    keeps = run.status is RunStatus.PAUSED
    asks_now = run.status is RunStatus.INTERRUPTED and run.reason == RATE_LIMIT
    steps = {
        step: _resumed_step(opened, event, run.head, at_us, keeps_spent=keeps, asks_now=asks_now)
        for step, opened in run.open_steps.items()
    }
    changes: Changes = {
        "wake_at_us": at_us,
        "ended_at_us": None,
        "losses": 0,
        "pending": NOTHING_PENDING,
        "open_steps": steps,
        "retries": run.retries if keeps else NOTHING,
        "restore_workspace": event.restore_workspace,
        "is_dismissed": False,
        "max_visits": max(run.max_visits, event.max_visits),
        **stop_ended(run, at_us, event.by),
        **NOT_STOPPED,
    }
    if event.step and event.action:
        changes["directives"] = {**run.directives, event.step: event.action}
        asks_anew = event.action == "retry" and not event.keeps_calls
        changes |= without_gates_of(run, event.step) if asks_anew else {}
    if event.from_node is not None:
        changes |= drop_branches(run, [branch_id for branch_id in run.branches if branch_id], onto="")
        changes.update(open_steps={}, retries=NOTHING, gates={}, directives={}, parallels={})
        changes["branches"] = {"": replace(run.root, next_node=event.from_node, edge=None)}
        changes["steering"] = steering_given_back(run)
    return changes


def run_dismissed(run: Run, event: ev.RunDismissed, at_us: int) -> Changes:
    """Nothing continues it but a person who names it: it is not due any more, either."""
    return {"is_dismissed": True, "wake_at_us": None}


def _resumed_step(
    opened: OpenStep, event: ev.RunResumed, head: int, at_us: int, *, keeps_spent: bool, asks_now: bool
) -> OpenStep:
    goes_on = event.action in ("retry", "continue") or (event.action == "skip" and event.keeps_calls)
    asked = event.step == opened.step and goes_on
    if asked:
        opened = after_resume(opened, event, head)
    opened = looks_again(let_go(lifted(opened), asks_now=asks_now), at_us)
    if opened.state is AttemptState.FAILED or asked:
        return replace(opened, state=AttemptState.RETRYING, retries_spent=0, retry_at_us=None)
    return opened if keeps_spent else replace(opened, retries_spent=0)


def run_completed(run: Run, event: ev.RunCompleted, at_us: int) -> Changes:
    changes = {**_released(None), "ended_at_us": at_us, "pending": NOTHING_PENDING, **_closed(run, event)}
    if event.restarted_as:
        changes.update(reason=RESTARTED_AS, detail=event.restarted_as)
        changes["branches"] = {"": replace(run.root, next_node=None)}
    if event.ended_at:
        changes.update(reason=DEAD_END, detail=event.ended_at)
    return changes


def run_cancelled(run: Run, event: ev.RunCancelled, at_us: int) -> Changes:
    return {
        **_released(None),
        "reason": event.reason,
        "detail": event.detail,
        "ended_at_us": at_us,
        "pending": NOTHING_PENDING,
        **stop_ended(run, at_us, event.by or None),
        **_closed(run, event),
    }


def _closed(run: Run, event: ev.Event) -> Changes:
    """A final status leaves nothing open: the same append must have withdrawn and closed it."""
    if run.gates and any(gate.decided is None for gate in run.gates.values()):
        raise IllegalEvent(run.status, event, f"{event.kind} leaves gates open: {', '.join(run.gates)}")
    if run.open_steps and any(step.state is AttemptState.OPEN for step in run.open_steps.values()):
        raise IllegalEvent(
            run.status, event, f"{event.kind} leaves attempts open: {', '.join(run.open_steps)}"
        )
    return {"open_steps": {}, "gates": {}, "directives": {}, "parallels": {}, "branches": {"": run.root}}
