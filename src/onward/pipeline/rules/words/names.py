"""The rule about the names of attributes: a misspelt, misplaced or foreign one has no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from msgspec.structs import replace

from onward.pipeline.graph import BUILT_IN_TYPES, Edge, Graph, Node
from onward.pipeline.rules.rule import Problem, Subject, about, owner_of
from onward.pipeline.rules.tools import misspelt_command
from onward.pipeline.rules.words.vocabulary import (
    EDGE_ATTRIBUTES,
    FOREIGN_GRAPH,
    FOREIGN_NODE,
    FOREIGN_TYPE,
    GRAPH_ATTRIBUTES,
    GUARDS,
    NODE_ATTRIBUTES,
    meant,
)
from onward.pipeline.value import shown

COMPARED_MAX = 500
"""Looking for a similar name costs time per name; a file with more unknown names gets no suggestions."""
_PLACES = {
    "the graph": (GRAPH_ATTRIBUTES, "write it as graph [{key}=...]"),
    "an edge": (EDGE_ATTRIBUTES, "write it on an edge, as in a -> b [{key}=...]"),
    "a node": (NODE_ATTRIBUTES, "write it on a node, or as node [{key}=...] for all"),
}


def attribute_known(subject: Subject) -> Iterator[Problem]:
    """No attribute is nearly one of ours, in the wrong place, or one that only other programs read."""
    graph = subject.graph
    names = _Names()
    for owner in chain[Graph | Node | Edge]((graph,), graph.nodes.values(), graph.edges):
        ours = _ours(owner)
        if ours.issuperset(owner.attrs):
            continue
        # What an error about the node says is not said again.
        said = misspelt_command(owner) if isinstance(owner, Node) else ""
        for key in owner.attrs:
            if key not in ours and key in owner.written and key != said:
                yield from names.problems(owner, key)


class _Names:
    """Judges names: a value that many nodes of a kind have only once, and a name only once."""

    def __init__(self) -> None:
        self._near: dict[tuple[type, str], str] = {}
        self._judged: set[tuple[int, str]] = set()

    def problems(self, owner: Graph | Node | Edge, key: str) -> Iterator[Problem]:
        kind = owner.kind if isinstance(owner, Node) else ""
        value = owner.written[key].start, kind
        if value in self._judged:
            return
        self._judged.add(value)
        near = self._meant(owner, key)
        if near and near not in owner.attrs:
            message = f"{key} of {owner_of(owner, key)} has no effect"
            problem = about(owner, message, key=key, fix=f"did you mean {near}?")
            yield replace(problem, only_possible=near not in GUARDS)
        elif not kind or kind in BUILT_IN_TYPES:  # a handler of another type may read anything else
            yield from _foreign(owner, key) or _misplaced(owner, key)

    def _meant(self, owner: Graph | Node | Edge, key: str) -> str:
        search = type(owner), key
        if search not in self._near and len(self._near) < COMPARED_MAX:
            self._near[search] = meant(key, _ours(owner))
        return self._near.get(search, "")


def _ours(owner: Graph | Node | Edge) -> frozenset[str]:
    if isinstance(owner, Graph):
        return GRAPH_ATTRIBUTES
    return NODE_ATTRIBUTES if isinstance(owner, Node) else EDGE_ATTRIBUTES


def _misplaced(owner: Graph | Node | Edge, key: str) -> tuple[Problem, ...]:
    for place, (names, fix) in _PLACES.items():
        if key in names:
            message = f"{key} of {owner_of(owner, key)} has no effect: it belongs to {place}"
            problem = about(owner, message, key=key, fix=fix.format(key=key))
            return (replace(problem, only_possible=key not in GUARDS),)
    return ()


def _foreign(owner: Graph | Node | Edge, key: str) -> tuple[Problem, ...]:
    if isinstance(owner, Node) and key in FOREIGN_TYPE:
        return _foreign_type(owner, key)
    ours = _names_of(owner).get(key, "")
    if not ours or ours in owner.attrs:
        return ()
    message = f"{key} of {owner_of(owner, key)} has no effect"
    return (replace(about(owner, message, key=key, fix=f"write {ours}"), only_possible=True),)


def _foreign_type(node: Node, key: str) -> tuple[Problem, ...]:
    """Others name the handler so. If the node is of another kind, what was meant does not run."""
    wanted = node.text(key)
    if node.type or wanted == node.kind:
        return ()
    message = f"{key} of {owner_of(node, key)} is {shown(wanted)}, which has no effect: it is {node.kind}"
    is_ours = wanted in BUILT_IN_TYPES
    fix = f"write type={wanted}" + ("" if is_ours else " if you register such a handler, or remove it")
    return (replace(about(node, message, key=key, fix=fix), only_possible=not is_ours),)


def _names_of(owner: Graph | Node | Edge) -> Mapping[str, str]:
    if isinstance(owner, Graph):
        return FOREIGN_GRAPH
    return {**FOREIGN_NODE[""], **FOREIGN_NODE.get(owner.kind, {})} if isinstance(owner, Node) else {}
