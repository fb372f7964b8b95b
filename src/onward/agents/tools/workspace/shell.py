"""The tool that runs a command of the model in a shell.

The command is the model's own text; nothing is inserted into it. It runs below a supervisor, as the commands
of pipelines do: when it ends, is cancelled or takes too long, everything that it started ends with it. Keys
of providers are not in its environment.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onward.agents.model.request import Tool
from onward.agents.tools.describing import arguments, text
from onward.agents.tools.port import ToolAnswer, ToolRules, ToolUse
from onward.agents.tools.workspace.place import workspace_of
from onward.handlers.shell.environment import step_environment
from onward.model.values import SHELL_TOOL
from onward.process import CommandExit, Spawn

_RULES = ToolRules(repeatable=False, approval=True, is_concurrent=False)
_DESCRIBED = Tool(
    SHELL_TOOL,
    "Run a command with sh in the workspace. It gets no input, and whatever it started ends with it.",
    arguments(
        {"command": text("The command.")},
        {
            "time_limit_s": {
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "After how many seconds to end it, if that is sooner than the set limit.",
            }
        },
    ),
)


class ShellTool(msgspec.Struct, frozen=True):
    """Runs a command in the workspace. An exit code other than 0 and a time-out are answers, too."""

    spawn: Spawn
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    described: Tool = _DESCRIBED
    rules: ToolRules = _RULES

    async def run(self, use: ToolUse) -> ToolAnswer:
        limit_s = min(use.rules.time_limit_s, use.arguments.get("time_limit_s", float("inf")))
        finished = await self.spawn.run(
            use.arguments["command"],
            env={**self.environment, **step_environment(use.step)},
            cwd=workspace_of(use.step),
            timeout_s=limit_s,
            deadline=use.step.deadline,
            hear=use.step.output.hear,
        )
        return _answer(finished, limit_s)


def _answer(finished: CommandExit, limit_s: float) -> ToolAnswer:
    failed = _failure(finished, limit_s)
    parts = [failed] if failed else []
    if finished.truncated:
        parts.append("[only the end of its output was kept]")
    if finished.stdout:
        parts.append(finished.stdout if not parts and not finished.stderr else f"stdout:\n{finished.stdout}")
    if finished.stderr:
        parts.append(f"stderr:\n{finished.stderr}")
    return ToolAnswer("\n".join(parts) or "[exit code 0, no output]", is_error=bool(failed))


def _failure(finished: CommandExit, limit_s: float) -> str:
    if finished.timed_out:
        return f"timed out: the command was ended after {limit_s:g} s, with everything that it started"
    if finished.signal is not None:
        return f"ended by signal {finished.signal}"
    return f"exit code {finished.exit_code}" if finished.exit_code else ""
