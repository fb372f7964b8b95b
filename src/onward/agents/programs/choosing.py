"""The handler of agent steps: a program works on those that name one, a model answers the others."""

from __future__ import annotations

from typing import Protocol

import msgspec

from onward.agents.programs.handler import ProgramHandler
from onward.agents.programs.serving import ATTRIBUTE
from onward.errors import NoProvider
from onward.handlers.port import StepContext
from onward.model.result import Result
from onward.pipeline.graph import Node


class AsksModels(Protocol):
    """Serves agent steps with models."""

    def check_node(self, node: Node) -> None:
        """InvalidInput if it cannot serve the node."""
        ...

    async def run(self, step: StepContext) -> Result:
        """Run one attempt."""
        ...


class AgentSteps(msgspec.Struct, frozen=True):
    """Serves every agent step. Without `models`, no provider is set up, and only programs work."""

    models: AsksModels | None
    programs: ProgramHandler
    keeps_time: bool = False

    def check_node(self, node: Node) -> None:
        """Refuse a node that nobody can work on, before anything is asked."""
        self._of(node).check_node(node)

    async def run(self, step: StepContext) -> Result:
        """Let a program or a model work on the step."""
        return await self._of(step.node).run(step)

    def _of(self, node: Node) -> AsksModels:
        if node.text(ATTRIBUTE):
            return self.programs
        if self.models is None:
            raise NoProvider(node.id)
        return self.models
