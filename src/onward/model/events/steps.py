"""Events of steps and their attempts, of branches, and where the run goes next."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from onward.model.attempt.artifact import Artifact
from onward.model.attempt.output import LastOutput
from onward.model.events.event import ContextEvent, Event
from onward.model.values.bounds import Instant, Number
from onward.model.workspace import Tree


class StepStatus(StrEnum):
    """How a step ended."""

    SUCCESS = "success"
    PARTIAL_SUCCESS = "partial_success"
    RETRY = "retry"
    FAIL = "fail"
    SKIPPED = "skipped"


class Outcome(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A step's result, without its context changes."""

    status: StepStatus
    preferred_label: str = ""
    suggested_next_ids: tuple[str, ...] = ()
    notes: str = ""
    failure_reason: str = ""


class Transition(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Where the run goes next and why; `edge` is the edge's index in the graph, None for a jump."""

    to: str
    reason: str
    edge: Number | None = None


class BranchPlan(msgspec.Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """A branch that a fan-out opens: its id, its first node, the edge that leads there."""

    path: str
    to: str
    edge: Number


class StepStarted(Event, frozen=True, kw_only=True):
    """An attempt of a step is about to start.

    `steering` says how many of the waiting instructions it takes; `child` is the run that it manages.
    """

    step: str
    node: str
    attempt: Number
    repeatable: bool = True
    fidelity: str = ""
    degraded_from: str = ""
    thread: str = ""
    parent: str | None = None
    key: str | None = None
    definition: str | None = None
    steering: Number = 0
    child: str | None = None


class AttemptFailed(Event, frozen=True, kw_only=True):
    """An attempt ended without an outcome for its step; it is retried, or a person must decide.

    `output` is the end of what it printed, and the traceback of a handler that raised an error.
    `keeps_calls`: the next attempt gets the answers of this one's calls; otherwise the handler itself said
    that it failed. `stop` is the reason for which the run stops, if it is one of its own.
    """

    step: str
    attempt: Number
    status: StepStatus
    reason: str
    retry_at_us: Instant | None = None
    log: tuple[str, ...] = ()
    output: LastOutput | None = None
    keeps_calls: bool = False
    stop: str = ""


class AttemptInterrupted(Event, frozen=True, kw_only=True):
    """An attempt was stopped before it ended; what it did outside is unknown.

    `in_doubt`: part of it may still be running, so the step starts again only when a person says so.
    """

    step: str
    attempt: Number
    why: str
    in_doubt: bool = False
    output: LastOutput | None = None


class StepFinished(ContextEvent, frozen=True, kw_only=True):
    """A step has its final outcome: result, context changes and the chosen edge. A checkpoint.

    `response` is what an agent answered, a long one by its hash. `artifacts` are those that the step stored,
    and None for each that it removed; `contents` are theirs, by hash, on the way to the store. `workspace` is
    the work tree after it, if that has changed. `output` is kept of an attempt that failed.
    """

    BESIDE: ClassVar[frozenset[str]] = frozenset({"contents"})

    step: str
    node: str
    attempt: Number
    outcome: Outcome
    grown: dict[str, Any] = msgspec.field(default_factory=dict)
    next: Transition | None = None
    log: tuple[str, ...] = ()
    response: str = ""
    response_blob: str = ""
    artifacts: dict[str, Artifact | None] = msgspec.field(default_factory=dict)
    contents: dict[str, bytes] = msgspec.field(default_factory=dict)
    workspace: Tree | None = None
    output: LastOutput | None = None


class ParallelStarted(Event, frozen=True, kw_only=True):
    """A fan-out opened its branches, each with its own copy of the context."""

    step: str
    node: str
    branches: tuple[BranchPlan, ...]
    join: str | None
    policy: str
    max_parallel: Number


class BranchFinished(Event, frozen=True, kw_only=True):
    """A branch has reached the join, failed for good, or lost the race."""

    branch: str
    status: str
    reason: str = ""


class StepRouted(Event, frozen=True, kw_only=True):
    """A finished step that could take no edge has one now: the pipeline or the context has changed since."""

    step: str
    next: Transition


class GoalRedirected(Event, frozen=True, kw_only=True):
    """The exit was reached with an unmet goal gate, and the run goes back."""

    gate: str
    next: Transition
