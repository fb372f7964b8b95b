"""Rules about where a run begins and where it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onward.pipeline.graph import Graph, Node
from onward.pipeline.rules.rule import Problem, Subject, about

NAMES_SHOWN_MAX = 5
_STARTS = ("start", "begin", "entry")
_EXITS = ("exit", "end", "done", "finish", "finished", "stop")


def start_node(subject: Subject) -> Iterator[Problem]:
    """V1: exactly one start."""
    graph = subject.graph
    if not graph.starts:
        fix = _meant(graph, "Mdiamond", _STARTS) or "give one node shape=Mdiamond, or name it 'start'"
        yield about(graph, "the pipeline has no start node", fix=fix)
    yield from _too_many(graph, "start", graph.starts)


def terminal_node(subject: Subject) -> Iterator[Problem]:
    """V2: exactly one exit."""
    graph = subject.graph
    if not graph.exits:
        fix = _meant(graph, "Msquare", _EXITS) or _last(graph)
        yield about(graph, "the pipeline has no exit node", fix=fix)
    yield from _too_many(graph, "exit", graph.exits)


def _meant(graph: Graph, shape: str, names: Sequence[str]) -> str:
    """Advice that names the nodes whose shape or name nearly says it."""
    nodes = graph.nodes.values()
    found = [node.id for node in nodes if node.shape.lower() == shape.lower()]
    found = found or [node.id for node in nodes if node.id.lower() in names]
    if not found:
        return ""
    one = repr(found[0]) if len(found) == 1 else f"one of {listed([repr(name) for name in found])}"
    return f"did you mean {one}? Write {found[0]} [shape={shape}]"


def _last(graph: Graph) -> str:
    """Advice that names the nodes after which a run could end."""
    last = [node_id for node_id in graph.nodes if not graph.outgoing(node_id)]
    if not last or len(graph.nodes) == 1:
        return "give one node shape=Msquare, or name it 'exit'"
    names = listed([repr(name) for name in last])
    return f"no edge leaves {names}: write exit [shape=Msquare] and {last[0]} -> exit"


def _too_many(graph: Graph, role: str, claimants: Sequence[str]) -> Iterator[Problem]:
    # A node with type=exit ends the run even beside one that has the shape.
    typed: list[Node] = [node for node in graph.nodes.values() if node.type == role]
    found = tuple(dict.fromkeys((*claimants, *(node.id for node in typed))))
    if len(found) > 1:
        message = f"the pipeline has {len(found)} {role} nodes: {listed(found)}"
        yield about(graph.nodes[found[1]], message, fix="keep exactly one")


def listed(names: Sequence[str]) -> str:
    """Some names for a message, and how many more there are."""
    more = len(names) - NAMES_SHOWN_MAX
    return ", ".join(names[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def exit_reachable(subject: Subject) -> Iterator[Problem]:
    """Every node leads to the exit, to a dead end, or to an edge that starts the run anew.

    The rule dead_end reports dead ends, and jumps to retry targets count as ways.
    """
    graph = subject.graph
    if graph.start_id is None or graph.exit_id is None:
        return
    ends = {node_id for node_id in graph.nodes if not graph.outgoing(node_id)}
    ends |= {edge.source for edge in graph.restarts}
    ending = _leading_to(graph, ends)
    caught = [node_id for node_id in graph.nodes if node_id in graph.reachable and node_id not in ending]
    if caught:
        names = listed([repr(node_id) for node_id in caught])
        message = f"no edge leads from {names} to the exit: a run that gets there cannot finish"
        fix = f"add an edge with a condition, for example {caught[0]} -> {graph.exit_id}"
        yield about(graph.nodes[caught[0]], message, fix=fix)


def _leading_to(graph: Graph, ends: set[str]) -> set[str]:
    """The nodes from which one of the ends can be reached, by edges and by retry targets."""
    jumps: dict[str, list[str]] = {}
    for node in graph.nodes.values():
        for target in (node.retry_target, node.fallback_retry_target):
            if target:
                jumps.setdefault(target, []).append(node.id)
    found, ahead = set(ends), list(ends)
    while ahead:
        node_id = ahead.pop()
        before = {edge.source for edge in graph.incoming(node_id)}.union(jumps.get(node_id, ())) - found
        ahead += before
        found |= before
    return found
