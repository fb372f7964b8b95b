"""The reply about one step of a run."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from onward.operations.instant import Instant
from onward.operations.kept import ArtifactListed
from onward.operations.replies import TryShown


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
