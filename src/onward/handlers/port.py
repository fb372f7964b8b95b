"""What a handler is given and what it promises.

A handler is called with one attempt of one step and returns a Result. After a crash it may be called again
for the same step, with the same `idempotency_key`, so that an effect outside can happen once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol, runtime_checkable

from msgspec.structs import replace

from onward.clock import NO_DEADLINE, Clock, Deadline, SystemClock
from onward.errors import InvalidInput
from onward.handlers.asked import AgentAsked
from onward.handlers.calls import NO_LOG, AttemptLog, RecordedCalls, Recorder
from onward.handlers.room import Artifacts, AttemptOutput, PreviousAttempt, Room, ShowLine
from onward.handlers.user_functions import Functions
from onward.model.chat import EarlierMessage, chat_of_run
from onward.model.context import FrozenMap, as_told, copied, engine_values, expand, plain_text
from onward.model.events import StepStarted
from onward.model.ids import branch_of, idempotency_key, place_of
from onward.model.result import LOG_LINES_MAX, Result
from onward.model.run import Run
from onward.pipeline.graph import Graph, Node
from onward.redact.redactor import NOTHING_SECRET, Redactor

_creating = threading.Lock()


class StepContext(RecordedCalls):
    """One attempt of one step, as a handler sees it; values are computed when they are read.

    `node` is the step's node (`id`, `label`, `text(attribute)`), `graph` the whole pipeline. `workspace` is
    the work tree that the step changes, if the run has one. `stopping` is an `asyncio.Event` that is set when
    the run should stop soon: a handler that can continue later may return early.
    """

    __slots__ = (
        "_output",
        "_prompt",
        "_run",
        "_show",
        "asked",
        "deadline",
        "graph",
        "lines",
        "node",
        "room",
        "stopping",
        "workspace",
    )

    def __init__(
        self,
        run: Run,
        started: StepStarted,
        graph: Graph,
        *,
        room: Room,
        stopping: asyncio.Event,
        workspace: str | None = None,
        deadline: Deadline = NO_DEADLINE,
        functions: Functions | None = None,
        clock: Clock | None = None,
        output: AttemptOutput | None = None,
        show: ShowLine | None = None,
        log: AttemptLog = NO_LOG,
        redactor: Redactor = NOTHING_SECRET,
    ) -> None:
        self._run, self._started, self.graph, self.node = run, started, graph, graph.nodes[started.node]
        self.room = room
        self.functions = functions or Functions(idempotency_key(run.id, started.step), clock or SystemClock())
        """The functions of users that the step calls."""
        self._output, self._show = output, show
        self.workspace = workspace
        """The work tree that the step changes, if the run has a workspace."""
        self.deadline = deadline
        """When every process of this attempt must have ended; each renewal of the lease moves it."""
        self.stopping = stopping
        """Set when the run should stop soon: a handler that can continue later may end early."""
        self.redactor = redactor
        """Knows the secrets that must not be stored; `add` what becomes known on the way, such as a key."""
        self.lines: list[str] = []
        self._prompt: str | None = None
        self._log = log
        self.asked: AgentAsked | None = None
        """What an agent in a flow is asked; None for the steps of nodes."""
        self.recorded: Recorder | None = None
        """Records the calls of the attempt, once it has made one."""

    @property
    def output(self) -> AttemptOutput:
        """Hears what the commands of the step print."""
        return self._make_output() if self._output is None else self._output

    def _make_output(self) -> AttemptOutput:
        with _creating:  # a handler's thread may be the first to ask, and another one the second
            if self._output is None:
                show = None if self._show is None else partial(self._show, self.step)
                self._output = AttemptOutput(self.room, show, redactor=self.redactor)
            return self._output

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run.id

    @property
    def pipeline(self) -> str:
        """The name of the pipeline."""
        return self._run.pipeline

    @property
    def step(self) -> str:
        """The id of the step: `node#visit`, in a branch `branch/node#visit`."""
        return self._started.step

    @property
    def attempt(self) -> int:
        """The number of the attempt: 1, 2, 3. Each retry is the next one; a crash does not use one up."""
        return self._started.attempt

    @property
    def execution(self) -> int:
        """The number of attempts of this node so far, over all visits, including this one."""
        return self._run.executions.get(place_of(self.step), 1)

    @property
    def idempotency_key(self) -> str:
        """The same on every attempt of the step."""
        return idempotency_key(self.run_id, self.step)

    @property
    def trims_output(self) -> bool:
        """Whether the output of this run's tools is recorded without its last newline."""
        return self._run.trims_output

    @property
    def fidelity(self) -> str:
        """How much of the history an agent step sees: full, truncate, compact or a summary."""
        return self._started.fidelity

    @property
    def thread(self) -> str:
        """The key of the conversation that a step with the fidelity `full` continues."""
        return self._started.thread

    @property
    def is_continued(self) -> bool:
        """Whether the run was resumed with --continue, to use what the previous attempt left."""
        return self._run.directives.get(self.step) == "continue"

    @property
    def left(self) -> PreviousAttempt | None:
        """What the previous attempt left, if the run was resumed with --continue; else None."""
        return self.room.left if self.is_continued else None

    @property
    def values(self) -> FrozenMap[Any]:
        """The context values of the step's branch, as they are stored; `context` is a copy to work with."""
        return self._run.branches[branch_of(self.step)].context

    @property
    def retries(self) -> int:
        """How many retries of this step were spent before this attempt."""
        return self._run.open_steps[self.step].retries_spent

    @property
    def opened_at_us(self) -> int:
        """When the first attempt of the step started, in microseconds since 1970."""
        return self._run.open_steps[self.step].opened_at_us

    @property
    def steering(self) -> tuple[str, ...]:
        """Instructions given while the run was running, for an agent to follow."""
        if self.asked is not None:  # what agents of the flow were told is in their conversations
            return ()
        return self._run.open_steps[self.step].steering

    @property
    def workdir(self) -> str | None:
        """The working directory of the run's commands, if one was given."""
        return self._run.workdir

    @property
    def scopes(self) -> tuple[str, ...]:
        """Where the step's calls count: its run, or the run it is charged to, its chat and its project."""
        run = self._run
        chat = () if run.chat is None else (f"chat/{run.chat}",)
        project = () if run.project is None else (f"project/{run.project}",)
        return (*chat, *project, f"run/{run.charged_to or run.id}")

    @property
    def chat(self) -> str:
        """The chat of the run's messages: that of its conversation, or its own."""
        return self._run.chat or chat_of_run(self._run.id)

    @property
    def child(self) -> str | None:
        """The run that a managing step manages."""
        return self._started.child

    def asking(self, seen: Mapping[str, Any], *, execution: int) -> StepContext:
        """The same attempt with more in its context, for a handler that calls another one."""
        run, path = self._run, branch_of(self.step)
        branch = replace(run.branches[path], context=self.values.with_all(seen))
        told = replace(
            run,
            branches={**run.branches, path: branch},
            executions=run.executions.with_(place_of(self.step), execution),
        )
        return StepContext(
            told,
            self._started,
            self.graph,
            room=self.room,
            stopping=self.stopping,
            workspace=self.workspace,
            deadline=self.deadline,
            functions=self.functions,
            output=self.output,
            log=_LogOf(self),
            redactor=self.redactor,
        )

    def for_agent(self, node: Node, asked: AgentAsked, recorder: Recorder) -> StepContext:
        """The same attempt for an agent of a flow, with a node and calls of its own."""
        context = StepContext(
            self._run,
            self._started,
            self.graph,
            room=self.room,
            stopping=self.stopping,
            workspace=self.workspace,
            deadline=self.deadline,
            functions=self.functions,
            output=self.output,
            log=_LogOf(self),
            redactor=self.redactor,
        )
        context.node, context.asked, context.recorded = node, asked, recorder
        context._prompt, context.lines = asked.prompt, self.lines
        return context

    @property
    def agent(self) -> Handler | None:
        """What serves agent steps here; None if nothing does."""
        return self._log.agent

    @property
    def directory(self) -> str | None:
        """The attempt's own directory, created at the first use; None if files are off.

        Files in its `artifacts/` become artifacts of the run, and `status.json` gives the outcome of the
        step, unless the handler returns a Result.
        """
        return self.room.directory

    @property
    def run_directory(self) -> str | None:
        """The directory of the whole run; None if files are off."""
        return self.room.run_directory

    @property
    def artifacts(self) -> Artifacts:
        """Named content of any size that the run keeps, for this step and those after it."""
        return self.room.artifacts

    @property
    def context(self) -> dict[str, Any]:
        """A copy of the run's context; only what the handler returns changes the context."""
        return {**copied(self.values), **engine_values(self.node.id, self.retries)}

    def get(self, key: str, default: Any = None) -> Any:
        """One context value, as a copy."""
        own = engine_values(self.node.id, self.retries)
        if key in own:
            return own[key]
        return copied({key: self.values[key]})[key] if key in self.values else default

    async def preamble(self, mode: str = "") -> str:
        """The summary of the run so far for a new session, under this step's fidelity or another.

        Reads the end of the log when it is called. Empty under `full`, where the session itself has the
        history. For a continued step it ends with what the previous attempt left, under every fidelity.
        """
        if self.asked is not None:  # a flow tells its agents what they need
            return ""
        text, left = await self._log.recall(mode), self.left
        return text if left is None else "\n\n".join(filter(None, (text, left.summary())))

    async def chat_history(self) -> tuple[EarlierMessage, ...]:
        """The messages of the run's chat before the run, as far as the node's `chat_history` includes them.

        Oldest first: each has a `role`, `user` or `assistant`, and a `text`. An agent's conversation starts
        with them.
        """
        count = self.node.chat_history
        return await self._log.remember(count) if count else ()

    def log(self, text: str) -> None:
        """Record a line for people who read the run later; it is stored when the attempt ends."""
        if len(self.lines) <= LOG_LINES_MAX:  # one more than are kept, to say that there were more
            self.lines.append(plain_text(text, "a line for the log"))

    @property
    def goal(self) -> str:
        """What the pipeline is for."""
        return self.graph.goal

    @property
    def prompt(self) -> str:
        """The node's instruction (its prompt, or else its label) with the values that it names.

        A name that is not in the context is left unchanged, and the step's log says so.
        """
        if self._prompt is None:
            branch = self._run.branches[branch_of(self.step)]
            told = as_told(branch.context, branch.response, self.node.id, self.retries)
            self._prompt, unknown = expand(self.node.instruction, told)
            for name in unknown:
                self.log(
                    f"the prompt names ${name}, which is not in the context; the name is left in the prompt"
                )
        return self._prompt


