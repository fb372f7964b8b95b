"""Which model a node asks for: the model stylesheet and the graph's own defaults, written onto the nodes.
The tools that agents are allowed have a default of the graph, too.

For each property, the first that sets it wins: the node (with its scoped `node [...]` defaults), the
stylesheet, the graph's attribute of the same name, and last the handler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from onward.errors import StylesheetError
from onward.pipeline.graph import Graph, Node
from onward.pipeline.stylesheet import PROPERTIES, Kind, StyleRule, parse_stylesheet

DEFAULTS = (*PROPERTIES, "allowed_tools")
_Rank = tuple[int, int]
_Style = Mapping[str, tuple[_Rank, str]]
"""For each property: how strong its rule is (specificity, then position), and its value."""
_NO_STYLE: _Style = {}
_Properties = Mapping[str, str]


def apply_stylesheet(graph: Graph) -> Graph:
    """Give every node the model, provider, effort and tools that it leaves open.

    A stylesheet that does not parse is ignored here; the checker reports it.
    """
    try:
        rules = parse_stylesheet(graph.text("model_stylesheet"))
    except StylesheetError:
        rules = ()
    defaults = {name: graph.text(name) for name in DEFAULTS if graph.text(name)}
    if not (rules or defaults):
        return graph
    styles = _Styles(rules, defaults)
    changed: dict[str, Node] = {}
    for node in graph.nodes.values():
        found = styles.of(node)
        if missing := {name: value for name, value in found.items() if name not in node.attrs}:
            changed[node.id] = node.with_attrs(missing)
    return replace(graph, nodes=MappingProxyType({**graph.nodes, **changed})) if changed else graph


class _Styles:
    """Rules by what they select, so that the cost of a node does not grow with all rules."""

    def __init__(self, rules: Iterable[StyleRule], defaults: _Properties) -> None:
        self._defaults = defaults
        self._by: dict[tuple[Kind, str], dict[str, tuple[_Rank, str]]] = {}
        self._seen: dict[tuple[str, tuple[str, ...]], _Properties] = {}
        for place, rule in enumerate(rules):
            selector = rule.selector
            style = self._by.setdefault((selector.kind, selector.name), {})
            for setting in rule.properties:
                style[setting.name] = (selector.specificity, place), setting.value

    def of(self, node: Node) -> _Properties:
        """The properties that the rules and the defaults give a node. Nodes of a group share them."""
        group = node.shape, node.classes
        if group not in self._seen:
            classes: list[tuple[Kind, str]] = [("class", name) for name in node.classes]
            style = self._strongest([("all", "*"), ("shape", node.shape), *classes])
            self._seen[group] = {**self._defaults, **_properties(style)}
        own = self._by.get(("id", node.id))
        return {**self._seen[group], **_properties(own)} if own else self._seen[group]

    def _strongest(self, selectors: Iterable[tuple[Kind, str]]) -> _Style:
        strongest: dict[str, tuple[_Rank, str]] = {}
        for selector in selectors:
            for name, (rank, value) in self._by.get(selector, _NO_STYLE).items():
                if name not in strongest or strongest[name][0] < rank:
                    strongest[name] = rank, value
        return strongest


def _properties(style: _Style) -> _Properties:
    return {name: value for name, (_, value) in style.items()}
