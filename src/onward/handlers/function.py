"""A Python function as a handler: in this process, or isolated in a process of its own.

An isolated function is a plain one. Its process can be ended at any time, with everything that it started.
It runs like a command of a step, below a supervisor, so it dies with this process too. It imports the
function by its module's name.

The messages between Onward and that process are JSON with closed schemas. The request comes on standard
input. The answer goes to standard output, which the function cannot use: what it prints goes to standard
error. `isolated_child` is the program; it calls `answer_to` here.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import CoroutineType, FrameType
from typing import Any

import msgspec

from onward.errors import InvalidInput, OnwardError, kind_of, said
from onward.errors import told as error_told
from onward.handlers.port import StepContext, as_result
from onward.handlers.room import traceback_of
from onward.handlers.user_functions import without_exit
from onward.model.context import check_updates, plain_text
from onward.model.events import STDERR
from onward.model.result import LOG_LINES_MAX, Result
from onward.process import CommandExit, Spawn
from onward.threads import Culprit

Returned = Result | str | dict[str, Any] | None
Function = Callable[[StepContext], Returned | Awaitable[Returned]]


class FunctionHandler:
    """Calls a function: an async one in the event loop, any other in its own thread."""

    keeps_time = False

    def __init__(self, function: Function) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - the method, to see whether it is async
        )

    async def run(self, step: StepContext) -> Result:
        returned: Any
        if self._is_async:
            returned = self._function(step)
        else:
            returned = await step.functions.call(self._function, step)
        if isinstance(returned, CoroutineType) or inspect.isawaitable(returned):  # the second is slow
            # In a separate task only if there is a time limit: a task costs a third of a short step.
            if step.node.timeout_s is not None:
                returned = step.functions.attend(self.name, returned)
            returned = await returned
        return as_result(returned, step.node.id)

    @property
    def name(self) -> str:
        """What the function is called in its module."""
        name: str = getattr(self._function, "__qualname__", type(self._function).__qualname__)
        return name


def find_culprit(frame: FrameType) -> Culprit | None:
    """The async handler that is being executed in a thread, by the innermost frame of that thread."""
    at: FrameType | None = frame
    while at is not None:
        if at.f_code is FunctionHandler.run.__code__:
            handler, step = at.f_locals["self"], at.f_locals["step"]
            return _culprit(handler.name, step.run_id, step.step, (at, frame))
        if at.f_code is without_exit.__code__:
            run_id, _, step_id = at.f_locals["key"].partition("/")
            return _culprit(at.f_locals["name"], run_id, step_id, (at, frame))
        at = at.f_back
    return None


def _culprit(handler: str, run_id: str, step: str, stack: tuple[FrameType, FrameType]) -> Culprit:
    words = f"the handler {handler} of step {step} of run {run_id}"
    return Culprit(words, {"run": run_id, "step": step, "handler": handler}, *stack)


REQUEST_BYTES_MAX = ANSWER_BYTES_MAX = 64 * 1024 * 1024
ERROR_CHARACTERS = 1 << 20
"""What is sent of an error: far more than is kept, so that half of a secret at the cut is not kept."""


class Closed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Refuses unknown fields."""


class IsolatedNode(Closed, frozen=True, kw_only=True):
    """The step's node, with its attributes as texts."""

    id: str
    label: str
    attributes: dict[str, str]

    def text(self, key: str, default: str = "") -> str:
        """The attribute as text, or `default` if it was not written."""
        return self.attributes.get(key, default)


class IsolatedStep(Closed, frozen=True, kw_only=True):
    """One attempt of one step for an isolated function: the fields of a StepContext as plain values."""

    run_id: str
    pipeline: str
    step: str
    node: IsolatedNode
    attempt: int
    execution: int
    retries: int
    idempotency_key: str
    goal: str
    prompt: str
    context: dict[str, Any]
    fidelity: str
    thread: str
    steering: tuple[str, ...]
    is_continued: bool
    directory: str | None
    run_directory: str | None
    workdir: str | None
    workspace: str | None
    lines: list[str] = []

    def get(self, key: str, default: Any = None) -> Any:
        """One context value."""
        return self.context.get(key, default)

    def log(self, text: str) -> None:
        """Record a line for people who read the run later; it is stored when the attempt ends."""
        if len(self.lines) <= LOG_LINES_MAX:  # one more than are kept, to say that there were more
            self.lines.append(plain_text(text, "a line for the log"))


