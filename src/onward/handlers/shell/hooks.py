"""Commands around every tool call: one before it that may forbid it, and one after it that gets the result.

`tool_hooks.pre` and `tool_hooks.post` are attributes of a node or the graph; the node's wins. A hook learns
of the call from its environment and, as JSON, from its standard input; nothing is ever inserted into its
text. It runs like any command of a step: it cannot outlive the process, and it has a limit
(`tool_hooks.timeout`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from onward.errors import InvalidInput, SpawnFailed
from onward.handlers.port import StepContext
from onward.handlers.shell.environment import step_environment
from onward.process import CommandExit, Spawn

TIMEOUT_S = 60.0
STDERR_CHARACTERS = 500


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call: its name and arguments."""

    name: str
    arguments: Mapping[str, Any] = msgspec.field(default_factory=dict)
    id: str = ""


class ToolHooks:
    """Runs the hooks of a step's node or graph."""

    def __init__(self, spawn: Spawn, *, environment: Mapping[str, str], cwd: str | None = None) -> None:
        self._spawn, self._environment, self._cwd = spawn, dict(environment), cwd

    async def before(self, step: StepContext, call: ToolCall) -> str | None:
        """None if the call is allowed; else why not, for the caller to record."""
        command = _written(step, "pre")
        if not command:
            return None
        try:
            why = _why(await self._run(command, step, call, "pre", {}), _timeout_s(step))
        except SpawnFailed as error:
            why = str(error)
        if why is None:
            return None
        return f"the tool {call.name} was not called, because the hook tool_hooks.pre forbids it: {why}"

    async def after(self, step: StepContext, call: ToolCall, result: Mapping[str, Any]) -> str:
        """Give the hook the result of the call; returns a note if that fails."""
        command = _written(step, "post")
        if not command:
            return ""
        try:
            why = _why(await self._run(command, step, call, "post", {"result": result}), _timeout_s(step))
        except (SpawnFailed, InvalidInput) as error:
            why = str(error)
        return f"the hook tool_hooks.post failed: {why}" if why else ""

    async def _run(
        self, command: str, step: StepContext, call: ToolCall, hook: str, more: Mapping[str, Any]
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


def _why(finished: CommandExit, timeout_s: float) -> str | None:
    """Why the hook objects; None if it does not."""
    if finished.timed_out:
        return f"it did not end within {timeout_s:g} s"
    if finished.exit_code == 0:
        return None
    how = f"exit code {finished.exit_code}" if finished.signal is None else f"signal {finished.signal}"
    said = finished.stderr.strip()[-STDERR_CHARACTERS:]
    return f"{how}: {said}" if said else how
