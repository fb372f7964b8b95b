"""The tools that start a process: a command of the model in a shell, and the search of files.

The command is the model's own text; nothing is inserted into it. It runs below a supervisor, as the
commands of pipelines do: when it ends, is cancelled or takes too long, everything that it started ends with
it. Keys of providers are not in its environment. The search is `search_program`, in a process that can be
ended.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onward.agents.model import Tool
from onward.agents.tools import port, search_program
from onward.handlers.shell import step_environment
from onward.model.values import SEARCH_TOOL, SHELL_TOOL
from onward.process import CommandExit, Spawn

_SHELL_RULES = port.ToolRules(repeatable=False, approval=True, is_concurrent=False)
_SHELL_DESCRIBED = Tool(
    SHELL_TOOL,
    "Run a command with sh in the workspace. It gets no input, and whatever it started ends with it.",
    port.arguments_schema(
        {"command": port.text_schema("The command.")},
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
    described: Tool = _SHELL_DESCRIBED
    rules: port.ToolRules = _SHELL_RULES

    async def run(self, use: port.ToolUse) -> port.ToolAnswer:
        limit_s = min(use.rules.time_limit_s, use.arguments.get("time_limit_s", float("inf")))
        finished = await self.spawn.run(
            use.arguments["command"],
            env={**self.environment, **step_environment(use.step)},
            cwd=port.workspace_of(use.step),
            timeout_s=limit_s,
            deadline=use.step.deadline,
            hear=use.step.output.hear,
        )
        return _shell_answer(finished, limit_s)


def _shell_answer(finished: CommandExit, limit_s: float) -> port.ToolAnswer:
    failed = _shell_failure(finished, limit_s)
    parts = [failed] if failed else []
    if finished.truncated:
        parts.append("[only the end of its output was kept]")
    if finished.stdout:
        parts.append(finished.stdout if not parts and not finished.stderr else f"stdout:\n{finished.stdout}")
    if finished.stderr:
        parts.append(f"stderr:\n{finished.stderr}")
    return port.ToolAnswer("\n".join(parts) or "[exit code 0, no output]", is_error=bool(failed))


def _shell_failure(finished: CommandExit, limit_s: float) -> str:
    if finished.timed_out:
        return f"timed out: the command was ended after {limit_s:g} s, with everything that it started"
    if finished.signal is not None:
        return f"ended by signal {finished.signal}"
    return f"exit code {finished.exit_code}" if finished.exit_code else ""


SEARCH_TIME_LIMIT_S = 30.0
_BEGIN = f"import sys; sys.path.insert(0, sys.argv[1]); from {search_program.__name__} import main; main()"

_PACKAGES = os.path.abspath(
    os.path.join(search_program.__file__, *[os.pardir] * len(search_program.__name__.split(".")))
)
_SEARCH_RULES = port.ToolRules(time_limit_s=SEARCH_TIME_LIMIT_S)
_SEARCH_DESCRIBED = Tool(
    SEARCH_TOOL,
    "Search the text files of the workspace for lines that fit a regular expression (Python's syntax).",
    port.arguments_schema(
        {"pattern": port.text_schema("The regular expression; it is matched against each line.")},
        {
            "path": port.text_schema(
                "A file or directory, relative to the workspace; without it, all of it."
            ),
            "glob": port.text_schema("Only files whose path fits, such as *.py or src/**/*.md."),
            "ignore_case": {"type": "boolean", "description": "Upper and lower case are the same."},
        },
    ),
)


class SearchTool(msgspec.Struct, frozen=True):
    """Finds lines by a regular expression. One that takes too long is ended, and says how far it came."""

    spawn: Spawn
    own: Sequence[str] = ()
    described: Tool = _SEARCH_DESCRIBED
    rules: port.ToolRules = _SEARCH_RULES

    async def run(self, use: port.ToolUse) -> port.ToolAnswer:
        given, limit_s = use.arguments, use.rules.time_limit_s
        request = {
            "root": port.workspace_of(use.step),
            "own": list(self.own),
            "pattern": given["pattern"],
            "path": given.get("path", "."),
            "glob": given.get("glob", ""),
            "ignore_case": given.get("ignore_case", False),
        }
        finished = await self.spawn.run(
            shlex.join(["exec", sys.executable, "-I", "-S", "-c", _BEGIN, _PACKAGES]),
            env={"LC_ALL": "C.UTF-8"},
            cwd="/",
            timeout_s=limit_s,
            stdin=json.dumps(request).encode(),
            deadline=use.step.deadline,
        )
        return _search_answer(finished, limit_s)


def _search_answer(finished: CommandExit, limit_s: float) -> port.ToolAnswer:
    said = [_search_line(line) for line in finished.stdout.split("\n") if line]
    for one in said:
        if "refused" in one:
            raise port.ToolRefused(one["refused"])
    lines = [one["match"] for one in said if "match" in one]
    notes = [f"[{one['note']}]" for one in said if "note" in one]
    if finished.timed_out:
        why = f"[not finished: ended after {limit_s:g} s; write a simpler pattern, or search in less]"
        return port.ToolAnswer("\n".join([*lines, why]), is_error=True)
    if finished.exit_code != 0:
        raise port.ToolRefused(
            f"the search failed: {finished.stderr.strip()[-500:] or 'its process was ended'}"
        )
    return port.ToolAnswer("\n".join([*lines, *notes]) if lines else "\n".join(["[no line fits]", *notes]))


def _search_line(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}  # its process was ended in the middle of a line
    return found if isinstance(found, dict) else {}
