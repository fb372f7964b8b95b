"""The rule about attributes that the kind of their node does not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from onward.pipeline.chats import REQUIRED
from onward.pipeline.gate.options import OPTIONS
from onward.pipeline.graph import BUILT_IN_TYPES, Graph, Node
from onward.pipeline.rules.gates import GATE
from onward.pipeline.rules.rule import Problem, Subject, about, is_default

_SILENT = frozenset({"start", "exit", "conditional", "parallel", "tool"})
_ENDS = frozenset({"start", "exit"})
_PASSED = _ENDS | {"conditional"}
_NAMES: Mapping[str, str] = {
    "start": "the start",
    "exit": "the exit",
    "codergen": "an agent",
    "wait.human": "a human gate",
    "conditional": "a routing node",
    "parallel": "a fan-out",
    "parallel.fan_in": "a fan-in",
    "tool": "a shell command",
    "stack.manager_loop": "a manager loop",
}
_READERS: Mapping[str, tuple[str, str]] = {
    "human.": ("wait.human", "give it shape=hexagon to ask a person, or remove it"),
    "tool_command": ("tool", "give it shape=parallelogram to run the command, or remove it"),
    "manager.": ("stack.manager_loop", "give it shape=house to manage a pipeline, or remove it"),
    "join_policy": ("parallel", "write it on the node with shape=component, or remove it"),
    "max_parallel": ("parallel", "write it on the node with shape=component, or remove it"),
}
"""Attributes that one kind of node reads."""
_MUST_COUNT = ("human.", "tool_command", "goal_gate")
"""Without effect, these let a run pass where it should ask, test or stop."""


def attribute_unused(subject: Subject) -> Iterator[Problem]:
    """An attribute of ours is on a kind of node that reads it. A default is for whichever nodes read it.

    Handlers of other types may read any attribute.
    """
    graph = subject.graph
    advice: dict[tuple[str, str], str] = {}  # a file has thousands of attributes, and few names and kinds
    for node in graph.nodes.values():
        kind = _kind(graph, node)
        if kind not in BUILT_IN_TYPES:
            continue
        for key in node.attrs:
            fix = advice.get((kind, key))
            if fix is None:
                fix = advice[kind, key] = _advice(kind, key)
            if fix:
                yield from _unused(node, kind, key, fix)
        yield from _unused_data(graph, node, kind)


def _unused(node: Node, kind: str, key: str, fix: str) -> Iterator[Problem]:
    if _asks_for_nothing(node, key) or key not in node.written or is_default(node, key):
        return
    message = f"{key} of node {node.id!r} has no effect: it is {_NAMES[kind]}"
    problem = about(node, message, key=key, fix=fix)
    yield replace(problem, only_possible=not key.startswith(_MUST_COUNT))


def _unused_data(graph: Graph, node: Node, kind: str) -> Iterator[Problem]:
    """Only what a person may choose has data; proposed options have their own."""
    for edge in graph.outgoing(node.id):
        if "data" not in edge.written or is_default(edge, "data"):
            continue
        if kind != GATE:
            why, fix = (
                f"node {node.id!r} is {_NAMES[kind]}",
                "write it on the edges of a human gate, or remove it",
            )
        elif node.text(OPTIONS) and not edge.label and not edge.condition:
            why, fix = "its options have their own", "label the edge, or remove it"
        else:
            continue
        problem = about(edge, f"data of {edge.subject} has no effect: {why}", key="data", fix=fix)
        yield replace(problem, only_possible=True)


def _advice(kind: str, key: str) -> str:
    """What to write instead of an attribute that a kind of node does not read; nothing if it reads it."""
    if key == "prompt":
        return "put it on a node with shape=box, or remove it" if kind in _SILENT else ""
    if key == "goal_gate":
        return "put it on the step that must succeed" if kind in _ENDS else ""
    if key == REQUIRED:
        return "put it on the step that a resume needs" if kind in _PASSED else ""
    for begin, (reader, fix) in _READERS.items():
        if key == begin or (begin.endswith(".") and key.startswith(begin)):
            return fix if kind != reader else ""
    return ""


def _asks_for_nothing(node: Node, key: str) -> bool:
    """Whether the attribute would have no effect on any node: it is empty, or false."""
    if key == "goal_gate":
        return not node.is_true(key)
    return key == "prompt" and not node.prompt


def _kind(graph: Graph, node: Node) -> str:
    """The kind that runs a node, which may be the start or the exit by its name alone."""
    if node.id == graph.start_id:
        return "start"
    return "exit" if node.id == graph.exit_id else node.kind
