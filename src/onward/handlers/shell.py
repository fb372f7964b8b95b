"""A shell command as a step, exactly as the pipeline file has it, and the hooks around tool calls.

Nothing from a model or from the context is ever inserted into the command's text: its environment has what it
needs to know about its step. Providers' keys are not in it.

Hooks are commands around every tool call: one before it that may forbid it, and one after it that gets the
result. `tool_hooks.pre` and `tool_hooks.post` are attributes of a node or the graph; the node's wins. A hook
learns of the call from its environment and, as JSON, from its standard input; nothing is ever inserted into
its text. It runs like any command of a step: it cannot outlive the process, and it has a limit
(`tool_hooks.timeout`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from onward.errors import InvalidInput, SpawnFailed
from onward.handlers.port import StepContext
from onward.model.context import OMITTED, context_variables, unset_in
from onward.model.events import StepStatus
from onward.model.result import Result
from onward.process import CommandExit, Spawn


def step_environment(step: StepContext) -> dict[str, str]:
    """The variables that name the step, its directories if it has any, and the values of the context."""
    told = {
        "ONWARD_RUN_ID": step.run_id,
        "ONWARD_STEP": step.step,
        "ONWARD_ATTEMPT": str(step.attempt),
        "ONWARD_IDEMPOTENCY_KEY": step.idempotency_key,
    }
    # A command cannot ask for its directory, so it gets one only if the step's files are kept anyway.
    if step.room.is_full and step.directory is not None and step.run_directory is not None:
        told |= {"ONWARD_STEP_DIR": step.directory, "ONWARD_RUN_DIR": step.run_directory}
    left = step.left
    if left is not None:
        told["ONWARD_CONTINUED"] = "1"
        if left.directory is not None:
            told["ONWARD_LEFT_DIR"] = left.directory
    if step.workspace is not None:
        told["ONWARD_WORKSPACE"] = step.workspace
    return {**context_variables(step.values), **told}


def log_unset(step: StepContext, command: str, environment: Mapping[str, str]) -> None:
    """Log the context variables that a command names and does not get."""
    omitted = environment.get(OMITTED, "").split()
    for name in unset_in(command, environment):
        why = (
            "its value is too long, or two keys have the same variable name"
            if name in omitted
            else "the context has no such value"
        )
        step.log(f"the command names ${name}, which is not set: {why}")


TIMEOUT_S = 60.0
STDERR_CHARACTERS = 500


class HookedCall(msgspec.Struct, frozen=True):
    """A tool call: its name and arguments."""

    name: str
    arguments: Mapping[str, Any] = msgspec.field(default_factory=dict)
    id: str = ""


class ToolHooks:
    """Runs the hooks of a step's node or graph."""

    def __init__(self, spawn: Spawn, *, environment: Mapping[str, str], cwd: str | None = None) -> None:
        self._spawn, self._environment, self._cwd = spawn, dict(environment), cwd

    async def before(self, step: StepContext, call: HookedCall) -> str | None:
        """None if the call is allowed; else why not, for the caller to record."""
        command = _written(step, "pre")
        if not command:
            return None
        try:
            why = _objection(await self._run(command, step, call, "pre", {}), _timeout_s(step))
        except SpawnFailed as error:
            why = str(error)
        if why is None:
            return None
        return f"the tool {call.name} was not called, because the hook tool_hooks.pre forbids it: {why}"

    async def after(self, step: StepContext, call: HookedCall, result: Mapping[str, Any]) -> str:
        """Give the hook the result of the call; returns a note if that fails."""
        command = _written(step, "post")
        if not command:
            return ""
        try:
            why = _objection(
                await self._run(command, step, call, "post", {"result": result}), _timeout_s(step)
            )
        except (SpawnFailed, InvalidInput) as error:
            why = str(error)
        return f"the hook tool_hooks.post failed: {why}" if why else ""

    async def _run(
        self, command: str, step: StepContext, call: HookedCall, hook: str, more: Mapping[str, Any]
    ) -> CommandExit:
        told = {
            "hook": hook,
            "run_id": step.run_id,
            "step": step.step,
            "node": step.node.id,
            "attempt": step.attempt,
            "tool": {"name": call.name, "call_id": call.id, "arguments": dict(call.arguments)},
            **more,
        }
        named = {"ONWARD_HOOK": hook, "ONWARD_TOOL_NAME": call.name, "ONWARD_TOOL_CALL_ID": call.id}
        return await self._spawn.run(
            command,
            env={**self._environment, **step_environment(step), **named},
            cwd=step.workdir or self._cwd,
            timeout_s=_timeout_s(step),
            stdin=msgspec.json.encode(told),
            deadline=step.deadline,
        )


def _written(step: StepContext, which: str) -> str:
    key = f"tool_hooks.{which}"
    return step.node.text(key) or step.graph.text(key)


def _timeout_s(step: StepContext) -> float:
    key = "tool_hooks.timeout"
    own = step.node.duration_s(key)
    found = step.graph.duration_s(key) if own is None else own
    return TIMEOUT_S if found is None else found


def _objection(finished: CommandExit, timeout_s: float) -> str | None:
    """Why the hook objects; None if it does not."""
    if finished.timed_out:
        return f"it did not end within {timeout_s:g} s"
    if finished.exit_code == 0:
        return None
    how = f"exit code {finished.exit_code}" if finished.signal is None else f"signal {finished.signal}"
    said = finished.stderr.strip()[-STDERR_CHARACTERS:]
    return f"{how}: {said}" if said else how


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
        call = HookedCall("shell", {"command": command})
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
    return Result(status=StepStatus.FAIL, failure_reason=_why_failed(finished, step), context_updates=output)


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


def _why_failed(finished: CommandExit, step: StepContext) -> str:
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