class _LogOf:
    """The log of a step, for another context of the same attempt: both have one recorder."""

    def __init__(self, step: StepContext) -> None:
        self._step = step

    async def recall(self, mode: str) -> str:
        return await self._step._log.recall(mode)

    async def remember(self, count: int) -> tuple[EarlierMessage, ...]:
        return await self._step._log.remember(count)

    def open_recorder(self, functions: Functions) -> Recorder:
        return self._step.recorder

    @property
    def agent(self) -> Handler | None:
        return self._step.agent


def close_attempt(step: StepContext) -> None:
    """The attempt is over: it starts nothing more, and prints nothing more."""
    if step.functions.is_open:  # it is closed as soon as its handler has returned
        step.functions.close()
    if step._output is not None:
        step._output.close()


class Postponed(Exception):
    """Raised by a handler that stopped on request; its step runs again when the run continues."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(why)


@runtime_checkable
class ChecksNodes(Protocol):
    """A handler that can tell before a run begins whether it can serve a node."""

    def check_node(self, node: Node) -> None:
        """InvalidInput if it cannot."""
        ...


@runtime_checkable
class ChecksAnswers(Protocol):
    """A handler that knows what its calls may answer."""

    def check_answers(self, answers: Mapping[str, Any]) -> None:
        """InvalidInput if a person says of a call in doubt that it answered something else."""
        ...


class Handler(Protocol):
    """Does the work of a step."""

    @property
    def keeps_time(self) -> bool:
        """Whether the handler itself enforces the node's time limit."""
        ...

    async def run(self, step: StepContext) -> Result:
        """Run one attempt. A cancellation counts as a crash: do nothing important after it."""
        ...


RESPONSE_CHARACTERS = 200
_NOTHING_SAID = Result(is_decided=False)


def as_result(returned: object, node_id: str) -> Result:
    """The Result for what a function returned: a Result, nothing, a text, or context updates."""
    match returned:
        case Result():
            return returned
        case None:
            return _NOTHING_SAID
        case str():
            return text_result(returned, node_id)
        case dict():
            return Result(context_updates=returned, is_decided=False)
        case _:
            raise InvalidInput(
                f"the handler of node {node_id!r} returned a {type(returned).__name__}; "
                "return a Result, a string, a dict of context updates, or None."
            )


def text_result(text: str, node_id: str) -> Result:
    """Success with a text, and the context keys that the dialect sets for it."""
    told = {"last_stage": node_id, "last_response": text[:RESPONSE_CHARACTERS]}
    return Result(context_updates=told, response=text, is_decided=False)
