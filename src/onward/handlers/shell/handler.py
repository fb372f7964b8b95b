"""A shell command, exactly as it is written in the pipeline file.

Nothing from a model or from the context is ever inserted into the command's text: its environment has what it
needs to know about its step. Providers' keys are not in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from onward.handlers.port import StepContext
from onward.handlers.shell.environment import log_unset, step_environment
from onward.handlers.shell.hooks import STDERR_CHARACTERS, ToolCall, ToolHooks
from onward.model.events import StepStatus
from onward.model.result import Result
from onward.process import CommandExit, Spawn

_WARNING = re.compile(r"\b(\w*warn(ing)?s?|deprecat\w*|note|notice|info|debug)\b", re.IGNORECASE)
_FAILURE = re.compile(r"error|fail|assert|exception|fatal|panic|denied|cannot|not found", re.IGNORECASE)


class ToolHandler:
    """Runs `tool_command`; exit code 0 is success, and its output becomes `tool.output`.

    The newline that ends the output is not part of it, so that `echo PASS` says `PASS`.
    """

    keeps_time = True

    def __init__(self, spawn: Spawn, *, environment: Mapping[str, str], cwd: str | None = None) -> None:
        self._spawn, self._environment, self._cwd = spawn, dict(environment), cwd
        self._hooks = ToolHooks(spawn, environment=environment, cwd=cwd)

    async def run(self, step: StepContext) -> Result:
        command = step.node.text("tool_command")
        if not command:
            reason = f"node {step.node.id!r} has no tool_command; write the command to run"
            return Result.fail(reason, retryable=False)
        call = ToolCall("shell", {"command": command})
        forbidden = await self._hooks.before(step, call)
        if forbidden is not None:
            return Result.fail(forbidden, retryable=False)
        environment = {**self._environment, **step_environment(step)}
        log_unset(step, command, environment)
        finished = await self._spawn.run(
            command,
            env=environment,
            cwd=step.workspace or step.workdir or self._cwd,
            timeout_s=step.node.timeout_s,
            deadline=step.deadline,
            hear=step.output.hear,
        )
        result = _result(finished, step)
        note = await self._hooks.after(step, call, _told(finished, result))
        if not note:
            return result
        if result.failure_reason:
            return replace(result, failure_reason=f"{result.failure_reason}; {note}")
        return replace(result, notes=note)


def _result(finished: CommandExit, step: StepContext) -> Result:
    """With exit code 0, the command's `status.json` may still decide the outcome; any other is a failure."""
    said = finished.stdout
    output = {"tool.output": _trimmed(said) if step.trims_output else said}
    if finished.exit_code == 0 and not finished.timed_out:
        return Result(context_updates=output, is_decided=False)
    return Result(status=StepStatus.FAIL, failure_reason=_why(finished, step), context_updates=output)


def _trimmed(output: str) -> str:
    return output[:-2] if output.endswith("\r\n") else output.removesuffix("\n")


def _told(finished: CommandExit, result: Result) -> dict[str, Any]:
    """The result of the call for the hook after it."""
    return {
        "status": result.status.value,
        "exit_code": finished.exit_code,
        "signal": finished.signal,
        "timed_out": finished.timed_out,
        "output": finished.stdout,
        "stderr": finished.stderr,
        "duration_s": finished.duration_s,
    }


def _why(finished: CommandExit, step: StepContext) -> str:
    if finished.timed_out:
        return f"timed out after {step.node.timeout_s:g} s"
    if finished.signal is not None:
        return f"ended by signal {finished.signal}"
    said = what_failed(finished.stdout, finished.stderr)
    return f"exit code {finished.exit_code}" + (f": {said}" if said else "")


def what_failed(stdout: str, stderr: str) -> str:
    """The best guess at why a command failed: standard error, or the last line of standard output first.

    Many test tools print their failures to standard output alone. Its last line comes first if standard error
    is empty or has only warnings, and if it names a failure that standard error does not.
    """
    told, last = stderr.strip()[-STDERR_CHARACTERS:], stdout.strip().rpartition("\n")[2].strip()
    last = last[-STDERR_CHARACTERS:]
    if not told or not last:
        return told or last
    said = [line for line in told.splitlines() if line.strip() and not line[0].isspace()]
    is_harmless = all(map(_WARNING.search, said))
    if is_harmless or (_FAILURE.search(last) and not _FAILURE.search(told)):
        return f"{last}; stderr: {told}"
    return told
