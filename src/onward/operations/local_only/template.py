"""A simulation script to begin with: an entry for every node of a pipeline that can be played."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onward.engine.control.script import Read, cast_of
from onward.machine.definition import CONDITIONAL, TOOL, Definition, is_simulated
from onward.model.simulation import Simulation
from onward.model.values.namespace import CURRENT_NODE, GRAPH, INTERNAL, OUTCOME, PREFERRED_LABEL
from onward.pipeline.build import Pipeline
from onward.pipeline.condition import Clause

OUTPUT = "tool.output"
_ENGINES_OWN = (OUTCOME, PREFERRED_LABEL, CURRENT_NODE)
_PREFIXES = (GRAPH, INTERNAL, "human.gate.", "parallel.", "stack.")


def script_template(pipeline: Pipeline, read: Read, *, real_tools: bool = False) -> dict[str, Any]:
    """A script in which every step succeeds. It sets what the first condition after a node asks for."""
    simulation, definition = Simulation(real_tools=real_tools), Definition(pipeline.graph)
    template: dict[str, Any] = {}
    for node, kinds in cast_of(pipeline, definition, read).kinds.items():
        kind = next((kind for kind in sorted(kinds) if is_simulated(simulation, kind)), None)
        if kind is not None:
            is_own = node in definition.graph.nodes
            asked = dict(_asked_after(definition, node)) if is_own else {}
            template[node] = [_tool(asked) if kind == TOOL else _agent(node, asked)]
    return template


def _tool(asked: dict[str, str]) -> dict[str, Any]:
    entry: dict[str, Any] = {"exit_code": 0, "stdout": asked.pop(OUTPUT, ""), "stderr": "", "delay_ms": 0}
    return {**entry, "context_updates": asked} if asked else entry


def _agent(node: str, asked: dict[str, str]) -> dict[str, Any]:
    return {
        "status": "success",
        "text": f"[simulated] {node} done",
        "context_updates": asked,
        "preferred_label": "",
        "delay_ms": 0,
    }


def _asked_after(definition: Definition, node_id: str) -> Iterator[tuple[str, str]]:
    """The values with which the first condition after a node holds, also after a conditional node."""
    edges = definition.graph.outgoing(node_id)
    through = [edge.target for edge in edges if definition.kind(edge.target) == CONDITIONAL]
    for edge in (*edges, *(edge for target in through for edge in definition.graph.outgoing(target))):
        found = [(_key(clause), clause.literal) for clause in edge.guard.clauses if clause.operator == "="]
        asked = [(key, value) for key, value in found if _is_free(key)]
        if asked:
            yield from asked
            return


def _key(clause: Clause) -> str:
    return clause.key.removeprefix("context.")


def _is_free(key: str) -> bool:
    return key not in _ENGINES_OWN and not key.startswith(_PREFIXES)
