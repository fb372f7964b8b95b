"""Who serves which node of a pipeline, known before a run begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onward.errors import InvalidInput, UnknownHandler
from onward.handlers.port import Handler
from onward.handlers.simulate import SimulatedAgent
from onward.machine.definition import AGENT, UNSUPPORTED_KINDS, Definition
from onward.pipeline.build import Pipeline

DEFINITIONS_MAX = 64


class Serving:
    """The handlers of a process, and the definitions that it has looked at."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self.handlers = handlers
        self._definitions: dict[str, Definition] = {}

    def definition(self, pipeline: Pipeline) -> Definition:
        """The planner's view of a pipeline, made once for many runs."""
        found = self._definitions.get(pipeline.hash)
        if found is None or found.graph is not pipeline.graph:
            if len(self._definitions) >= DEFINITIONS_MAX:
                self._definitions.clear()
            found = self._definitions[pipeline.hash] = Definition(pipeline.graph)
        return found

    def handlers_for(
        self, definition: Definition, simulation: Mapping[str, Any] | None
    ) -> Mapping[str, Handler]:
        """The handlers that serve a run; refuses before anything begins if one is missing."""
        handlers = self.handlers
        if simulation is not None:
            handlers = {**handlers, AGENT: SimulatedAgent(simulation)}
        for node_id, kind in definition.effect_kinds.items():
            if kind not in handlers:
                raise _missing(node_id, kind, handlers)
        return handlers


def _missing(node_id: str, kind: str, handlers: Mapping[str, Handler]) -> Exception:
    if kind == AGENT:
        return InvalidInput(
            f"node {node_id!r} is an agent step and no model provider is set up; "
            "try it with --simulate, or register a handler for 'codergen' and name the app with --app."
        )
    if kind in UNSUPPORTED_KINDS:
        return InvalidInput(f"node {node_id!r} is of kind {kind!r}, which this version cannot run yet.")
    return UnknownHandler(node_id, kind, list(handlers))
