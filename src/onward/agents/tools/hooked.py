"""Tools with the hooks of their step around each use: one may forbid it, one is told what came of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from onward.agents.model.request import Tool
from onward.agents.tools.port import (
    AgentTool,
    Listed,
    ListsTools,
    ToolAnswer,
    ToolRefused,
    ToolRules,
    ToolSource,
    ToolUse,
)
from onward.handlers.port import StepContext
from onward.handlers.shell.hooks import ToolCall, ToolHooks
from onward.pipeline.graph import Node


class HookedTools(msgspec.Struct, frozen=True):
    """A source whose tools all have these hooks."""

    source: ToolSource
    hooks: ToolHooks

    @property
    def origin(self) -> str:
        return self.source.origin if isinstance(self.source, ListsTools) else ""

    def check_name(self, name: str, node: Node) -> bool:
        return self.source.check_name(name, node)

    async def tools(self, step: StepContext, names: Sequence[str]) -> Sequence[AgentTool]:
        return [_HookedTool(tool, self.hooks) for tool in await self.source.tools(step, names)]

    async def listed(self) -> Listed:
        return await self.source.listed() if isinstance(self.source, ListsTools) else Listed(())


class _HookedTool(msgspec.Struct, frozen=True):
    tool: AgentTool
    hooks: ToolHooks

    @property
    def described(self) -> Tool:
        return self.tool.described

    @property
    def rules(self) -> ToolRules:
        return self.tool.rules

    async def run(self, use: ToolUse) -> ToolAnswer:
        call = ToolCall(self.described.name, use.arguments, use.key)
        forbidden = await self.hooks.before(use.step, call)
        if forbidden is not None:
            raise ToolRefused(forbidden)
        answer = await self._answered(use, call)
        await self._tell(use, call, answer)
        return answer

    async def _answered(self, use: ToolUse, call: ToolCall) -> ToolAnswer:
        try:
            return await self.tool.run(use)
        except Exception as error:
            await self._tell(use, call, ToolAnswer(str(error), is_error=True))
            raise

    async def _tell(self, use: ToolUse, call: ToolCall, answer: ToolAnswer) -> None:
        result = {"output": answer.text, "is_error": answer.is_error}
        note = await self.hooks.after(use.step, call, result)
        if note:
            use.step.log(note)
