"""Model stylesheets: their grammar, and which model a node asks for.

`* { llm_model: gpt-5; } .careful { reasoning_effort: high }` is one. First it is parsed; then its rules and
the graph's own defaults are written onto the nodes. The tools that agents are allowed have a default of the
graph, too.

For each property, the first that sets it wins: the node (with its scoped `node [...]` defaults), the
stylesheet, the graph's attribute of the same name, and last the handler.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

import msgspec

from onward.errors import StylesheetError
from onward.pipeline.graph import Graph, Node
from onward.pipeline.source import unescaped

__all__ = ["PROPERTIES", "Property", "Selector", "StyleRule", "StylesheetError", "parse_stylesheet"]

PROPERTIES = ("llm_model", "llm_provider", "reasoning_effort", "agent_program")
"""What a stylesheet can set."""
RULES_MAX = 1_000
SETTINGS_MAX = 5_000

Kind = Literal["all", "shape", "class", "id"]
_SPECIFICITY: dict[Kind, int] = {"all": 0, "shape": 1, "class": 2, "id": 3}

_SPACE = re.compile(r"\s*+")
_SELECTOR = re.compile(
    r"(?P<all>\*)|\.(?P<class>[a-z0-9-]++)|#(?P<id>[A-Za-z_]\w*+)|(?P<shape>[A-Za-z_]\w*+)", re.ASCII
)
_NAME = re.compile(r"[A-Za-z_][\w-]*+", re.ASCII)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_BARE = re.compile(r"[\w.:/+@-]++")


class Selector(msgspec.Struct, frozen=True):
    """Which nodes a rule applies to; of two rules, the more specific one wins."""

    kind: Kind
    name: str
    offset: int

    @property
    def specificity(self) -> int:
        return _SPECIFICITY[self.kind]


class Property(msgspec.Struct, frozen=True):
    """One setting of a rule."""

    name: str
    value: str
    offset: int


class StyleRule(msgspec.Struct, frozen=True):
    """A selector with its settings, in the order they were written."""

    selector: Selector
    properties: tuple[Property, ...]


def parse_stylesheet(text: str) -> tuple[StyleRule, ...]:
    """The rules of a stylesheet in order; StylesheetError says what is wrong and at which character."""
    reader = _Reader(text)
    rules: list[StyleRule] = []
    settings = 0
    while not reader.at_end():
        if len(rules) == RULES_MAX:
            raise StylesheetError(f"there are more than {RULES_MAX:,} rules", reader.place)
        rules.append(reader.rule(SETTINGS_MAX - settings))
        settings += len(rules[-1].properties)
    return tuple(rules)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.skip()

    def at_end(self) -> bool:
        return self.place == len(self.text)

    def rule(self, settings_max: int) -> StyleRule:
        selector = self.selector()
        opened = self.place
        self.expect("{")
        properties: list[Property] = []
        while not self.took("}"):
            if self.at_end():
                raise StylesheetError("this '{' is never closed", opened)
            if len(properties) == settings_max:
                raise StylesheetError(f"there are more than {SETTINGS_MAX:,} settings", self.place)
            properties.append(self.setting())
            if not self.took(";") and not self.at_end() and self.text[self.place] != "}":
                raise self.unexpected("';' or '}'")
        return StyleRule(selector, tuple(properties))

    def selector(self) -> Selector:
        match = _SELECTOR.match(self.text, self.place)
        if match is None:
            raise self.unexpected("a selector: *, a shape, .class (lower case) or #id")
        kinds: tuple[Kind, ...] = ("all", "class", "id", "shape")
        kind = next(kind for kind in kinds if match[kind])
        self.place = match.end()
        self.skip()
        return Selector(kind, match[kind], match.start())

    def setting(self) -> Property:
        match = _NAME.match(self.text, self.place)
        if match is None:
            raise self.unexpected("a property")
        if match[0] not in PROPERTIES:
            known = ", ".join(PROPERTIES)
            raise StylesheetError(f"unknown property {match[0]!r}; use one of {known}", match.start())
        self.place = match.end()
        self.skip()
        self.expect(":")
        return Property(match[0], self.value(), match.start())

    def value(self) -> str:
        quoted = _QUOTED.match(self.text, self.place)
        match = quoted or _BARE.match(self.text, self.place)
        if match is None:
            raise self.unexpected("a value")
        self.place = match.end()
        self.skip()
        return unescaped(quoted[1]) if quoted else match[0]

    def expect(self, mark: str) -> None:
        if not self.took(mark):
            raise self.unexpected(f"{mark!r}")

    def took(self, mark: str) -> bool:
        if not self.text.startswith(mark, self.place):
            return False
        self.place += 1
        self.skip()
        return True

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.place)
        self.place = match.end() if match else self.place

    def unexpected(self, expected: str) -> StylesheetError:
        found = "the end" if self.at_end() else repr(self.text[self.place])
        return StylesheetError(f"expected {expected}, found {found}", self.place)


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
