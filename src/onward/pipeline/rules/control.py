"""Rules about parallel, fan-in and manager nodes."""

from __future__ import annotations

from collections.abc import Iterator

from onward.pipeline.joins import FAN_IN, PARALLEL, joins
from onward.pipeline.rules.rule import Problem, Subject, about

MANAGER = "stack.manager_loop"
CHILD = "stack.child_dotfile"


def parallel_join(subject: Subject) -> Iterator[Problem]:
    """A parallel node has branches, and they meet at a fan-in."""
    graph = subject.graph
    fix = "route all branches to one node with shape=tripleoctagon"
    for node_id, join in joins(graph).items():
        node = graph.nodes[node_id]
        if not graph.outgoing(node_id):
            yield about(node, f"parallel node {node_id!r} has no branches", fix="add an edge for each branch")
        elif join is None:
            message = f"no common end was found for the branches of parallel node {node_id!r}"
            yield about(node, message, fix=fix)
        elif join == graph.exit_id:
            message = f"the branches of parallel node {node_id!r} share no fan-in; they end at the exit"
            yield about(node, message, fix=fix)


def fan_in_has_parallel(subject: Subject) -> Iterator[Problem]:
    """A parallel node leads to every fan-in."""
    graph = subject.graph
    fan_ins = [node for node in graph.nodes.values() if node.kind == FAN_IN]
    parallels = [node.id for node in graph.nodes.values() if node.kind == PARALLEL]
    reached = graph.after(parallels) if fan_ins else set()
    for node in fan_ins:
        if node.id not in reached:
            message = f"no parallel node leads to fan-in {node.id!r}; it has nothing to join"
            yield about(node, message, fix="add a node with shape=component before it, or use another shape")


def manager_loop_child(subject: Subject) -> Iterator[Problem]:
    """A manager loop names the pipeline that it manages."""
    graph = subject.graph
    for node in graph.nodes.values():
        if node.kind == MANAGER and not (node.text(CHILD) or graph.text(CHILD)):
            message = f"manager loop {node.id!r} has no pipeline to manage"
            yield about(node, message, fix=f'write graph [{CHILD}="child.dot"]')
