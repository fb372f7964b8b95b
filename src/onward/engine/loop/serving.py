"""Which handler serves which node of a pipeline, known before a run begins, and what commands get."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from onward.engine.control.interview import Interviewer
from onward.engine.control.workdir import check_workdir
from onward.engine.loop.definitions import Definitions
from onward.engine.managed.settings import is_steering
from onward.errors import InvalidInput, NoProvider, UnknownHandler
from onward.handlers.port import ChecksNodes, Handler
from onward.handlers.simulate import SimulatedAgent, SimulatedTool
from onward.machine.definition import AGENT, MANAGER, TOOL, Definition, is_simulated
from onward.model.run import Simulation
from onward.pipeline.build import Pipeline
from onward.pipeline.graph import Node

Around = Callable[[str, Handler], Handler]
"""Wraps the handler of a kind of nodes, to watch it."""


class Serving(Definitions):
    """The handlers of a process, and the variables that its commands get."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        overseer: Callable[[Handler | None, Interviewer | None], Handler],
        around: Around | None = None,
        variables: Collection[str] = (),
    ) -> None:
        super().__init__(handlers)
        self.handlers, self._overseer, self._around = handlers, overseer, around
        self.variables = tuple(sorted(variables))

    def handlers_for(
        self,
        definition: Definition,
        simulation: Simulation | None,
        interviewer: Interviewer | None = None,
        finished: Collection[str] = (),
    ) -> Mapping[str, Handler]:
        """The handlers that serve a run; refuses before anything begins if one is missing.

        The refusal names a node that has not `finished`, if it can.
        """
        handlers = self._with_simulated(definition, simulation)
        if MANAGER in definition.handlers and MANAGER not in handlers:
            agent = handlers.get(AGENT)
            handlers = {**handlers, MANAGER: self._overseer(agent, interviewer)}
            for node in definition.managers:
                if agent is None and is_steering(node):
                    raise NoProvider(node.id)
        if any(kind not in handlers for kind in definition.handlers):
            unserved = [node for node, kind in definition.handler_kinds.items() if kind not in handlers]
            node_id = min(unserved, key=lambda node: node in finished)
            raise _missing(definition.graph.nodes[node_id], definition.handler_kinds[node_id], handlers)
        checking = {kind for kind in definition.handlers if hasattr(handlers[kind], "check_node")}
        for node_id, kind in definition.handler_kinds.items() if checking else ():
            handler = handlers[kind]
            if isinstance(handler, ChecksNodes):
                handler.check_node(definition.graph.nodes[node_id])
        if self._around is None:
            return handlers
        return {kind: self._around(kind, handler) for kind, handler in handlers.items()}

    def check_served(
        self, pipeline: Pipeline, simulation: Simulation | None, workdir: str | None = None
    ) -> None:
        """Refuse a pipeline that this process could not run in this directory."""
        definition = self.definition(pipeline)
        self.handlers_for(definition, simulation)
        check_workdir(workdir, is_here=bool(self.needs(definition, simulation)))

    def _with_simulated(self, definition: Definition, simulation: Simulation | None) -> Mapping[str, Handler]:
        """The handlers of this process, or those that play a simulation instead."""
        if simulation is None:
            return self.handlers
        kinds = (kind for kind in (AGENT, *definition.handlers) if is_simulated(simulation, kind))
        played: dict[str, Handler] = {
            kind: SimulatedTool(simulation.script) if kind == TOOL else SimulatedAgent(simulation.script)
            for kind in kinds
        }
        return {**self.handlers, **played} if simulation.real_tools else played


def _missing(node: Node, kind: str, handlers: Mapping[str, Handler]) -> Exception:
    if kind != AGENT:
        return UnknownHandler(node.id, kind, list(handlers))
    if program := node.text("agent_program"):
        return InvalidInput(
            f"node {node.id!r} wants the program {program!r}, and no program that works as an agent "
            f"was found in PATH; install it, or set its command in [programs.{program}] of onward.toml "
            "(docs/agents.md)."
        )
    return NoProvider(node.id)
