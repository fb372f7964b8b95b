"""Replies about runs as they stand."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from onward.operations.replies.gates import GateShown
from onward.operations.replies.instant import Instant


class ForkPoint(TypedDict):
    """The run that a run was forked from, and the event it was forked at."""

    run: str
    seq: int


class WaitingFor(TypedDict):
    """What a queued run waits for that no live worker has: any `workers` at all, handlers, or a directory.

    `workers` is how many are alive; `says` is a sentence.
    """

    workers: int
    handlers: list[str]
    directory: str | None
    says: str


class RunListed(TypedDict):
    """A run as lists show it. A running run whose owner died is interrupted, whoever finds out first."""

    id: str
    display_id: str
    pipeline: str
    status: str
    reason: str
    detail: str
    recoverable: bool
    completed: NotRequired[list[str]]
    next: str | None
    parent: ForkPoint | None
    steps_finished: int
    holder: str | None
    path: str | None
    pipeline_hash: str
    exclusive_key: str | None
    on_owner_loss: str
    tags: list[str]
    chat: str
    is_dismissed: bool
    handlers: list[str]
    created_at: Instant
    updated_at: Instant
    ended_at: Instant | None
    ended_at_node: str | None
    wake_at: Instant | None
    waiting_for: WaitingFor | None
    head: int
    step_in_doubt: str | None


class RunList(TypedDict):
    """Runs, newest first; `older` is how many more the limit left out, if that was asked.

    `cursor` gets the next page, if there may be one.
    """

    runs: list[RunListed]
    older: int
    cursor: str | None


class OpenStep(TypedDict):
    """A step that began and has no outcome yet."""

    step: str
    attempt: int
    state: str
    reason: str
    retry_at: Instant | None
    repeatable: bool
    steering: list[str]
    child: str | None


class BranchShown(TypedDict):
    """A branch of a fan-out."""

    branch: str
    next: str | None
    ended: str | None
    context: dict[str, Any]


class WorkspaceShown(TypedDict):
    """The git repository that the steps change, and the last recorded state of it."""

    repository: str
    mode: str
    branch: str | None
    head: str
    commit: str
    ref: str | None


class PendingShown(TypedDict):
    """What the process that holds a run was asked to do and has not done yet."""

    cancel_by: str | None
    cancel_detail: str
    cancel_reason: str
    pause_after: str | None
    pause_by: str


class ManagerShown(TypedDict):
    """The step that manages a run, and how many managers are above it, itself included."""

    run: str
    step: str
    depth: NotRequired[int]


class LimitStop(TypedDict):
    """The limit that stopped a run, as it was then. `cost` is in millionths of a dollar.

    `raise_to` is what `onward resume --raise` takes; None if the limit leaves more room by now.
    """

    scope: str
    measure: str
    limit: int
    used: int
    reserved: int
    wanted: int
    raise_to: str | None
    steps_finished: int
    steps_open: int


class RunState(RunListed):
    """A run in full: what it finished in order, what is open, and its context.

    `pipeline_version`: the registered version of its pipeline, if it was started by that name.
    """

    pipeline_version: int | None
    simulated: str | None
    project: str | None
    context: dict[str, Any]
    open_steps: list[OpenStep]
    limit: LimitStop | None
    gates: list[GateShown]
    restart_of: str | None
    restarted_as: str | None
    branches: list[BranchShown]
    retry_counters: dict[str, int]
    visited_outcomes: dict[str, str]
    reroute_count: int
    pending: PendingShown
    steering: list[str]
    managed_by: ManagerShown | None
    workdir: str | None
    variables: list[str]
    workspace: WorkspaceShown | None
