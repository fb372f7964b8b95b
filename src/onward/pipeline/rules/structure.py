"""Rules about how nodes and edges are connected."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches

from onward.model.limits import NAME_CHARACTERS_MAX
from onward.pipeline.graph import Graph, Node
from onward.pipeline.rules.rule import Problem, Subject, about, owner_of

NAME_SHOWN = 40
NAMES_COMPARED_MAX = 200
"""Looking for a similar name costs time per name; larger graphs get no suggestion."""


def name_length(subject: Subject) -> Iterator[Problem]:
    """Names are in indexes of the database, which limit their length."""
    graph = subject.graph
    named: list[tuple[Graph | Node, str, str]] = [(graph, "the pipeline name", graph.name)]
    for node in graph.nodes.values():
        named += [(node, "the node id", node.id), (node, "the handler name", node.type)]
    for owner, what, name in named:
        if len(name) > NAME_CHARACTERS_MAX:
            message = f"{what} {name[:NAME_SHOWN]!r}… has {len(name):,} characters"
            yield about(owner, message, fix=f"shorten it to at most {NAME_CHARACTERS_MAX}")


def reachability(subject: Subject) -> Iterator[Problem]:
    """V3: every node can be reached from the start by edges; a jump by `retry_target` is not an edge."""
    graph = subject.graph
    if graph.start_id is None:
        return
    jumps = _jumps(graph)
    for node in graph.nodes.values():
        if node.id not in graph.reachable:
            fix = "add an edge to it, or remove it"
            if node.id in jumps:
                fix = "a retry target does not make it reachable: add an edge, with a condition if needed"
            yield about(node, f"node {node.id!r} cannot be reached from the start", fix=fix)


def edge_target_exists(subject: Subject) -> Iterator[Problem]:
    """V4: both ends of an edge are declared nodes."""
    graph = subject.graph
    for edge in graph.edges:
        for node_id in dict.fromkeys((edge.source, edge.target)):
            if node_id not in graph.nodes:
                message = f"edge {edge.source} -> {edge.target} names node {node_id!r}, which is not declared"
                yield about(edge, message, fix=_similar(node_id, graph.nodes) or f"declare {node_id}")


def start_no_incoming(subject: Subject) -> Iterator[Problem]:
    """V5: nothing leads back to the start."""
    graph = subject.graph
    for node_id in graph.starts:
        for edge in graph.incoming(node_id):
            fix = "point it at the node after the start"
            yield about(edge, f"edge {edge.source} -> {edge.target} leads to the start node", fix=fix)


def exit_no_outgoing(subject: Subject) -> Iterator[Problem]:
    """V6: no edge leaves the exit."""
    graph = subject.graph
    for node_id in graph.exits:
        for edge in graph.outgoing(node_id):
            yield about(edge, f"edge {edge.source} -> {edge.target} leaves the exit node", fix="remove it")


def dead_end(subject: Subject) -> Iterator[Problem]:
    """Only the exit has no outgoing edges. Nodes that no run can reach are left to `reachability`."""
    graph = subject.graph
    if not graph.exits:
        return
    jumps = _jumps(graph)
    for node in graph.nodes.values():
        is_met = node.id in graph.starts or node.id in jumps or graph.incoming(node.id)
        if is_met and node.id not in graph.exits and not graph.outgoing(node.id):
            message = f"node {node.id!r} has no outgoing edges; a run or a branch that gets there ends there"
            yield about(node, message, fix=f"add an edge, for example {node.id} -> {graph.exits[0]}")


def retry_target_exists(subject: Subject) -> Iterator[Problem]:
    """V11: both kinds of retry target name declared nodes."""
    graph = subject.graph
    for owner in _owners(graph):
        for key in ("retry_target", "fallback_retry_target"):
            target = owner.text(key)
            if target and target not in graph.nodes:
                message = f"{key} of {owner_of(owner, key)} names node {target!r}, which is not declared"
                yield about(owner, message, key=key, fix=_similar(target, graph.nodes))


def goal_gate_has_retry(subject: Subject) -> Iterator[Problem]:
    """V12: every goal gate has a retry target."""
    graph = subject.graph
    if any(_targets(graph)):
        return
    for node in graph.nodes.values():
        if node.is_true("goal_gate") and not any(_targets(node)):
            message = f"node {node.id!r} is a goal gate without a retry target; if it is unmet, the run fails"
            yield about(node, message, fix="set retry_target on the node or the graph")


def _owners(graph: Graph) -> Iterator[Graph | Node]:
    yield graph
    yield from graph.nodes.values()


def _jumps(graph: Graph) -> set[str]:
    """The nodes that retry targets name; an empty name is none."""
    return {target for owner in _owners(graph) for target in _targets(owner)}


def _targets(owner: Graph | Node) -> tuple[str, str]:
    return owner.retry_target, owner.fallback_retry_target


def _similar(name: str, names: Collection[str]) -> str | None:
    if len(names) > NAMES_COMPARED_MAX:
        return None
    matches = get_close_matches(name, names, n=1)
    return f"did you mean {matches[0]!r}?" if matches else None
