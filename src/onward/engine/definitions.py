"""Pipelines as the planner uses them, and which handler serves which node, known before a run begins.

Also what commands get, and whether the working directory of a run is there: all of it is checked before
anything is written. Quick commands import this: it knows nothing of the run loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence

from onward.clock import Clock
from onward.engine.child import ManagedRuns, is_steering
from onward.engine.control.requests import Interviewer
from onward.errors import InvalidInput, NoProvider, UnknownHandler, WorkdirGone
from onward.handlers.port import ChecksNodes, Handler
from onward.handlers.simulate import SimulatedAgent, SimulatedTool
from onward.machine.definition import AGENT, MANAGER, TOOL, Definition, is_simulated
from onward.model.row import needed_directory
from onward.model.run import Run, Simulation
from onward.pipeline.build import Pipeline
from onward.pipeline.graph import Node

DEFINITIONS_MAX = 64


class DefinitionCache:
    """A cache of definitions; `kinds` are the nodes that the app has handlers for."""

    def __init__(self, kinds: Collection[str] = ()) -> None:
        self._kinds = kinds
        self._definitions: dict[str, Definition] = {}

    def definition(self, pipeline: Pipeline) -> Definition:
        """The planner's view of a pipeline, created once for many runs."""
        found = self._definitions.get(pipeline.hash)
        if found is None or found.graph is not pipeline.graph:
            if len(self._definitions) >= DEFINITIONS_MAX:
                self._definitions.clear()
            found = self._definitions[pipeline.hash] = Definition(pipeline.graph)
        return found

    def needs(self, definition: Definition, simulation: Simulation | None) -> tuple[str, ...]:
        """The handlers that a process needs to execute a run. What is simulated needs none, and managers only
        the agent that some of them ask: every engine serves them."""
        if simulation is None and MANAGER not in definition.handlers:
            return definition.handlers
        kinds = set(definition.handlers)
        is_ours = MANAGER not in self._kinds or (simulation is not None and not simulation.real_tools)
        if MANAGER in kinds and is_ours:
            kinds.remove(MANAGER)
            if any(is_steering(node) for node in definition.managers):
                kinds.add(AGENT)
        return tuple(sorted(kind for kind in kinds if not is_simulated(simulation, kind)))


def check_workdir(workdir: str | None, *, is_here: bool) -> None:
    """Refuse a directory that a run cannot be given; with `is_here`, also one that is not on this machine."""
    if workdir is None:
        return
    if not os.path.isabs(workdir):
        raise InvalidInput(f"the directory {workdir!r} is relative; write an absolute path.")
    try:
        workdir.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"the name of the directory {workdir!r} is not UTF-8; use another.") from None
    if is_here and not os.path.isdir(workdir):
        raise InvalidInput(f"the directory {workdir} does not exist; create it, or name another.")


def check_still_there(run: Run) -> None:
    """Refuse to execute a run here whose directory is gone. One that executes nothing needs none."""
    for workdir in filter(None, map(needed_directory, run.needs)):
        if not os.path.isdir(workdir):
            raise WorkdirGone(run.id, workdir)


Around = Callable[[str, Handler], Handler]
"""Wraps the handler of a kind of nodes, to watch it."""
FindHandler = Callable[[str], Handler | None]
"""Finds the handler of a kind of nodes that was not registered."""


def find_none(kind: str) -> Handler | None:
    """Handlers are registered, or not there."""
    return None


class Serving(DefinitionCache):
    """The handlers of a process, and the variables that its commands get."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        runs: ManagedRuns,
        clock: Clock,
        around: Around | None = None,
        variables: Collection[str] = (),
        find: FindHandler = find_none,
    ) -> None:
        """`runs` is the engine, which managers ask for their children."""
        self._find = find
        super().__init__(handlers)
        self.handlers, self._runs, self._clock, self._around = handlers, runs, clock, around
        self.variables = tuple(sorted(variables))

    def handlers_for(
        self,
        definition: Definition,
        simulation: Simulation | None,
        interviewer: Interviewer | None = None,
        ahead: Sequence[str] | None = None,
    ) -> Mapping[str, Handler]:
        """The handlers that serve a run; refuses before anything begins if one is missing.

        `ahead` are the nodes that can still run, the nearest first; without it, all of them.
        """
        handlers = self._with_simulated(definition, simulation)
        kinds = definition.handler_kinds
        needed = kinds if ahead is None else {name: kinds[name] for name in ahead if name in kinds}
        needed_kinds = definition.handlers if ahead is None else tuple(dict.fromkeys(needed.values()))
        for kind in needed_kinds:
            if kind not in handlers and (found := self._find(kind)) is not None:
                handlers = {**handlers, kind: found}
        if MANAGER in definition.handlers and MANAGER not in handlers:
            from onward.engine.overseer import Overseer  # here: few runs have a manager

            agent = handlers.get(AGENT)
            handlers = {**handlers, MANAGER: Overseer(self._runs, self._clock, agent, interviewer)}
            for node in definition.managers:
                if agent is None and node.id in needed and is_steering(node):
                    raise NoProvider(node.id)
        if any(kind not in handlers for kind in needed_kinds):
            node_id = next(node_id for node_id, kind in needed.items() if kind not in handlers)
            raise _missing(definition.graph.nodes[node_id], needed[node_id], handlers)
        checking = {kind for kind in needed_kinds if hasattr(handlers[kind], "check_node")}
        for node_id, kind in needed.items() if checking else ():
            handler = handlers[kind]
            if isinstance(handler, ChecksNodes):
                handler.check_node(definition.graph.nodes[node_id])
        if self._around is None:
            return handlers
        return {kind: self._around(kind, handler) for kind, handler in handlers.items()}

    def check_served(
        self,
        pipeline: Pipeline,
        simulation: Simulation | None,
        workdir: str | None = None,
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
            f"node {node.id!r} uses the program {program!r}, but no agent program was found in PATH; install "
            f"it, or set its command in [programs.{program}] of onward.toml (docs/agents.md)."
        )
    return NoProvider(node.id)
