"""The graph while it is being read: scopes with their defaults, declarations, and problems."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NoReturn

import msgspec

from onward.pipeline.graph import Edge, Graph, Node
from onward.pipeline.source import Diagnostic, Severity, Source, Token, Value, Written, as_text

NODES_MAX = 5_000
EDGES_MAX = 20_000
ATTRIBUTES_MAX = 64
"""Attributes of one node, edge or graph. Without a limit, defaults could multiply a small file."""
CLASSES_MAX = 64
DIAGNOSTICS_MAX = 100
"""Reading stops after this many errors, and keeps this many warnings."""

_NOT_IN_CLASS = re.compile(r"[^a-z0-9-]")


class Stopped(Exception):
    """Nothing more can be read; the reason is among the errors."""


class Block(msgspec.Struct, frozen=True):
    """Attributes with their positions. It never changes, so scopes, nodes and edges may share it."""

    values: Mapping[str, Value] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    written: Mapping[str, Written] = msgspec.field(default_factory=lambda: MappingProxyType({}))

    def over(self, defaults: Block) -> Block:
        """These attributes, and the defaults for all others."""
        if not (self.values and defaults.values):
            return self if self.values else defaults
        values = MappingProxyType({**defaults.values, **self.values})
        return Block(values, MappingProxyType({**defaults.written, **self.written}))


EMPTY = Block()


class DraftScope(msgspec.Struct):
    """What applies between one pair of braces: defaults, its own attributes, the nodes declared inside."""

    node: Block = EMPTY
    edge: Block = EMPTY
    graph: Block = EMPTY
    members: dict[str, None] = msgspec.field(default_factory=dict)


class _Declared(msgspec.Struct):
    token: Token
    block: Block
    derived: dict[str, None] = msgspec.field(default_factory=dict)


class Draft:
    """Collects statements in the order of the file and turns them into a graph."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.errors: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self.scopes = [DraftScope()]
        self._nodes: dict[str, _Declared] = {}
        self._edges: list[Edge] = []

    def error(self, rule: str, message: str, start: int, *, fix: str | None = None) -> None:
        """Record an error; Stopped once there are too many to be worth reading."""
        self.errors.append(self.source.error(rule, message, start, fix=fix))
        if len(self.errors) >= DIAGNOSTICS_MAX:
            self.stop("limit", f"reading stops after {DIAGNOSTICS_MAX} errors", start, fix="fix these first")

    def stop(self, rule: str, message: str, start: int, *, fix: str | None = None) -> NoReturn:
        """Record an error after which nothing more can be read, and raise Stopped."""
        self.errors.append(self.source.error(rule, message, start, fix=fix))
        raise Stopped

    def warn(self, rule: str, message: str, start: int, *, fix: str | None = None) -> None:
        """Record a warning."""
        if len(self.warnings) < DIAGNOSTICS_MAX:
            line, column = self.source.position(start)
            warning = Diagnostic(rule, Severity.WARNING, message, self.source.file, line, column, fix=fix)
            self.warnings.append(warning)

    def open_scope(self) -> None:
        """Enter a subgraph: the outer defaults apply until the inner ones override them."""
        outer = self.scopes[-1]
        self.scopes.append(DraftScope(outer.node, outer.edge))

    def close_scope(self) -> None:
        """Leave a subgraph: its label becomes a class of every node declared inside."""
        scope = self.scopes.pop()
        if derived := derived_class(scope.graph.values.get("label", "")):
            for node_id in scope.members:
                self._nodes[node_id].derived[derived] = None
        self.scopes[-1].members.update(scope.members)

    def set_defaults(self, word: str, block: Block, start: int) -> None:
        """Add a `graph`, `node` or `edge` block to the current scope."""
        scope = self.scopes[-1]
        match word:
            case "node":
                scope.node = self._merged(block, scope.node, start)
            case "edge":
                scope.edge = self._merged(block, scope.edge, start)
            case _:
                scope.graph = self._merged(block, scope.graph, start)

    def declare(self, token: Token, block: Block) -> None:
        """Add a node, or attributes to one that exists; defaults apply where it is first declared."""
        node_id, scope = token.text, self.scopes[-1]
        scope.members[node_id] = None
        if known := self._nodes.get(node_id):
            if block.values:
                line = self.source.position(known.token.start)[0]
                message = f"node {node_id!r} is declared again, which adds to line {line}"
                self.warn("repeated_node", message, token.start, fix="declare it once")
            known.block = self._merged(block, known.block, token.start)
        elif len(self._nodes) == NODES_MAX:
            self.stop("limit", f"the pipeline has more than {NODES_MAX:,} nodes", token.start)
        else:
            self._nodes[node_id] = _Declared(token, self._merged(block, scope.node, token.start))
        self._check_classes(self._nodes[node_id].block, token)

    def too_many_attributes(self, start: int) -> NoReturn:
        """Stop: a small file must not grow into a large graph."""
        self.stop("limit", f"more than {ATTRIBUTES_MAX} attributes in one place", start)

    def check_edges(self, chain: Sequence[Token]) -> None:
        """Stop if the edges of this chain would be too many."""
        if len(self._edges) + len(chain) - 1 > EDGES_MAX:
            self.stop("limit", f"the pipeline has more than {EDGES_MAX:,} edges", chain[-1].start)

    def connect(self, chain: Sequence[Token], block: Block) -> None:
        """Add an edge for each neighbouring pair of a chain, all with the same attributes."""
        block = self._merged(block, self.scopes[-1].edge, chain[0].start)
        for source, target in pairwise(chain):
            line, column = self.source.position(source.start)
            order = len(self._edges)
            self._edges.append(
                Edge(source.text, target.text, block.values, order, block.written, line=line, column=column)
            )

    def graph(self, name: str, start: int) -> Graph:
        """The graph that was collected."""
        nodes = {node_id: self._node(node_id, declared) for node_id, declared in self._nodes.items()}
        own = self.scopes[0].graph
        line, column = self.source.position(start)
        return Graph(
            name,
            own.values,
            MappingProxyType(nodes),
            tuple(self._edges),
            file=self.source.file,
            written=own.written,
            line=line,
            column=column,
        )

    def _node(self, node_id: str, declared: _Declared) -> Node:
        line, column = self.source.position(declared.token.start)
        block = declared.block
        return Node(node_id, block.values, tuple(declared.derived), block.written, line=line, column=column)

    def _merged(self, block: Block, defaults: Block, start: int) -> Block:
        merged = block.over(defaults)
        if len(merged.values) > ATTRIBUTES_MAX:
            self.too_many_attributes(start)
        return merged

    def _check_classes(self, block: Block, token: Token) -> None:
        if as_text(block.values.get("class", "")).count(",") >= CLASSES_MAX:
            self.stop("limit", f"node {token.text!r} has more than {CLASSES_MAX} classes", token.start)


def derived_class(label: Value) -> str:
    """The class that a subgraph's label gives to its nodes: "Loop A" gives `loop-a`."""
    return _NOT_IN_CLASS.sub("", as_text(label).lower().replace(" ", "-"))