class IsolatedCall(Closed, frozen=True, kw_only=True):
    """Which function to call, where to find modules, and for which step. `by` is the module that calls it."""

    path: list[str]
    by: str = "onward.handlers.function"
    module: str
    function: str
    step: IsolatedStep


class IsolatedOutcome(Closed, frozen=True, kw_only=True):
    """A Result, as far as a function can decide it."""

    status: str
    context_updates: dict[str, Any]
    preferred_label: str
    suggested_next_ids: tuple[str, ...]
    notes: str
    failure_reason: str
    retryable: bool
    log: tuple[str, ...]
    response: str
    is_decided: bool


class IsolatedReply(Closed, frozen=True, kw_only=True):
    """The result of the call: an outcome, or an error. `lines` are for the run's log.

    `error` is the type of the error, and `traceback` where it was raised.
    """

    lines: list[str]
    outcome: IsolatedOutcome | None = None
    raised: str | None = None
    retryable: bool = True
    error: str = ""
    traceback: str = ""

    def __post_init__(self) -> None:
        if (self.outcome is None) == (self.raised is None):
            raise ValueError("an answer is either an outcome or an error")

    @property
    def result(self) -> Result:
        if self.outcome is None:
            return Result.fail(self.raised or "", retryable=self.retryable)
        return Result(**msgspec.structs.asdict(self.outcome))


def outcome_of(returned: object, node_id: str) -> IsolatedOutcome:
    """What a function returned, if it can be sent; InvalidInput says what is wrong with it."""
    result = as_result(returned, node_id)
    check_updates(result.context_updates)
    told = {name: getattr(result, name) for name in IsolatedOutcome.__struct_fields__}
    return IsolatedOutcome(
        **{**told, "status": result.status.value, "context_updates": dict(result.context_updates)}
    )


def encoded(answer: IsolatedReply) -> bytes:
    """The answer to send; one that is too large becomes an error."""
    sent = msgspec.json.encode(answer)
    if len(sent) <= ANSWER_BYTES_MAX:
        return sent
    why = (
        f"it returned {len(sent):,} bytes; at most {ANSWER_BYTES_MAX >> 20} MiB can be returned. "
        "Put large data into step.directory, below artifacts/."
    )
    return msgspec.json.encode(IsolatedReply(lines=answer.lines, raised=why, retryable=False))


def asked(request: msgspec.Struct, step: str) -> bytes:
    """The request to send."""
    sent = msgspec.json.encode(request)
    if len(sent) > REQUEST_BYTES_MAX:
        raise InvalidInput(
            f"the context of step {step} is {len(sent):,} bytes of JSON; "
            f"an isolated function gets at most {REQUEST_BYTES_MAX >> 20} MiB. Keep the rest in artifacts."
        )
    return sent


CHILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "isolated_child.py")
STDERR_CHARACTERS = 500


class Importable(msgspec.Struct, frozen=True):
    """Where another process finds a function."""

    module: str
    function: str


