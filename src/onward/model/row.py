"""Rows: what is kept beside a log so that runs and open questions are found without reading logs.

Every column is a function of the log, written in the same transaction as the event that changed it.
"""

from __future__ import annotations

from enum import StrEnum

from onward.model.call import Reserved, Streamed, Usage
from onward.model.events.gates import Choice
from onward.model.run import DEAD_END, Frozen, RunStatus


class RunRow(Frozen, frozen=True, kw_only=True):
    """One run, as lists show it. `owner` names its holder; only a running run has one.

    `doubtful` is an open step that must not be repeated: if the holder died, it is in doubt. `parent` is
    the run that a fork came from, `managed_by` and `managed_step` are the run and the step that manage this
    run, and `restart_of` and `restarted_as` are the runs before and after it in a chain of restarts.
    `tags` is as `model.values.tags` writes it. `chat` is the conversation that the run was given, if it was.
    """

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
    doubtful: str | None
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
    managed_by: str | None
    managed_step: str | None
    restart_of: str | None
    restarted_as: str | None
    tags: str
    chat: str | None
    is_dismissed: bool
    created_at_us: int
    updated_at_us: int
    ended_at_us: int | None
    head: int

    @property
    def ended_at_node(self) -> str | None:
        """The node without edges at which a completed run ended; None if it reached the exit."""
        return self.detail if self.reason == DEAD_END else None


class GateRow(Frozen, frozen=True, kw_only=True):
    """One question that a run has asked. It is open until `closed_at_us`.

    `decided_by` says who or which rule decided it; one that was closed and not decided was withdrawn. A fork
    asks anew what was open where it came off; older questions are in the rows of its parent.
    """

    run_id: str
    gate: str
    pipeline: str
    node: str
    text: str
    about: str
    type: str
    choices: tuple[Choice, ...]
    opened_at_us: int
    deadline_us: int | None
    decided_by: str | None = None
    closed_at_us: int | None = None


class MessageState(StrEnum):
    """How a message stands: its text grows, it is whole, its call failed, or its call was lost."""

    STREAMING = "streaming"
    COMPLETE = "complete"
    ERROR = "error"
    INTERRUPTED = "interrupted"


class CallOpened(Frozen, frozen=True, kw_only=True):
    """A call has begun that reserves what it may cost, or whose text is stored while it grows."""

    step: str
    call: str
    number: int
    model: str = ""
    reserved: Reserved | None = None
    streamed: Streamed | None = None

    @property
    def is_reserved(self) -> bool:
        return self.reserved is not None

    @property
    def is_streamed(self) -> bool:
        return self.streamed is not None


class CallClosed(Frozen, frozen=True, kw_only=True):
    """Such a call has ended: its reservation is settled, and its message has its last state.

    `is_unknown`: what it cost is not known, because it was lost or says so; it is charged what it reserved.
    One that failed and has no `usage` cost nothing. `said` is the hash of the text of its message; None: it
    is sealed later.
    """

    step: str
    call: str
    number: int
    state: MessageState
    is_reserved: bool
    is_streamed: bool
    model: str = ""
    usage: Usage | None = None
    cost_micro: int | None = None
    is_unknown: bool = False
    said: str | None = None


CallRow = CallOpened | CallClosed
"""What a call does to the tables of limits and messages; written with its event."""
