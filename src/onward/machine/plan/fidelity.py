"""How much of the past an agent step is shown, in which conversation, and what a resume does to it.

`full` means the same session. A conversation that is stored with the run survives every process. A live
session outside does not: so the first agent step of each branch after a resume that would be `full`, and
whose conversation is not stored, is shown a detailed summary instead; what happened is recorded with the
attempt, and the step after it is free again.
"""

from __future__ import annotations

from collections.abc import Container

from onward.model.ids import place
from onward.model.run import Branch, Frozen
from onward.pipeline.graph import Edge, Graph, Node
from onward.pipeline.rules.attributes import DEFAULT_FIDELITY, FIDELITIES

FULL, DEGRADED = "full", "summary:high"


class Shown(Frozen, frozen=True):
    """What an agent step is shown: the mode, the mode it lost, and the key of its conversation."""

    fidelity: str = ""
    degraded_from: str = ""
    thread: str = ""


def shown_to(
    graph: Graph, branch: Branch, branch_id: str, node: Node, *, stored: Container[str], continues: bool
) -> Shown:
    """For the node's next attempt in the branch `branch_id`.

    `stored` are the threads whose conversation the run has; the attempt `continues` one of the step's own.

    A step that was to be `full` and is not has its thread all the same: its new session takes the place of
    the lost one, and the next step under this key continues from there.
    """
    edge = _came_by(graph, branch, node)
    mode = _mode(graph, edge, node)
    if mode != FULL:
        return Shown(mode)
    thread = _thread(graph, branch, branch_id, edge, node)
    is_lost = branch.first_hop and not continues and thread not in stored
    return Shown(DEGRADED, FULL, thread) if is_lost else Shown(FULL, "", thread)


def _mode(graph: Graph, edge: Edge | None, node: Node) -> str:
    """The edge's, the node's or the graph's; one that does not exist counts as the default, as lint says."""
    on_edge = edge.text("fidelity") if edge else ""
    mode = on_edge or node.text("fidelity") or graph.text("default_fidelity")
    return mode if mode in FIDELITIES else DEFAULT_FIDELITY


def _thread(graph: Graph, branch: Branch, branch_id: str, edge: Edge | None, node: Node) -> str:
    """The key of the conversation. Inside a branch it is the branch's own: two of them never share one."""
    key = (
        node.text("thread_id")
        or (edge.text("thread_id") if edge else "")
        or graph.text("default_thread_id")
        or next(iter(node.derived), "")
        or branch.previous
        or node.id
    )
    return place(key, branch_id)


def _came_by(graph: Graph, branch: Branch, node: Node) -> Edge | None:
    """The edge that led here; None after a jump."""
    if branch.edge is None:
        return None
    edges = [edge for edge in graph.outgoing(branch.previous) if edge.target == node.id]
    # The place is from the definition of that time; if it changed since, an only edge is still the one.
    came_by = [edge for edge in edges if edge.order == branch.edge] or (edges if len(edges) == 1 else [])
    return came_by[0] if came_by else None