def importable(function: Callable[..., Any], what: str = "handler") -> Importable:
    """Where the function is found; InvalidInput if another process cannot or need not import it."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not inspect.isfunction(function) or module is None or name is None:
        raise _refused(what, f"{function!r} is not a function")
    if inspect.iscoroutinefunction(function):
        raise _refused(what, f"{name} is async, and can be ended by cancelling it: remove isolated=True")
    if "<lambda>" in name:
        raise _refused(what, f"{name} is a lambda, which no other process can import: use a named function")
    if "<locals>" in name:
        raise _refused(
            what, f"{name} is defined inside another function: move it to the top level of its module"
        )
    if module == "__main__":
        raise _refused(what, f"{name} is in the script being run, which would run again: move it to a module")
    return Importable(module, name)


def _refused(what: str, why: str) -> InvalidInput:
    return InvalidInput(f"an isolated {what} must be a plain function at the top level of a module; {why}.")


class Elsewhere(msgspec.Struct, frozen=True):
    """Calls functions in processes of their own."""

    spawn: Spawn
    environment: Callable[[], Mapping[str, str]]

    async def call(self, request: msgspec.Struct, step: StepContext, timeout_s: float | None) -> CommandExit:
        """How the process ended; its standard output is the answer."""
        finished = await self.spawn.run(
            f"exec {shlex.join([sys.executable, '-P', CHILD])}",
            env=self.environment(),
            cwd=step.workspace or step.workdir,
            timeout_s=timeout_s,
            stdin=asked(request, step.step),
            deadline=step.deadline,
            hear=partial(_heard, step),
        )
        if not step.output.is_shown:
            _pass_on(finished.stderr)
        return finished


class IsolatedHandler:
    """Calls a function in a child process; a time limit ends it at once."""

    keeps_time = True

    def __init__(self, function: Importable, elsewhere: Elsewhere) -> None:
        self._function, self._elsewhere = function, elsewhere

    async def run(self, step: StepContext) -> Result:
        request = IsolatedCall(
            path=search_path(),
            module=self._function.module,
            function=self._function.function,
            step=told(step),
        )
        finished = await self._elsewhere.call(request, step, step.node.timeout_s)
        if finished.timed_out:
            return Result.fail(f"timed out after {step.node.timeout_s:g} s")
        answer = _answer(finished)
        if answer is None:
            return Result.fail(why_without(finished))
        for line in answer.lines:
            step.log(line)
        if answer.raised is not None:
            step.output.raised_elsewhere(answer.error, answer.traceback)
        return answer.result


def search_path() -> list[str]:
    """Where modules are found, without relative paths: the function may work in another directory."""
    return [os.path.abspath(place) for place in sys.path]


def _heard(step: StepContext, stream: str, data: bytes) -> None:
    """Its standard output is the answer; what the function prints goes to standard error."""
    if stream == STDERR:
        step.output.hear(stream, data)


def _pass_on(printed: str) -> None:
    """Print what the function printed; the step does not fail if that fails."""
    with contextlib.suppress(OSError, ValueError):
        if printed and sys.stderr is not None:
            sys.stderr.write(printed)


def told(step: StepContext) -> IsolatedStep:
    """The step, as plain values."""
    node = step.node
    return IsolatedStep(
        run_id=step.run_id,
        pipeline=step.pipeline,
        step=step.step,
        node=IsolatedNode(
            id=node.id, label=node.label, attributes={key: node.text(key) for key in node.attrs}
        ),
        attempt=step.attempt,
        execution=step.execution,
        retries=step.retries,
        idempotency_key=step.idempotency_key,
        goal=step.goal,
        prompt=step.prompt,
        context=step.context,
        fidelity=step.fidelity,
        thread=step.thread,
        steering=step.steering,
        is_continued=step.is_continued,
        directory=step.directory,
        run_directory=step.run_directory,
        workdir=step.workdir,
        workspace=step.workspace,
    )


def _answer(finished: CommandExit) -> IsolatedReply | None:
    """The function's answer; None if its process ended without a valid one."""
    if finished.exit_code != 0:
        return None
    try:
        return msgspec.json.decode(finished.stdout, type=IsolatedReply)
    except msgspec.MsgspecError:
        return None


def why_without(finished: CommandExit) -> str:
    """Why a process that has ended gave no answer."""
    said = finished.stderr.strip()[-STDERR_CHARACTERS:]
    how = f"exited with code {finished.exit_code} and no result"
    if finished.signal is not None:
        how = f"was ended by signal {finished.signal}"
    return f"its process {how}" + (f": {said}" if said else "")


def answer_to(received: bytes) -> bytes:
    """What came of a request."""
    return encoded(_call(msgspec.json.decode(received, type=IsolatedCall)))


def found(module: str, function: str) -> Any:
    """The function of this name; InvalidInput if the module has none."""
    value: object = importlib.import_module(module)
    for name in function.split("."):
        value = getattr(value, name, None)
    if not callable(value):
        raise InvalidInput(f"the module {module} has no function {function!r}.")
    return value


def _call(request: IsolatedCall) -> IsolatedReply:
    lines = request.step.lines
    try:
        function = found(request.module, request.function)
        return IsolatedReply(lines=lines, outcome=outcome_of(function(request.step), request.step.node.id))
    except OnwardError as error:
        return IsolatedReply(lines=lines, raised=said(error), retryable=False, **_where(error))
    except BaseException as error:  # in its own process, whatever it raises is the function's
        raised = error_told(error)[:ERROR_CHARACTERS]
        return IsolatedReply(lines=lines, raised=raised, **_where(error))


def _where(error: BaseException) -> dict[str, Any]:
    return {"error": kind_of(error), "traceback": traceback_of(error)[-ERROR_CHARACTERS:]}
