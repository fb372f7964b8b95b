"""How much of the past an agent step is shown, and what a resume does to it.

`full` means the same live session, and a session does not survive its process. So the first agent step
after a resume that would be `full` is shown a detailed summary instead; what happened is recorded with
the attempt, and the step after it is free again.
"""

from __future__ import annotations

from onward.model.run import Branch, Run
from onward.pipeline.graph import Graph, Node

DEFAULT, FULL, DEGRADED = "compact", "full", "summary:high"


def fidelity_of(graph: Graph, run: Run, branch: Branch, node: Node) -> tuple[str, str]:
    """The mode for the node's next attempt, and the mode it would have had without the resume."""
    mode = (
        _written_on_edge(graph, branch, node)
        or node.text("fidelity")
        or graph.text("default_fidelity")
        or DEFAULT
    )
    if mode == FULL and run.first_hop:
        return DEGRADED, FULL
    return mode, ""


def _written_on_edge(graph: Graph, branch: Branch, node: Node) -> str:
    came_from, place = branch.previous, branch.edge
    if place is None:
        return ""  # a jump
    edges = [edge for edge in graph.outgoing(came_from) if edge.target == node.id]
    # The place is from the definition of that time; if it changed since, an only edge is still the one.
    came_by = [edge for edge in edges if edge.order == place] or (edges if len(edges) == 1 else [])
    return came_by[0].text("fidelity") if came_by else ""
