"""Pipelines as the planner uses them, and which handlers a run of one needs. A quick command imports this."""

from __future__ import annotations

from collections.abc import Collection

from onward.engine.managed.settings import is_steering
from onward.machine.definition import AGENT, MANAGER, Definition, is_simulated
from onward.model.run import Simulation
from onward.pipeline.build import Pipeline

DEFINITIONS_MAX = 64


class Definitions:
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
