"""A plain function in its own process, which can be ended at any time, with everything that it started.

The process runs like a command of a step, below a supervisor, so it dies with this process too. It imports
the function by its module's name.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from onward.errors import InvalidInput
from onward.handlers.isolate.messages import Answer, IsolatedNode, IsolatedStep, Request, asked
from onward.handlers.port import StepContext
from onward.model.events import STDERR
from onward.model.result import Result
from onward.process import CommandExit, Spawn

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
        raise _refused(what, f"{name} is a lambda, which no other process can import: give it a name")
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
        request = Request(
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


def _answer(finished: CommandExit) -> Answer | None:
    """The function's answer; None if its process ended without a valid one."""
    if finished.exit_code != 0:
        return None
    try:
        return msgspec.json.decode(finished.stdout, type=Answer)
    except msgspec.MsgspecError:
        return None


def why_without(finished: CommandExit) -> str:
    """Why a process that has ended gave no answer."""
    said = finished.stderr.strip()[-STDERR_CHARACTERS:]
    how = f"exited with code {finished.exit_code} and no result"
    if finished.signal is not None:
        how = f"was ended by signal {finished.signal}"
    return f"its process {how}" + (f": {said}" if said else "")
