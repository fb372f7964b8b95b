"""Replies with what happened in a run, step by step.

First what steps leave beside their results: artifacts, effects and calls. Then how far open steps have come
inside, the pages of a whole run and of one step, and a graph with a run in it or without, which
`onward graph --json` prints.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from onward.replies.runs import Instant, LeftShown, RunNamed, RunState


class ArtifactListed(TypedDict):
    """What is known of an artifact; `form` is what the step handed over: bytes, text or json."""

    id: str
    name: str
    size_bytes: int
    stored_at: Instant
    form: str
    step: str
    hash: str


class ArtifactList(TypedDict):
    """The artifacts of a run, by id."""

    run: str
    display_id: str
    artifacts: list[ArtifactListed]


class ArtifactContent(ArtifactListed):
    """An artifact with its content: text as it is, bytes in base64."""

    content: NotRequired[str]
    content_base64: NotRequired[str]


class CallUsageShown(TypedDict):
    """The tokens of a request: `reasoning` is part of `output`, `cached` and `cache_write` of `input`."""

    input: int
    output: int
    cached: int
    reasoning: int
    cache_write: int


class EstimateShown(TypedDict):
    """What a call was charged whose cost is not known: what it had reserved. `cost` is in units of money."""

    tokens: int
    cost: float


_NumberedTry = TypedDict("_NumberedTry", {"try": int})
"""Apart because `try` cannot be the name of a field in a class."""


class CallListed(_NumberedTry):
    """One try of a call inside a step; `state` is open, ok, error or lost.

    `is_gone`: it is open, but the process that made it is gone; whoever continues the run records it as lost.
    """

    step: str
    attempt: int
    call: str
    type: str
    name: str
    state: str
    repeatable: bool
    began_at: Instant | None
    ended_at: Instant | None
    duration_s: float | None
    model: str
    usage: CallUsageShown | None
    cost: float | None
    estimated: EstimateShown | None
    shortened_to: int | None
    about: str
    is_gone: bool
    request_id: str
    error: str
    note: str
    by: str


class CallList(TypedDict):
    """The calls inside the steps of a run, in the order in which they began; `cursor` gets the next page."""

    run: str
    display_id: str
    calls: list[CallListed]
    cursor: int | None


class FindingShown(TypedDict):
    """A receipt that the log does not stand for, or that is missing."""

    kind: str
    file: str
    says: str


class ReceiptList(TypedDict):
    """The receipts on disk that match a run's log; `found` are those that contradict it."""

    run: str
    display_id: str
    receipts: list[dict[str, Any]]
    found: list[FindingShown]


class LogPiece(TypedDict):
    """Some of what a try printed. `stream` is stdout, stderr, log or traceback.

    `source`: `file` is the whole output, on this machine; `log` are the last lines, with the event that ended
    the try; `context` is the standard output that became `tool.output`.
    """

    step: str
    attempt: int
    number: int
    stream: str
    text: str
    source: Literal["file", "log", "context"]


class PrintedShown(TypedDict):
    """The end of what a run printed, step by step; `is_cut`: there was more before it."""

    run: str
    display_id: str
    is_cut: bool
    pieces: list[LogPiece]


class CommandEnded(TypedDict):
    """How a command ended; `truncated`: only the end of its output is here."""

    exit_code: int | None
    signal: int | None
    stdout: str
    stderr: str
    truncated: bool


class EffectShown(TypedDict):
    """How an effect stands: absent, begun, in_doubt, finished or forgotten."""

    key: str
    state: str
    owner: str | None
    begun_at: Instant | None
    finished_at: Instant | None
    result: dict[str, Any] | None


class CallProgress(TypedDict):
    """A call of a step that is not over; `state` is ok, open or lost.

    `result` is what it answered, if that is small and not a model's text.
    """

    call: str
    type: str
    name: str
    state: str
    result: Any


class StepProgress(TypedDict):
    """What an open step has of its calls: whoever continues it begins with that.

    `rounds` counts the answered requests to its model; the next one is `rounds + 1`, of `rounds_max`.
    `message` is the last message that its calls wrote in the chat.
    """

    step: str
    attempt: int
    state: str
    model: str
    rounds: int
    rounds_max: int | None
    message: str | None
    text: str
    reasoning: str
    calls: list[CallProgress]
    held_by: str | None
    held_since: Instant | None


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


