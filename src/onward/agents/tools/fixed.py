"""A fixed set of tools as a source of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from onward.agents.tools.port import AgentTool, Listed
from onward.agents.tools.toolbox import is_allowed
from onward.handlers.port import StepContext
from onward.pipeline.graph import Node


class FixedTools(msgspec.Struct, frozen=True):
    """The same tools for every step; `origin` says where they come from."""

    origin: str
    offered: Sequence[AgentTool]

    def check_name(self, name: str, node: Node) -> bool:
        return any(is_allowed(tool.described.name, (name,)) for tool in self.offered)

    async def tools(self, step: StepContext, names: Sequence[str]) -> Sequence[AgentTool]:
        return [tool for tool in self.offered if is_allowed(tool.described.name, names)]

    async def listed(self) -> Listed:
        return Listed(self.offered)
