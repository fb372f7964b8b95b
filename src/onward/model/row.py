"""A run's row: what is kept beside the log so that runs can be found without reading their logs.

Every column is a function of the log, written in the same transaction as the event that changed it.
"""

from __future__ import annotations

from onward.model.run import DEAD_END, Frozen, RunStatus


class RunRow(Frozen, frozen=True, kw_only=True):
    """One run, as lists show it. `owner` names its holder; only a running run has one."""

    id: str
    display_id: str
    pipeline: str
    pipeline_hash: str
    path: str | None
    status: RunStatus
    reason: str
    detail: str
    recoverable: bool
    next_node: str | None
    steps_finished: int
    token: int
    owner: str | None
    wake_at_us: int | None
    exclusive_key: str | None
    on_owner_loss: str
    priority: int
    needs: str
    max_running: int | None
    parent: str | None
    parent_seq: int | None
    created_at_us: int
    updated_at_us: int
    ended_at_us: int | None
    head: int

    @property
    def ended_at_node(self) -> str | None:
        """The node without edges at which a completed run ended; None if it reached the exit."""
        return self.detail if self.reason == DEAD_END else None
