"""Replies with all that happened in a run, or in one of its steps."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from onward.operations.replies.instant import Instant
from onward.operations.replies.kept import ArtifactListed
from onward.operations.replies.left import LeftShown
from onward.operations.replies.progress import StepProgress
from onward.operations.replies.runs import RunState


class LineShown(TypedDict):
    """A line that a command printed to `stdout` or `stderr`."""

    stream: str
    text: str


class OutputShown(TypedDict):
    """The last lines that a try printed, and the type and traceback of the error that its handler raised."""

    lines: list[LineShown]
    error: str
    traceback: str


class TryShown(TypedDict):
    """One start of an attempt: try `number` of attempt `attempt`."""

    attempt: int
    number: int
    worker: str | None
    started_at: Instant | None
    ended_at: Instant | None
    duration_s: float | None
    outcome: str | None
    reason: str
    output: OutputShown | None


class StepShown(TypedDict):
    """A step: what came of it, and every try of its attempts.

    `duration_s` is how long the tries took together, `elapsed_s` the time from first start to outcome.
    """

    step: str
    node: str
    status: str
    attempts: int
    started_at: Instant | None
    finished_at: Instant | None
    duration_s: float | None
    elapsed_s: float | None
    reason: str
    log: list[str]
    tries: list[TryShown]
    child: NotRequired[str]
    answer: NotRequired[str]
    by: NotRequired[str]


class ForkListed(TypedDict):
    """A run that was forked from another."""

    id: str
    display_id: str
    seq: int
    status: str


class ChildListed(TypedDict):
    """A run that a step of another manages; `restart_of` names the child that it continues."""

    id: str
    display_id: str
    status: str
    step: str
    restart_of: str | None


class RunPage(RunState):
    """A run with all that happened in it; `left` is what its steps in doubt left behind.

    `progress` is how far its open steps have come with their calls.
    """

    steps: list[StepShown]
    progress: list[StepProgress]
    left: list[LeftShown]
    forks: list[ForkListed]
    children: list[ChildListed]


class Checkpoint(TypedDict):
    """A place in a log where a fork can begin, with the state there."""

    seq: int
    at: Instant
    branch: NotRequired[str]
    current_node: str | None
    next_node_id: str | None
    completed_nodes: list[str]
    context: dict[str, Any]
    retry_counters: dict[str, int]
    visited_outcomes: dict[str, str]
    reroute_count: int


EventShown = dict[str, Any]
"""One event: `seq`, `kind` and `at`, then its own fields (docs/events.md)."""


class TryPage(TryShown):
    """A try and its directory on this machine, if it is there.

    `output` also has the last lines of a try that succeeded, runs or was lost, if its files are there.
    """

    directory: str | None


class StepNext(TypedDict):
    """Where the run went from the step, and by which rule."""

    to: str
    reason: str


class StepPage(TypedDict):
    """Everything about one step.

    `visits` are all steps of its node. `handler` serves it, and `command` is what a tool runs. `changed` are
    the context values that are not the same after it. `receipt` is a path on this machine, if it is there.
    `shortened_to` is the lowest ceiling in tokens that a limit left for an answer of an agent.
    """

    run: str
    display_id: str
    pipeline: str
    step: str
    node: str
    status: str
    attempts: int
    started_at: Instant | None
    finished_at: Instant | None
    duration_s: float | None
    elapsed_s: float | None
    reason: str
    log: list[str]
    tries: list[TryPage]
    child: NotRequired[str]
    answer: NotRequired[str]
    by: NotRequired[str]
    visits: list[str]
    handler: str | None
    command: str | None
    prompt: str | None
    question: str | None
    response: str | None
    notes: str
    next: StepNext | None
    context_before: dict[str, Any]
    context_after: dict[str, Any] | None
    changed: list[str]
    artifacts: list[ArtifactListed]
    artifacts_removed: list[str]
    receipt: str | None
    shortened_to: NotRequired[int | None]
