"""The events of runs and steps: each is one immutable entry of a run's log.

An event's class name is its stored kind; kind and version select a closed schema. The events of gates are
in `model/gate.py` and those of recorded calls in `model/call.py`. Who writes a kind and what it does is in
its row in `machine/catalogue.py`; `docs/events.md` is generated from both.

First what every event is, then what events hold: the work tree of a run, its artifacts, and the end of what
an attempt printed. Then the events of whole runs: they begin, are claimed, stop, continue and end; and what
their holders are asked. Last those of steps, attempts and branches, and where the run goes next.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, ClassVar, Literal

import msgspec

from onward.model.values import Count, Instant, Number, Tags


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A fact about a run. Subclasses add fields.

    A field that is added later has a default, so that stored events still decode. A new VERSION makes older
    programs refuse the event instead of taking it for the old one.
    """

    VERSION: ClassVar[int] = 1
    BESIDE: ClassVar[frozenset[str]] = frozenset()
    """Fields that are never in the stored body: their content is stored separately."""

    @property
    def kind(self) -> str:
        return type(self).__name__


class ContextEvent(Event, frozen=True, kw_only=True):
    """An event that changes context. Large values are stored separately, by the hash of their content."""

    context: dict[str, Any] = {}
    blobs: dict[str, str] = {}


def event_kinds() -> tuple[type[Event], ...]:
    """Every kind of event: the classes below `Event` that have none below them."""
    from onward.model import call, gate  # noqa: F401 - they define kinds, and are built on this module

    return tuple(_leaves(Event))


def _leaves(kind: type[Event]) -> Iterator[type[Event]]:
    below = kind.__subclasses__()
    if not below:
        yield kind
    for one in below:
        yield from _leaves(one)


# -- the workspace: the git repository that steps change, and how far they have come there --------------
WORKTREE, IN_PLACE = "worktree", "in_place"
WORKSPACE_MODES = (WORKTREE, IN_PLACE)


def branch_name(run_id: str) -> str:
    """The git branch that the commits of a run with a work tree of its own are on."""
    return f"onward/{run_id}"


