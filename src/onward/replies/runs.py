"""Replies about runs as they stand: their gates, their state, and what came of decisions about them.

A decision, and a request that creates runs, is answered with the state of the run. A preview of a resume
also says what a step in doubt left.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

Instant = str
"""RFC 3339, UTC."""


class ChoiceOffered(TypedDict):
    """What can be answered to a gate, and the node it leads to."""

    key: str
    label: str
    to: str
    data: dict[str, Any]


class GateShown(TypedDict):
    """A gate: its question, subject, choices and deadline, and the decision.

    `content_hash` is of what it asks, is about and offers: an answer that names it counts for nothing else.
    """

    gate: str
    node: str
    type: str
    text: str
    about: str
    choices: list[ChoiceOffered]
    content_hash: str
    default: str | None
    opened_at: Instant
    deadline: Instant | None
    on_timeout: str
    remind_s: float | None
    metadata: dict[str, Any]
    decided: str | None
    by: str | None
    answer: str
    rejected: bool
    expired: bool


class GateOfRun(GateShown):
    """A question with its run."""

    run: str


class GateListed(TypedDict):
    """An open question in a list, with its run; `content_hash` as in a run."""

    run: str
    display_id: str
    pipeline: str
    gate: str
    node: str
    type: str
    text: str
    about: str
    choices: list[ChoiceOffered]
    content_hash: str
    opened_at: Instant
    deadline: Instant | None


class GateList(TypedDict):
    """A page of open questions; `cursor` gets the next page, if there may be one."""

    gates: list[GateListed]
    cursor: str | None


class ForkPoint(TypedDict):
    """The run that a run was forked from, and the event it was forked at."""

    run: str
    seq: int


class WaitingForShown(TypedDict):
    """What a queued run waits for that no live worker has: any `workers` at all, handlers, or a directory.

    `workers` is how many are alive; `says` is a sentence.
    """

    workers: int
    handlers: list[str]
    directory: str | None
    says: str


class RunNamed(TypedDict):
    """A run by its ids and its status."""

    id: str
    display_id: str
    status: str


class TickShown(TypedDict):
    """A step of a run as one sign. `step` is its node, with the number of its visit from the second on.

    `state` is finished, failed, open, waiting, interrupted, skipped or planned.
    """

    step: str
    state: str


class RunListed(RunNamed):
    """A run as lists show it. A running run whose owner died is interrupted by whichever process notices.

    `completed` are the newest 100 steps that finished, in order, if that was asked.
    `claims` is how often it was claimed: a queued run with claims was resumed. `tokens` and `cost`, in
    millionths of a dollar, are those of its own answered calls. `now` says in one sentence what it does, or
    why it stopped. `ticks` are at most 40 steps, those that began before those that are planned, and
    `steps_planned` is how many it is likely to have in all.
    """

    pipeline: str
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
    waiting_for: WaitingForShown | None
    head: int
    step_in_doubt: str | None
    claims: int
    tokens: int
    cost: int
    now: str
    ticks: list[TickShown]
    steps_planned: int


class RunList(TypedDict):
    """Runs, newest first; `older` is how many more the limit left out, if requested.

    `cursor` gets the next page, if there may be one.
    """

    runs: list[RunListed]
    older: int
    cursor: str | None


class OpenStepShown(TypedDict):
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
    """Requests to the process that holds a run that are still pending."""

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


class BannerShown(TypedDict):
    """The one card that a stopped run shows.

    `kind` is in_doubt, limit, restart, crash, rate_limit, child, crash_loop, failed, final or paused;
    `colour` is amber, red or slate. `line` says what is kept and what is done again. `actions` are in the
    order of their buttons: retry, skip, continue, abort, raise_limit, resume, fresh, dismiss, try_now,
    open_log, fork. `until` is when it continues by itself.
    """

    kind: str
    title: str
    line: str
    colour: str
    actions: list[str]
    step: str | None
    until: Instant | None
    limit: LimitStop | None


class StopShown(TypedDict):
    """A stop of a run: `says` why, `kept` what it did not lose, `by` who resumed it, if a person did."""

    seq: int
    reason: str
    says: str
    step: str | None
    at: Instant
    ended_at: Instant | None
    by: str | None
    kept: str


class KeptShown(TypedDict):
    """What a plain resume keeps, and how many model requests it repeats.

    `cost` is in millionths of a dollar.
    """

    steps: int
    answers: int
    cost: int
    again: int


class RunState(RunListed):
    """A run in full: what it finished, what is open, and its context.

    `completed` are the newest 100 steps that finished, in order: `steps_finished` counts all of them, and
    `onward show` lists them. `stops` are the newest 20, `stops_count` counts all; `onward events` has them.
    `pipeline_version`: the registered version of its pipeline, if it was started by that name. `awaits` are
    the runs whose ends its flows wait for, if it waits for any.
    """

    pipeline_version: int | None
    simulated: str | None
    project: str | None
    context: dict[str, Any]
    open_steps: list[OpenStepShown]
    limit: LimitStop | None
    gates: list[GateShown]
    awaits: list[RunNamed]
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
    banner: BannerShown | None
    stops: list[StopShown]
    stops_count: int
    kept: KeptShown


class LeftCall(TypedDict):
    """The call of a step that was cut off."""

    handler: str
    command: str | None


class LeftFileShown(TypedDict):
    """A file that a step left; `bytes` is null for a directory, or for a file that the step removed."""

    path: str
    bytes: int | None


class LeftEffectShown(TypedDict):
    """An effect of a step that was cut off: begun, in_doubt or finished."""

    key: str
    state: str
    begun_at: Instant
    about: str | None


class LeftShown(TypedDict):
    """What a step in doubt left. Of very many files only the first are listed; `_count` is how many."""

    step: str
    attempt: int
    assessment: str
    began_at: Instant | None
    call: LeftCall
    directory: str | None
    files: list[LeftFileShown]
    files_count: int
    place: str | None
    changed: list[LeftFileShown]
    changed_count: int
    effects: list[LeftEffectShown]
    unseen: list[str]


class PlannedAct(TypedDict):
    """One thing that a resume would do first."""

    does: str
    what: str
    why: str


class ResumePreview(TypedDict):
    """What a resume would skip, and what it would do up to the next effect, which decides the rest."""

    run: str
    skip: list[str]
    plan: list[PlannedAct]
    left: list[LeftShown]
    notice: str


class RunWithNotice(RunState):
    """A run that was resumed, or a fork that was created, and notices about it."""

    notice: str


class Submitted(TypedDict):
    """A new run, and the warnings about its pipeline."""

    run: RunState
    warnings: list[str]


class SubmittedRuns(TypedDict):
    """New runs in the order of the requests, and the warnings about their pipelines."""

    runs: list[RunListed]
    warnings: list[str]
