"""Folding how a run is created, and who holds it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from onward.machine.fold.change import Changes, IllegalEvent
from onward.machine.fold.gates import asked_anew
from onward.machine.fold.stops import NOT_STOPPED
from onward.model.events.runs import PipelineChanged, RunClaimed, RunCreated, RunForked, WorkdirChanged
from onward.model.ids import branch_of, is_in_step, step_of_gate
from onward.model.needs import with_directory
from onward.model.run import NOTHING_PENDING, AttemptState, Branch, Fork, Gate, Run, RunStatus
from onward.model.simulation import simulation_of
from onward.model.values.frozenmap import NOTHING, FrozenMap
from onward.model.workspace import WORKTREE

HELD, QUEUED = AttemptState.HELD, RunStatus.QUEUED


def created(event: RunCreated, *, run_id: str, at_us: int) -> Run:
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


def forked(run: Run, event: RunForked, at_us: int) -> Changes:
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
        # Other branches may have had attempts under way, whose end is unknown.
        # The child of such a step stays with the other run.
        "open_steps": {
            name: replace(step, child=None) for name, step in run.open_steps.items() if branch_of(name)
        },
        "managed_by": None,
        # A fork always has its own work tree.
        "workspace": replace(run.workspace, mode=WORKTREE) if run.workspace else None,
        "restore_workspace": False,
        "gates": asked_anew(_gates_of_branches(run), at_us),
        "retries": NOTHING,
        "pending": NOTHING_PENDING,
        "losses": 0,
        "directives": {},
        "is_dismissed": False,
        **NOT_STOPPED,
    }


def _gates_of_branches(run: Run) -> dict[str, Gate]:
    """What is asked in branches. The question of an attempt that was under way is asked when that runs."""
    return {
        name: gate
        for name, gate in run.gates.items()
        if branch_of(step := step_of_gate(name))
        and not (gate.decided is None and is_in_step(name) and run.open_steps[step].state is not HELD)
    }


def claimed(run: Run, event: RunClaimed, at_us: int) -> Changes:
    if event.token <= run.token:
        raise IllegalEvent(run.status, event, f"a claim with token {event.token} after token {run.token}")
    changes: Changes = {
        "token": event.token,
        "worker": event.worker,
        "last_worker": event.worker,
        "wake_at_us": None,
        "losses": run.losses + 1 if event.lost else run.losses,
        **NOT_STOPPED,
    }
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


def pipeline_changed(run: Run, event: PipelineChanged, at_us: int) -> Changes:
    return {"pipeline_hash": event.pipeline_hash}


def workdir_changed(run: Run, event: WorkdirChanged, at_us: int) -> Changes:
    return {"workdir": event.workdir, "needs": with_directory(run.needs, event.workdir)}