class Tree(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A work tree as a checkpoint found it.

    `head` is the commit it stood on; `commit` holds all of its files, and is another one where some were not
    committed. `ref` keeps both of them from being collected. `branch` is empty if none was checked out.
    """

    head: str
    commit: str
    ref: str = ""
    branch: str = ""


class Workspace(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Which repository a run works on, whether in a work tree of its own, and the state it begins with."""

    repository: str
    start: Tree
    mode: str = WORKTREE
    keep: bool = False


class Conflict(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A branch whose work conflicts with that of the branches before it, and the files."""

    branch: str
    files: tuple[str, ...]


class Merged(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The result of merging the work of branches: the tree after it, if it changed, and the conflicts."""

    tree: Tree | None = None
    conflicts: tuple[Conflict, ...] = ()


NOTHING_MERGED = Merged()


# -- artifacts: named content that a run keeps beside its context, however large ------------------------
ArtifactForm = Literal["bytes", "text", "json"]

ARTIFACT_BYTES_MAX = 64 * 1024 * 1024
STEP_BYTES_MAX = 128 * 1024 * 1024
"""All that one step stores goes into one transaction."""
ARTIFACTS_MAX = 1_000
"""A run's state holds a line for each, so there is an end to them; one id may be stored again and again."""
ARTIFACT_ID_MAX = 200


class Artifact(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What is known of an artifact. Its content is the blob `hash`; `form` is what was handed over."""

    name: str
    size: int
    hash: str
    stored_at_us: int
    step: str
    form: ArtifactForm = "bytes"


# -- the last lines that an attempt printed, and where its handler raised an error -----------------------
STDOUT, STDERR = "stdout", "stderr"
OUTPUT_LINES_MAX, OUTPUT_LINE_CHARACTERS_MAX = 50, 500
TRACEBACK_CHARACTERS_MAX = 8_000


class PrintedLine(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """One line of a command, shortened if it is long."""

    text: str
    stream: str = STDOUT


class LastOutput(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The last lines of both streams, in the order in which they came, and the error of a handler.

    `error` is the type of the error that the handler raised, and `traceback` where that was.
    """

    lines: tuple[PrintedLine, ...] = ()
    error: str = ""
    traceback: str = ""

    def ending(self, count: int) -> list[str]:
        """The last `count` lines for a person: of the traceback, or else of what was printed."""
        if self.traceback:
            return self.traceback.splitlines()[-count:]
        return [line.text for line in self.lines[-count:]]


# -- whole runs ------------------------------------------------------------------------------------------
class Managed(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Which step of which run manages this run, and how many managers are above it.

    `call` is the key of the call that waits for it, if the step is a flow.
    """

    run: str
    step: str
    depth: Number = 1
    call: str = ""


class RunCreated(ContextEvent, frozen=True, kw_only=True):
    """A run was created: its pipeline, first node and context. The first checkpoint.

    `simulation` is the script of a simulated run; `simulates_tools`: no command and no handler of the app is
    executed either. `trims_output`: its tools' output has no last newline; in runs from before, it has.
    `wake_at_us`: it is due then, and not at once. Its calls are charged to another run if `charged_to` names
    one. `pipeline_version` is there if the pipeline was found by its registered name. A node may be visited
    `max_visits` times, if that is more often than it could be otherwise. `plan` are the nodes of the way that
    it is likely to take.
    """

    pipeline: str
    pipeline_hash: str
    start_node: str
    path: str | None = None
    on_owner_loss: str = "interrupt"
    exclusive_key: str | None = None
    simulation: dict[str, Any] | None = None
    simulates_tools: bool = False
    version: str = ""
    priority: Number = 0
    needs: tuple[str, ...] = ()
    max_running: Number | None = None
    restart_of: str | None = None
    restarts: Count = 0
    managed_by: Managed | None = None
    workdir: str | None = None
    workspace: Workspace | None = None
    trims_output: bool = False
    variables: tuple[str, ...] = ()
    tags: Tags = ()
    wake_at_us: Instant | None = None
    chat: str | None = None
    project: str | None = None
    charged_to: str | None = None
    pipeline_version: Number | None = None
    max_visits: Number = 0
    plan: tuple[str, ...] = ()


class RunForked(ContextEvent, frozen=True, kw_only=True):
    """This run continues from another run's event; everything before is that run's log."""

    parent: str
    parent_seq: Number
    parent_hash: str
    by: str
    on_owner_loss: str = "interrupt"
    exclusive_key: str | None = None


class RunClaimed(Event, frozen=True, kw_only=True):
    """A process holds the run now. `lost`: the last holder had died, or had stopped executing it."""

    token: Count
    worker: str
    lost: bool = False


class PipelineChanged(Event, frozen=True, kw_only=True):
    """A person accepted that the run continues with a changed definition. `plan` is its likely path."""

    pipeline_hash: str
    before: str
    by: str
    plan: tuple[str, ...] = ()


class WorkdirChanged(Event, frozen=True, kw_only=True):
    """A person chose another working directory for the commands of the run."""

    workdir: str
    before: str | None
    by: str


class PauseRequested(Event, frozen=True, kw_only=True):
    """The holder was asked to stop after the step, after the call, or now."""

    after: str
    by: str


class CancelRequested(Event, frozen=True, kw_only=True):
    """The holder was asked to cancel the run; `detail` is why, in free text."""

    by: str
    detail: str = ""
    reason: str = "user"


class SteeringGiven(Event, frozen=True, kw_only=True):
    """An instruction for the run's agents; the next agent step takes it."""

    text: str
    by: str


class RunWaiting(Event, frozen=True, kw_only=True):
    """Only gates are open; the lease is released. The wake time is the first deadline with a rule.

    Version 1 had no wake time.
    """

    VERSION: ClassVar[int] = 2

    wake_at_us: Instant | None = None


class RunQueued(Event, frozen=True, kw_only=True):
    """Released, to be claimed again at the wake time."""

    why: str
    wake_at_us: Instant


class RunPaused(Event, frozen=True, kw_only=True):
    """Stopped on request."""

    reason: str
    detail: str = ""


class RunInterrupted(Event, frozen=True, kw_only=True):
    """Stopped without a request."""

    reason: str
    detail: str = ""
    wake_at_us: Instant | None = None


class RunFailed(Event, frozen=True, kw_only=True):
    """Stopped because the run cannot continue."""

    reason: str
    detail: str = ""
    step: str = ""


class RunResumed(Event, frozen=True, kw_only=True):
    """A person resumed a stopped run: from where, and what happens to the step it stopped in.

    `repeats` are calls of that step that a person allows to be repeated, although they were answered. With
    `keeps_calls`, what its calls answered stays answered: a `retry` repeats only what is in doubt, and a
    `skip` only leaves open what the uses of tools in doubt came to. From now
    on a node may be visited `max_visits` times, if that is more often than it could be before.
    """

    by: str
    from_node: str | None = None
    action: str | None = None
    step: str | None = None
    restore_workspace: bool = False
    repeats: tuple[str, ...] = ()
    max_visits: Number = 0
    keeps_calls: bool = False


class RunDismissed(Event, frozen=True, kw_only=True):
    """A person dismissed a stopped run: it is no longer offered, but can still be resumed by name."""

    by: str


class RunCompleted(Event, frozen=True, kw_only=True):
    """The exit was reached, the graph ended elsewhere, or a loop_restart started another run. Final.

    `ended_at` is the node at which the graph ended: it has no edges and is not the exit.
    """

    restarted_as: str = ""
    ended_at: str = ""


class RunCancelled(Event, frozen=True, kw_only=True):
    """Cancelled for good. Final. `detail` is why, in free text."""

    reason: str
    by: str = ""
    detail: str = ""


# -- steps, attempts and branches ------------------------------------------------------------------------
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
    attempt: Count
    repeatable: bool = True
    fidelity: str = ""
    degraded_from: str = ""
    thread: str = ""
    parent: str | None = None
    key: str | None = None
    definition: str | None = None
    steering: Count = 0
    child: str | None = None


class AttemptFailed(Event, frozen=True, kw_only=True):
    """An attempt ended without an outcome for its step; it is retried, or a person must decide.

    `output` is the end of what it printed, and the traceback of a handler that raised an error.
    `keeps_calls`: the next attempt gets the answers of this one's calls; otherwise the handler itself said
    that it failed. `stop` is the reason for which the run stops, if it is one of its own.
    """

    step: str
    attempt: Count
    status: StepStatus
    reason: str
    retry_at_us: Instant | None = None
    log: tuple[str, ...] = ()
    output: LastOutput | None = None
    keeps_calls: bool = False
    stop: str = ""


class RunningCall(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A call of a flow whose function still runs: its try, where it runs, and what it was called with."""

    call: str
    number: Count = msgspec.field(name="try")
    where: str = ""
    about: str = ""
    inputs: str = ""
    patches: tuple[str, ...] = ()


class AttemptInterrupted(Event, frozen=True, kw_only=True):
    """An attempt was stopped before it ended; what it did outside is unknown.

    `in_doubt`: part of it may still be running, so the step starts again only when a person says so.
    `running`: only these calls of a flow are in doubt.
    """

    step: str
    attempt: Count
    why: str
    in_doubt: bool = False
    output: LastOutput | None = None
    running: tuple[RunningCall, ...] = ()


class StepFinished(ContextEvent, frozen=True, kw_only=True):
    """A step has its final outcome: result, context changes and the chosen edge. A checkpoint.

    `response` is what an agent answered, a long one by its hash. `artifacts` are those that the step stored,
    and None for each that it removed; `contents` are theirs, by hash, on the way to the store. `workspace` is
    the work tree after it, if that has changed. `output` is kept of an attempt that failed.
    """

    BESIDE: ClassVar[frozenset[str]] = frozenset({"contents"})

    step: str
    node: str
    attempt: Count
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
