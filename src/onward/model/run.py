"""A run as its log folds to: all that planning and showing need, and nothing that grows with age.

What a run did is in its log; what is kept here is bounded by the size of its graph and its context, so a
step costs the same after a hundred thousand events as after ten.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from onward.model.call import LimitHit
from onward.model.context import NOTHING, FrozenMap
from onward.model.events import Artifact, Managed, RunCreated, Tree, Workspace
from onward.model.gate import Choice, content_hash
from onward.model.ids import display_id


class Simulation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is played instead of being executed, and what it answers.

    `script` has entries by node; a node without entries succeeds. With `real_tools` only agents are
    simulated: commands and the app's own handlers are executed.
    """

    script: dict[str, Any] = {}
    real_tools: bool = False


def simulation_of(created: RunCreated) -> Simulation | None:
    """The simulation that a run was created with; older events know only that of agents."""
    if created.simulation is None:
        return None
    return Simulation(script=created.simulation, real_tools=not created.simulates_tools)


FOLD_VERSION = 24
DEAD_END = "dead_end"
"""Why a run is completed that did not reach the exit; the node is its detail."""
RESTARTED_AS = "restarted_as"
"""Why a run is completed that another one continues, which is its detail."""


class RunStatus(StrEnum):
    """The status of a run. Paused: stopped on request. Interrupted: stopped without a request."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


_FINAL = (RunStatus.COMPLETED, RunStatus.CANCELLED)


class AttemptState(StrEnum):
    """How an attempt without an outcome stands."""

    OPEN = "open"
    RETRYING = "retrying"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    HELD = "held"


class Frozen(msgspec.Struct, frozen=True, gc=False):
    """A value; its successor is made with `msgspec.structs.replace`."""


class OpenCall(Frozen, frozen=True, kw_only=True):
    """A call that has begun and has no answer yet. `number` is its try.

    `is_reserved`: it has a reservation in the scopes it counts in. `is_streamed`: its text grows in a
    message. `about` is what it was called with.
    """

    number: int
    type: str
    name: str
    repeatable: bool
    began_at_us: int
    model: str = ""
    is_reserved: bool = False
    is_streamed: bool = False
    about: str = ""


class StepCalls(Frozen, frozen=True, kw_only=True):
    """What is folded of a step's calls; their answers are read from the log when they are needed.

    They all come after event `since`. Those after `calls_from` are remembered, and so are answered calls
    under a user's key that must not be repeated, but for answers up to the event in `repeats`. `generation`
    counts how often the memory was cleared. `lost` are the calls, with their try, that were begun, never
    answered, and must not be repeated: the step is in doubt. `forgets`: the next attempt begins a new
    generation. `thread` is the end of the conversation of an agent's step. `has_acted`: a tool that must not
    be repeated has done its work, so the conversation is continued even by a new generation. `told` says of
    calls in `lost` what they were; `failure` is why the attempt before this generation ended.
    """

    since: int
    calls_from: int
    generation: int = 0
    open: dict[str, OpenCall] = {}
    lost: dict[str, int] = {}
    repeats: dict[str, int] = {}
    forgets: bool = False
    thread: str = ""
    has_acted: bool = False
    told: dict[str, str] = {}
    failure: str = ""
    answers: int = 0
    """How many of its requests to models are answered and remembered."""
    answers_micro: int = 0
    """What those cost."""
    cut_off: int = 0
    """How many of its requests to models were lost, and are sent again if it continues."""
    children: dict[str, str] = {}
    """The runs that calls of a flow wait for, by the keys of these."""


class OpenStep(Frozen, frozen=True, kw_only=True):
    """A step that has begun and has no outcome yet.

    `tries` counts how often this attempt has started, `starts` how often any attempt of the step has.
    `began_at_us` is when the last try started; `worked_us` is how long those before it took. `held` is why an
    attempt stopped between two calls, and `holds` how often in a row it did so for a provider. `stop` is the
    reason of its own for which a failed attempt stops the run; `thread` the key of the conversation it is in.
    `gates` are those whose answers a held attempt waits for, and `awaits` the runs whose ends. `opened_at_us`
    is when its first attempt started.
    """

    step: str
    node: str
    attempt: int
    token: int
    state: AttemptState
    repeatable: bool = True
    fidelity: str = ""
    retries_spent: int = 0
    retry_at_us: int | None = None
    reason: str = ""
    tries: int = 1
    starts: int = 1
    began_at_us: int = 0
    worked_us: int = 0
    steering: tuple[str, ...] = ()
    child: str | None = None
    calls: StepCalls | None = None
    held: str = ""
    holds: int = 0
    stop: str = ""
    thread: str = ""
    limit: LimitHit | None = None
    """The limit that held it, if one did."""
    gates: tuple[str, ...] = ()
    opened_at_us: int = 0
    awaits: tuple[str, ...] = ()

    @property
    def children(self) -> tuple[str, ...]:
        """The runs that it manages and that have not ended for it."""
        calls = () if self.calls is None else self.calls.children.values()
        return tuple(calls) if self.child is None else (self.child, *calls)


class Gate(Frozen, frozen=True, kw_only=True):
    """A stored question, open until `decided`; `answer` are the words that came with the decision.

    `question` is the hash of the question, if a call inside a step asks it. `stays`: a flow asks it.
    """

    gate: str
    node: str
    text: str
    choices: tuple[Choice, ...]
    opened_at_us: int
    type: str = "multiple_choice"
    default: str = ""
    deadline_us: int | None = None
    on_timeout: str = "none"
    remind_us: int | None = None
    metadata: dict[str, str] = {}
    about: str = ""
    question: str = ""
    stays: bool = False
    patches: tuple[str, ...] = ()
    decided: Choice | None = None
    by: str = ""
    answer: str = ""
    rejected: bool = False
    expired: bool = False

    @property
    def content_hash(self) -> str:
        """The hash of the question and its choices."""
        return content_hash(
            gate=self.gate,
            node=self.node,
            type=self.type,
            text=self.text,
            about=self.about,
            choices=self.choices,
        )


class Branch(Frozen, frozen=True, kw_only=True):
    """One sequence of steps: its context, the node it stands before, and how it came there.

    `edge` is the place of the edge it came by, None after a jump; `previous` is the node that finished last,
    `label` what that node's outcome preferred, and `reason` why it failed. `suggested` are the ids it
    suggested, kept only where no edge led to any of them. `ended` is the status with which a branch ended.
    `first_hop`: the live sessions of this branch are gone, and no agent step has finished since.
    `response` is the beginning of the last response. `tree` is its work tree at the last checkpoint that
    changed it.
    """

    context: FrozenMap[Any]
    next_node: str | None
    edge: int | None = None
    previous: str = ""
    label: str = ""
    reason: str = ""
    suggested: tuple[str, ...] = ()
    ended: str = ""
    first_hop: bool = False
    response: str = ""
    tree: Tree | None = None


class Parallel(Frozen, frozen=True, kw_only=True):
    """A fan-out under way: its branches in order, and the node at which they meet."""

    step: str
    node: str
    branches: tuple[str, ...]
    join: str | None
    policy: str
    max_parallel: int
    began_at_us: int = 0


class Fork(Frozen, frozen=True, kw_only=True):
    """Where a run came off another."""

    run_id: str
    seq: int
    hash: str


class Pending(Frozen, frozen=True, kw_only=True):
    """The requests that the holder has yet to follow."""

    cancel_by: str | None = None
    cancel_detail: str = ""
    cancel_reason: str = "user"
    pause_after: str | None = None
    pause_by: str = ""


NOTHING_PENDING = Pending()


class Ticks(Frozen, frozen=True):
    """The ticks of a run's newest steps (`machine.ticks`), in the order in which they began.

    `settled` are those that no longer change, `moving` the ones from the first on that may, by their steps.
    """

    settled: tuple[str, ...] = ()
    moving: dict[str, str] = {}


NO_TICKS = Ticks()


class Stop(Frozen, frozen=True, kw_only=True):
    """A stop of a run: event `seq`, why, the step in which it stopped, and what it had done until then.

    `ended_at_us` is when it was resumed, claimed or cancelled, and `by` the person who did, if one did.
    """

    seq: int
    at_us: int
    reason: str
    detail: str
    step: str
    steps: int
    answers: int
    cost_micro: int
    ended_at_us: int | None = None
    by: str | None = None


class Run(Frozen, frozen=True, kw_only=True):
    """The state of a run: the fold of its log up to event `head`. It does not change; ask again for news.

    `status` and `reason` give its state, `detail` the same in words; `context` has its values, `gates` its
    questions. Instants end in `_at_us`: microseconds since 1970, UTC.
    """

    id: str
    pipeline: str
    pipeline_hash: str
    path: str | None
    start_node: str
    status: RunStatus
    on_owner_loss: str
    exclusive_key: str | None
    simulation: Simulation | None
    created_at_us: int
    updated_at_us: int
    head: int
    branches: dict[str, Branch]
    reason: str = ""
    detail: str = ""
    stopped_step: str = ""
    ended_at_us: int | None = None
    wake_at_us: int | None = None
    token: int = 0
    worker: str | None = None
    last_worker: str | None = None
    parent: Fork | None = None
    visits: FrozenMap[int]
    executions: FrozenMap[int]
    outcomes: FrozenMap[str]
    retries: FrozenMap[int]
    open_steps: dict[str, OpenStep] = {}
    open_calls: int = 0
    """How many calls have begun and have no answer yet, in all steps."""
    gates: dict[str, Gate] = {}
    pending: Pending = NOTHING_PENDING
    reroutes: int = 0
    steps_finished: int = 0
    finished: tuple[str, ...] = ()
    """The newest of the steps that finished, in order; the log has all of them."""
    stops: tuple[Stop, ...] = ()
    """Its newest stops, in order; the log has all of them."""
    stops_count: int = 0
    """How many stops there were in all."""
    losses: int = 0
    lost_at: int = 0
    """The event with which the run was last claimed from a holder that had died."""
    directives: dict[str, str] = {}
    parallels: dict[str, Parallel] = {}
    priority: int = 0
    needs: tuple[str, ...] = ()
    max_running: int | None = None
    restart_of: str | None = None
    restarts: int = 0
    artifacts: FrozenMap[Artifact] = NOTHING
    threads: FrozenMap[str] = NOTHING
    """The end of each conversation that later steps continue, by its key."""
    steering: tuple[str, ...] = ()
    managed_by: Managed | None = None
    workdir: str | None = None
    """Where its commands work; None: wherever the process that executes it does."""
    variables: tuple[str, ...] = ()
    """The names of the environment variables that its commands got when it was started."""
    workspace: Workspace | None = None
    restore_workspace: bool = False
    """Whether the work tree is to be put back before the next attempt begins."""
    tags: tuple[str, ...] = ()
    chat: str | None = None
    """The conversation that the run belongs to, if it is not its own."""
    project: str | None = None
    """The project whose limits its calls count in."""
    charged_to: str | None = None
    """The run that its calls are charged to, if it is another: the first of a chain of restarts, or the run
    that manages it."""
    pipeline_version: int | None = None
    """The registered version of its pipeline, if it was started by that name."""
    max_visits: int = 0
    """How often a person lets it visit each node; what else allows more counts."""
    is_dismissed: bool = False
    """Whether a person said that this stopped run is not to be offered or resumed by itself any more."""
    tokens: int = 0
    """The tokens of its answered calls; those of a fork begin where it came off."""
    cost_micro: int = 0
    answers: int = 0
    """How many requests to models were answered, its parent's included."""
    way: tuple[str, ...] = ()
    """The nodes of the way that it is likely to take, from its start, as ticks."""
    ticks: Ticks = NO_TICKS
    trims_output: bool = False
    """Whether `tool.output` has no last newline; runs from before this was so keep theirs."""

    @property
    def display_id(self) -> str:
        """The six characters by which people call the run; commands take them for its id."""
        return display_id(self.id)

    @property
    def root(self) -> Branch:
        """The branch that every run starts with."""
        return self.branches[""]

    @property
    def context(self) -> FrozenMap[Any]:
        """The values that the run carries from step to step."""
        return self.branches[""].context

    @property
    def next_node(self) -> str | None:
        """The next node of the run; None at its end."""
        return self.branches[""].next_node

    @property
    def restarted_as(self) -> str | None:
        """The run that a loop_restart began when this one ended."""
        return self.detail if self.reason == RESTARTED_AS else None

    @property
    def ended_at_node(self) -> str | None:
        """The node without edges at which a completed run ended; None if it reached the exit."""
        return self.detail if self.reason == DEAD_END else None

    @property
    def awaits(self) -> tuple[str, ...]:
        """The runs whose ends its flows wait for, if they do nothing else."""
        return tuple(child for opened in self.open_steps.values() for child in opened.awaits)

    @property
    def is_final(self) -> bool:
        """Whether nothing can happen to the run any more: it is completed or cancelled."""
        return self.status in _FINAL
