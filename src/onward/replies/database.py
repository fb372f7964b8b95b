"""Replies about a database as a whole, beyond any one run.

Its numbers (`onward stats --json` prints them), the processes that hold runs and the runs of dead ones,
limits and usage, registered pipelines, and notifications: what was told, or is still to be told, and how
that went. Costs are in millionths of a dollar.
"""

from __future__ import annotations

from typing import Any, TypedDict

from onward.replies.runs import Instant, RunNamed, WaitingForShown


class ReasonCounted(TypedDict):
    """How many runs have a status for a reason."""

    status: str
    reason: str
    recoverable: bool
    runs: int


class RunsCounted(TypedDict):
    """The runs of a database in numbers."""

    total: int
    by_status: dict[str, int]
    by_reason: list[ReasonCounted]
    recoverable: int
    held: int
    stalled: int
    waiting: int


class RunStuck(TypedDict):
    """A due run that could not be claimed."""

    run: str
    failures: int
    failed_at: Instant
    why: str


class RunsUnserved(WaitingForShown):
    """Due runs that no live worker can serve, and what they wait for."""

    runs: int


class NotificationsCounted(TypedDict):
    """The notifications that were not delivered."""

    waiting: int
    failed: int
    oldest_waiting: Instant | None


class QueueMeasured(TypedDict):
    """The runs that wait for a worker."""

    due: int
    later: int
    oldest_due: Instant | None
    age_s: float
    stuck: list[RunStuck]
    unserved: list[RunsUnserved]


class HolderCounted(TypedDict):
    """A process that holds runs, in numbers."""

    worker: str
    runs: int
    stalled: int


class Stats(TypedDict):
    """The state of the database at one moment."""

    at: Instant
    runs: RunsCounted
    queue: QueueMeasured
    ended: dict[str, dict[str, int]]
    workers: list[HolderCounted]
    database_bytes: int
    notifications: NotificationsCounted


class WorkerListed(TypedDict):
    """A worker, or another process that holds runs, with their display ids.

    Of a process that takes no runs from the queue, `handlers`, `concurrency` and `started_at` are null.
    `lacks` are directories that runs of the queue need and it does not have.
    """

    worker: str
    is_alive: bool
    runs: list[str]
    handlers: list[str] | None
    lacks: list[str]
    concurrency: int | None
    started_at: Instant | None


class RunRecovered(RunNamed):
    """A run whose process died, as it was stopped or requeued."""

    detail: str


class RunBroken(TypedDict):
    """A run that could not be recovered, and why."""

    run: str
    error: str


class Recovered(TypedDict):
    """What one look found; `waiting` are the runs with open questions."""

    interrupted: list[RunRecovered]
    requeued: list[RunRecovered]
    waiting: list[str]
    broken: list[RunBroken]


class MeasureShown(TypedDict):
    """One limit of a scope, and how much of it is used; `limit` is None if there is none.

    `is_own`: it was set for this scope, and is not the default of its kind.
    """

    limit: int | None
    is_own: bool
    spent: int
    reserved: int


class ScopeShown(TypedDict):
    """A scope with its three measures; `warned` are those of which 80 % were spent."""

    scope: str
    kind: str
    tokens: MeasureShown
    cost_micro: MeasureShown
    calls: MeasureShown
    warned: list[str]


class LimitList(TypedDict):
    """Scopes: the defaults first, then those with a limit or spending.

    `chat_run_calls` is how many calls a run of a chat may make if nothing is said about it; None if a limit
    is set for every run.
    """

    scopes: list[ScopeShown]
    chat_run_calls: int | None


class LimitChanged(TypedDict):
    """A scope after a change, and the running runs whose held attempts try again.

    `spent_up` are the scopes in which the limit leaves nothing: their runs stop at their next call. After a
    change of a default, `apart` are the scopes of its kind with a limit of their own, which is unchanged. Of
    days only those that are not over are in both; after a change of the default of runs, no run is.
    """

    scope: ScopeShown
    lifted: list[str]
    spent_up: list[ScopeShown]
    apart: list[ScopeShown]


class UsageShown(TypedDict):
    """What the calls of a run, chat, project, day, pipeline or model cost.

    `estimated` counts the calls whose cost is not known: they were charged what they had reserved.
    """

    what: str
    input: int
    output: int
    cached: int
    tokens: int
    cost_micro: int
    calls: int
    estimated: int


class UsageList(TypedDict):
    """Usage, put together by one thing: the newest day first, else the most expensive first."""

    by: str
    usage: list[UsageShown]


class PipelineListed(TypedDict):
    """A registered pipeline. New runs get the version `enabled`; there are the versions 1 to `newest`.

    `changed_by` and `changed_at`: who enabled that version, and when.
    """

    name: str
    enabled: int
    newest: int
    changed_by: str
    changed_at: Instant


class PipelineList(TypedDict):
    """Registered pipelines by name; `cursor` gets the next page, if there may be one."""

    pipelines: list[PipelineListed]
    cursor: str | None


class PipelineVersion(TypedDict):
    """A version of a registered pipeline, which never changes. `file` is where its source was."""

    version: int
    pipeline_hash: str
    file: str
    added_by: str
    added_at: Instant


class InputDeclared(TypedDict):
    """An input that a pipeline declares: its type is text, int, number, bool, json or choice."""

    name: str
    type: str
    about: str
    choices: list[str]
    default: Any
    required: bool


class PipelinePage(PipelineListed):
    """A registered pipeline with the source of one version, and its versions, newest first.

    `inputs` are what a run of it is to be given; empty if it declares none and takes whatever it is given.
    """

    version: int
    source: str
    inputs: list[InputDeclared]
    versions: list[PipelineVersion]


class PipelineAdded(PipelineListed):
    """A version that was added, or, if not `is_new`, was there already; and the warnings about it."""

    version: int
    is_new: bool
    pipeline_hash: str
    warnings: list[str]


class DiagnosticShown(TypedDict):
    """A finding with its rule and its place; lines and columns count from 1. `fix` is the advice."""

    rule: str
    severity: str
    message: str
    file: str
    line: int
    column: int
    node: str | None
    fix: str | None


class PipelineChecked(TypedDict):
    """What is to say about a source: it `is_valid` without errors. `name` is that of its graph, then."""

    is_valid: bool
    name: str | None
    nodes: int
    diagnostics: list[DiagnosticShown]


class PipelineRemoved(TypedDict):
    """A name that new runs cannot have any more. Runs of its versions keep their source."""

    name: str
    newest: int
    removed_by: str
    removed_at: Instant


class NotificationShown(TypedDict):
    """A notification on its way to a subscriber. `body` is what the receiver gets.

    `response` is the HTTP status, or the exit code of a command; `error` says why the last try failed.
    """

    id: str
    subscriber: str
    run: str
    display_id: str
    seq: int
    event: str
    state: str
    tries: int
    created_at: str
    due_at: str | None
    tried_at: str | None
    delivered_at: str | None
    response: int | None
    error: str
    body: dict[str, Any]


class NotificationList(TypedDict):
    """A page of notifications, newest first; `cursor` is where the next one starts."""

    notifications: list[NotificationShown]
    cursor: str | None
