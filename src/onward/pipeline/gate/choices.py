"""What a gate offers: one choice for each edge, or for each option that a step proposed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from onward.model.gate import Choice
from onward.pipeline.edges import accelerator, has_accelerator
from onward.pipeline.gate.answers import worded
from onward.pipeline.gate.options import OPTIONS, Option, Unaskable, options_edge, options_of
from onward.pipeline.gate.words import APPROVING, LABEL_CHARACTERS_MAX, REJECTING, YES_AND_NO
from onward.pipeline.graph import Edge, Graph, Node

Words = Callable[[str], str]
"""Puts values into a text."""
Find = Callable[[str], Any]
"""Gives a value by its name; None if there is none."""


def as_written(text: str) -> str:
    """A text without values, as the checker sees it."""
    return text


def offered(
    graph: Graph, node: Node, kind: str, words: Words = as_written, find: Find | None = None
) -> tuple[Choice, ...]:
    """What a gate of this type offers; a yes/no question offers yes and no, in this order."""
    choices = choices_of(graph, node, words, find)
    if not choices:
        raise Unaskable(f"human gate {node.id} has no edges to choose from", "shape")
    return _yes_and_no(node, kind, choices) if kind in YES_AND_NO else choices


def choices_of(
    graph: Graph, node: Node, words: Words = as_written, find: Find | None = None
) -> tuple[Choice, ...]:
    """One choice for each edge, and for each option in place of their edge, each with a key of its own.

    A written key, as in `[Y] Yes`, always belongs to its label; a first character only if it is free.
    Without `find` no option is known, and their edge is offered.
    """
    open_edge = options_edge(graph, node)
    offers = [
        (offer, edge)
        for edge in graph.outgoing(node.id)
        for offer in _offers(node, edge, words, find if edge is open_edge else None)
    ]
    keys = keys_of([offer.label for offer, _ in offers])
    return tuple(
        Choice(key=key, label=offer.label, to=edge.target, data=offer.data)
        for key, (offer, edge) in zip(keys, offers, strict=True)
    )


def _offers(node: Node, edge: Edge, words: Words, find: Find | None) -> Iterator[Option]:
    if find is not None:
        yield from options_of(node, find)
    else:
        yield Option(label_of(edge, words), edge.data)


def keys_of(labels: Sequence[str]) -> list[str]:
    """A key for each label, no two the same: the written one, the first character, or a number."""
    keys: dict[str, int] = {}
    for is_written in (True, False):
        for index, label in enumerate(labels):
            key = accelerator(label).upper()
            if key and has_accelerator(label) is is_written:
                keys.setdefault(key, index)
    own = {index: key for key, index in keys.items()}
    found: list[str] = []
    for index in range(len(labels)):
        key, number = own.get(index, ""), index + 1
        while not key or keys.get(key, index) != index:
            key, number = str(number), number + 1
        keys[key] = index
        found.append(key)
    return found


def label_of(edge: Edge, words: Words) -> str:
    """What a choice is called: the label of its edge, or else where it leads."""
    label = words(edge.label)
    return (label if label == edge.label else label[:LABEL_CHARACTERS_MAX]) or edge.target


def edge_of(graph: Graph, node_id: str, choice: Choice, words: Words = as_written) -> Edge | None:
    """The edge that a choice stands for: of those that lead there the one of its label, or of all options."""
    edges = [edge for edge in graph.outgoing(node_id) if edge.target == choice.to]
    exact = [edge for edge in edges if label_of(edge, words) == choice.label]
    plain = [edge for edge in edges if not edge.label and graph.nodes[node_id].text(OPTIONS)]
    return next(iter(exact or plain or edges), None)


def _yes_and_no(node: Node, kind: str, choices: tuple[Choice, ...]) -> tuple[Choice, ...]:
    """Yes and no by the labels; of two edges, the one without such a word is the other answer."""
    yes, no = worded(choices, APPROVING), worded(choices, REJECTING)
    rest = [choice for choice in choices if choice not in (yes, no)]
    yes_label, no_label = YES_AND_NO[kind]
    if yes is None and rest:
        yes = _as(rest.pop(0), yes_label, "Y", no) if len(rest) == 1 else None
    elif no is None and len(rest) == 1:
        no = _as(rest.pop(0), no_label, "N", yes)
    if yes is None or rest:
        raise Unaskable(
            f"human gate {node.id} is of type {kind}, but its edges are not a yes and a no; "
            f"label one {yes_label} and at most one other {no_label}",
            "human.type",
        )
    return yes, no or Choice(key=_key("N", yes), label=no_label, to="")


def _as(choice: Choice, label: str, key: str, other: Choice | None) -> Choice:
    """A choice for an edge; without a label it gets the answer's."""
    is_named = choice.label != choice.to
    return replace(choice, key=_key(key, other), label=choice.label if is_named else label)


def _key(key: str, other: Choice | None) -> str:
    return "2" if other is not None and other.key == key else key
