"""A function tool in its own process, which can be ended at any time, with everything that it started."""

from __future__ import annotations

from typing import Any

import msgspec

from onward.agents.model.request import Tool
from onward.agents.tools.functions.tool import FunctionTool
from onward.agents.tools.port import CutOff, ToolAnswer, ToolRules, ToolUse
from onward.errors import CallTimedOut
from onward.handlers.isolate.handler import Elsewhere, Importable, search_path, told, why_without
from onward.handlers.isolate.messages import Closed, IsolatedStep


class IsolatedUse(Closed, frozen=True, kw_only=True):
    """A use on its way to another process: which function, and what with."""

    path: list[str]
    by: str = "onward.agents.tools.functions.calling"
    module: str
    function: str
    step: IsolatedStep
    arguments: dict[str, Any]
    key: str


class IsolatedAnswer(Closed, frozen=True, kw_only=True):
    """What came of it; `lines` are for the run's log."""

    text: str
    is_error: bool = False
    lines: tuple[str, ...] = ()


class IsolatedTool:
    """Uses a function in a child process; a time limit ends it at once."""

    def __init__(self, tool: FunctionTool, function: Importable, elsewhere: Elsewhere) -> None:
        self.described: Tool = tool.described
        self.rules: ToolRules = tool.rules
        self._function, self._elsewhere = function, elsewhere

    async def run(self, use: ToolUse) -> ToolAnswer:
        """As the port says. A process that ended without an answer may have done what it was for."""
        limit_s = use.rules.time_limit_s
        request = IsolatedUse(
            path=search_path(),
            module=self._function.module,
            function=self._function.function,
            step=told(use.step),
            arguments=use.arguments,
            key=use.key,
        )
        finished = await self._elsewhere.call(request, use.step, limit_s)
        if finished.timed_out:
            raise CallTimedOut(use.key, limit_s)
        try:
            answer = msgspec.json.decode(finished.stdout, type=IsolatedAnswer)
        except msgspec.MsgspecError:
            why = why_without(finished)
            if use.rules.repeatable:
                return ToolAnswer(why, is_error=True)
            raise CutOff(use.key, limit_s, why) from None
        for line in answer.lines:
            use.step.log(line)
        return ToolAnswer(answer.text, answer.is_error)
