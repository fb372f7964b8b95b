"""Transforms of a graph between reading and checking: their interface, and the built-in one for `$goal`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from onward.errors import InvalidPipeline
from onward.pipeline.diagnostic import Diagnostic, Severity
from onward.pipeline.graph import Graph, Node


class Applicable(Protocol):
    """A transform as an object, for those that carry settings."""

    def apply(self, graph: Graph) -> Graph:
        """Returns another graph; the given one must not change."""
        ...


Transform = Callable[[Graph], Graph] | Applicable
"""Takes a graph and returns another; it must not change the given one."""

VARIABLE = "$goal"
EXPANDED_CHARACTERS_MAX = 8_388_608
"""All prompts together after expansion: a long goal that is used often must not fill the memory."""


def expand_goal(graph: Graph) -> Graph:
    """Replace `$goal` in every prompt with the graph's goal, which is not expanded itself.

    A label that replaces a missing prompt is expanded into the prompt, so that nothing expands it later.
    """
    changed: dict[str, Node] = {}
    expanded: dict[str, str] = {}
    total = 0
    for node in graph.nodes.values():
        template = node.prompt or node.label
        if VARIABLE not in template:
            continue
        if template not in expanded:
            total += len(template) + template.count(VARIABLE) * (len(graph.goal) - len(VARIABLE))
            if total > EXPANDED_CHARACTERS_MAX:
                raise InvalidPipeline([_too_long(graph, node)])
            expanded[template] = template.replace(VARIABLE, graph.goal)
        # The position stays: what is wrong with a prompt is wrong where it is written.
        changed[node.id] = replace(node, attrs=MappingProxyType({**node.attrs, "prompt": expanded[template]}))
    return replace(graph, nodes=MappingProxyType({**graph.nodes, **changed})) if changed else graph


def _too_long(graph: Graph, node: Node) -> Diagnostic:
    message = f"with {VARIABLE} expanded, the prompts exceed {EXPANDED_CHARACTERS_MAX:,} characters"
    fix = "shorten the goal or use it less often"
    place = graph.file, node.line, node.column
    return Diagnostic("limit", Severity.ERROR, message, *place, node_id=node.id, fix=fix)
