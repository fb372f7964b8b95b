"""The tool that searches files, in a process that can be ended."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from onward.agents.model.request import Tool
from onward.agents.tools.describing import arguments, text
from onward.agents.tools.port import ToolAnswer, ToolRefused, ToolRules, ToolUse
from onward.agents.tools.workspace import searching
from onward.agents.tools.workspace.place import workspace_of
from onward.model.values import SEARCH_TOOL
from onward.process import CommandExit, Spawn

TIME_LIMIT_S = 30.0
_BEGIN = f"import sys; sys.path.insert(0, sys.argv[1]); from {searching.__name__} import main; main()"

_PACKAGES = os.path.abspath(
    os.path.join(searching.__file__, *[os.pardir] * len(searching.__name__.split(".")))
)
_RULES = ToolRules(time_limit_s=TIME_LIMIT_S)
_DESCRIBED = Tool(
    SEARCH_TOOL,
    "Search the text files of the workspace for lines that fit a regular expression (Python's syntax).",
    arguments(
        {"pattern": text("The regular expression; it is matched against each line.")},
        {
            "path": text("A file or directory, relative to the workspace; without it, all of it."),
            "glob": text("Only files whose path fits, such as *.py or src/**/*.md."),
            "ignore_case": {"type": "boolean", "description": "Upper and lower case are the same."},
        },
    ),
)


class SearchTool(msgspec.Struct, frozen=True):
    """Finds lines by a regular expression. One that takes too long is ended, and says how far it came."""

    spawn: Spawn
    own: Sequence[str] = ()
    described: Tool = _DESCRIBED
    rules: ToolRules = _RULES

    async def run(self, use: ToolUse) -> ToolAnswer:
        given, limit_s = use.arguments, use.rules.time_limit_s
        request = {
            "root": workspace_of(use.step),
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
        return _answer(finished, limit_s)


def _answer(finished: CommandExit, limit_s: float) -> ToolAnswer:
    said = [_read(line) for line in finished.stdout.split("\n") if line]
    for one in said:
        if "refused" in one:
            raise ToolRefused(one["refused"])
    lines = [one["match"] for one in said if "match" in one]
    notes = [f"[{one['note']}]" for one in said if "note" in one]
    if finished.timed_out:
        why = f"[not finished: ended after {limit_s:g} s; write a simpler pattern, or search in less]"
        return ToolAnswer("\n".join([*lines, why]), is_error=True)
    if finished.exit_code != 0:
        raise ToolRefused(f"the search failed: {finished.stderr.strip()[-500:] or 'its process was ended'}")
    return ToolAnswer("\n".join([*lines, *notes]) if lines else "\n".join(["[no line fits]", *notes]))


def _read(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}  # its process was ended in the middle of a line
    return found if isinstance(found, dict) else {}
