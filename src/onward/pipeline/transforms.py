"""Transforms of a graph between reading and checking: their interface, and the built-in one for `$goal`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from onward.errors import InvalidPipeline
from onward.model.context import TEXT_CHARACTERS_MAX, escaped, references
from onward.pipeline.diagnostic import Diagnostic, Severity
from onward.pipeline.graph import Graph, Node


class Applicable(Protocol):
    """A transform as an object, for those that carry settings."""

    def apply(self, graph: Graph) -> Graph:
        """Returns another graph; the given one must not change."""
        ...


Transform = Callable[[Graph], Graph] | Applicable
"""Takes a graph and returns another; it must not change the given one."""

VARIABLE, BRACED = "$goal", "${goal}"
EXPANDED_CHARACTERS_MAX = TEXT_CHARACTERS_MAX
"""All prompts together after expansion: a long goal that is used often must not fill the memory."""


def expand_goal(graph: Graph) -> Graph:
    """Replace `$goal` in every prompt with the graph's goal, which is not expanded itself.

    A label that replaces a missing prompt is expanded into the prompt. The goal is escaped there, because
    other names are expanded when the step starts, and what the goal contains is text.
    """
    changed: dict[str, Node] = {}
    expanded: dict[str, str] = {}
    total, goal = 0, escaped(graph.goal)
    for node in graph.nodes.values():
        template = node.instruction
        if VARIABLE not in template and BRACED not in template:
            continue
        if template not in expanded:
            places = [at for name, at in references(template) if name == "goal"]
            total += len(template) + len(places) * (len(goal) - len(VARIABLE))
            if total > EXPANDED_CHARACTERS_MAX:
                raise InvalidPipeline([_too_long(graph, node)])
            expanded[template] = _filled(template, places, goal)
        changed[node.id] = node.with_prompt(expanded[template])
    return replace(graph, nodes=MappingProxyType({**graph.nodes, **changed})) if changed else graph


def _filled(template: str, places: Sequence[int], goal: str) -> str:
    """The template with the goal at these places, where it says `$goal` or `${goal}`."""
    parts, at = [], 0
    for place in places:
        parts += [template[at:place], goal]
        at = place + len(BRACED if template.startswith(BRACED, place) else VARIABLE)
    return "".join((*parts, template[at:]))


def _too_long(graph: Graph, node: Node) -> Diagnostic:
    message = f"with {VARIABLE} expanded, the prompts exceed {EXPANDED_CHARACTERS_MAX:,} characters"
    fix = "shorten the goal or use it less often"
    place = graph.file, node.line, node.column
    return Diagnostic("limit", Severity.ERROR, message, *place, node_id=node.id, fix=fix)
