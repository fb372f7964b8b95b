"""A run's row as a function of its fold, so that what lists show can be rebuilt and compared."""

from __future__ import annotations

from onward.machine.decide.doubt import doubtful_step
from onward.machine.lifecycle import is_recoverable
from onward.model.ids import display_id
from onward.model.row import RunRow
from onward.model.run import Run
from onward.model.values.tags import tag_column


def project(run: Run) -> RunRow:
    """The columns that belong to this state of the run."""
    parent, manager = run.parent, run.managed_by
    return RunRow(
        id=run.id,
        display_id=display_id(run.id),
        pipeline=run.pipeline,
        pipeline_hash=run.pipeline_hash,
        path=run.path,
        status=run.status,
        reason=run.reason,
        detail=run.detail,
        recoverable=is_recoverable(run.status, run.reason),
        next_node=run.branches[""].next_node,
        doubtful=doubtful_step(run),
        steps_finished=run.steps_finished,
        token=run.token,
        owner=run.worker,
        wake_at_us=run.wake_at_us,
        exclusive_key=run.exclusive_key,
        on_owner_loss=run.on_owner_loss,
        priority=run.priority,
        needs=" ".join(run.needs),
        max_running=run.max_running,
        parent=parent.run_id if parent else None,
        parent_seq=parent.seq if parent else None,
        managed_by=manager.run if manager else None,
        managed_step=manager.step if manager else None,
        # A fork of a run that was restarted comes off that run, and takes its place in no chain.
        restart_of=None if parent else run.restart_of,
        restarted_as=run.restarted_as,
        tags=tag_column(run.tags),
        chat=run.chat,
        is_dismissed=run.is_dismissed,
        created_at_us=run.created_at_us,
        updated_at_us=run.updated_at_us,
        ended_at_us=run.ended_at_us,
        head=run.head,
    )