class StepOutline(TypedDict):
    """A step without its tries: what came of it.

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
    child: NotRequired[str]
    answer: NotRequired[str]
    by: NotRequired[str]


class StepShown(StepOutline):
    """A step: what came of it, and every try of its attempts.

    `duration_s` is how long the tries took together, `elapsed_s` the time from first start to outcome.
    """

    tries: list[TryShown]


class ForkListed(RunNamed):
    """A run that was forked from another."""

    seq: int


class ChildListed(RunNamed):
    """A run that a step of another manages; `restart_of` names the child that it continues."""

    step: str
    restart_of: str | None


class TimelineRow(TypedDict):
    """A row of a run's timeline: a step, one of its attempts, a call, or a branch of a fan-out.

    `parent` is the key of the row that it is below. `state` is finished, failed, open, waiting, interrupted,
    skipped or planned; planned rows come last. `cost`, in millionths of a dollar, is null where none is
    known: no model was asked, or one without a price.
    """

    key: str
    parent: str | None
    kind: str
    label: str
    detail: str
    state: str
    began_at: Instant | None
    ended_at: Instant | None
    step: str | None
    tokens: int
    cost: int | None


class RunPage(RunState):
    """A run with all that happened in it; `left` is what its steps in doubt left behind.

    `completed` are all steps that finished, in order.
    `progress` is how far its open steps have come with their calls. `timeline` is everything in the order in
    which it began.
    """

    steps: list[StepShown]
    progress: list[StepProgress]
    left: list[LeftShown]
    forks: list[ForkListed]
    children: list[ChildListed]
    timeline: list[TimelineRow]


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


class StepPage(StepOutline):
    """Everything about one step.

    `visits` are all steps of its node. `handler` serves it, and `command` is what a tool runs. `changed` are
    the context values that are not the same after it. `receipt` is a path on this machine, if it is there.
    `shortened_to` is the lowest ceiling in tokens that a limit left for an answer of an agent.
    """

    run: str
    display_id: str
    pipeline: str
    tries: list[TryPage]
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


class DrawnNode(TypedDict):
    """A node of a graph, and how it stands in the run; null where no run is shown."""

    id: str
    label: str
    kind: str
    shape: str
    state: str | None
    visits: int | None
    retries: int | None
    next: bool | None
    note: str | None


class DrawnEdge(TypedDict):
    """An edge between two nodes, and how often the run took it."""

    source: str
    target: str
    label: str
    condition: str
    loops_back: bool
    taken: int | None


class DrawnJump(TypedDict):
    """A move of the run that no edge stands for."""

    source: str
    target: str
    taken: int | None


class DrawnRun(RunNamed):
    """The run that a graph shows."""

    reason: str
    next: str | None


class SceneShown(TypedDict):
    """The nodes and edges of a graph, and how they stand in a run."""

    rankdir: str
    start: str | None
    nodes: list[DrawnNode]
    edges: list[DrawnEdge]
    jumps: list[DrawnJump]


class NodeBox(TypedDict):
    """The place of a node in a picture; `x` and `y` are its top left. `step` is its last visit, if any."""

    id: str
    label: str
    kind: str
    shape: str
    x: float
    y: float
    w: float
    h: float
    state: str | None
    step: str | None


_EdgeEnds = TypedDict("_EdgeEnds", {"from": str, "to": str})
"""Apart because `from` cannot be the name of a field in a class."""


class EdgePath(_EdgeEnds):
    """The line of an edge in a picture: `path` is SVG path data, and the middle of its label."""

    label: str
    path: str
    label_x: float | None
    label_y: float | None
    taken: bool


class Geometry(TypedDict):
    """Where everything of a graph stands in a picture of this size."""

    width: float
    height: float
    nodes: list[NodeBox]
    edges: list[EdgePath]


class Drawing(SceneShown):
    """A pipeline's graph, with a run in it or without; `geometry` is how it is laid out."""

    pipeline: str
    pipeline_hash: str
    path: str | None
    run: DrawnRun | None
    geometry: Geometry
