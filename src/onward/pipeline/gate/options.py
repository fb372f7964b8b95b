"""Options that a step proposes: a list in the context, each of them a choice of the gate that names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from onward.pipeline.gate.words import LABEL_CHARACTERS_MAX
from onward.pipeline.graph import Edge, Graph, Node
from onward.pipeline.value import OBJECT_BYTES_MAX, shown

OPTIONS = "human.options"
OPTIONS_MAX = 50


class Unaskable(ValueError):
    """A gate whose definition is invalid; `key` is the attribute at fault."""

    def __init__(self, message: str, key: str) -> None:
        self.key = key
        super().__init__(message)


class Option(NamedTuple):
    """What a choice is called, and what later steps learn of it."""

    label: str
    data: dict[str, Any]


def options_edge(graph: Graph, node: Node) -> Edge | None:
    """The edge that all options of a gate lead along: its only one without label and condition."""
    if not node.text(OPTIONS):
        return None
    plain = [edge for edge in graph.outgoing(node.id) if not edge.label and not edge.condition]
    if len(plain) != 1:
        raise Unaskable(
            f"human gate {node.id} takes options from {shown(node.text(OPTIONS))}, which all lead along its "
            f"edge without a label; it has {len(plain)} such edges, so write one and label the others",
            OPTIONS,
        )
    return plain[0]


def options_of(node: Node, find: Callable[[str], Any]) -> list[Option]:
    """The options that a gate's `human.options` names; Unaskable says what is wrong with them."""
    name = node.text(OPTIONS)
    value = find(name)
    where = f"the options of human gate {node.id}, the value {shown(name)},"
    if not isinstance(value, list) or not value:
        found = "missing" if value is None else "an empty list" if value == [] else "no list"
        raise Unaskable(f"{where} are {found}; a step before the gate has to set them", OPTIONS)
    if len(value) > OPTIONS_MAX:
        raise Unaskable(f"{where} are {len(value)}; offer at most {OPTIONS_MAX}", OPTIONS)
    return [_option(one, f"option {number} of {name}") for number, one in enumerate(value, 1)]


def _option(value: Any, where: str) -> Option:
    """An option: a text, or an object with a label (or name) and whatever later steps may need."""
    fields = {"label": value} if isinstance(value, str) else value
    if not isinstance(fields, dict):
        raise Unaskable(f"{where} is {_json(value)}; it has to be a text, or an object with a label", OPTIONS)
    label = fields.get("label", fields.get("name"))
    if not isinstance(label, str) or not label.strip():
        raise Unaskable(f"{where} has no label; give it one, as text", OPTIONS)
    inner = fields.get("data", {})
    if not isinstance(inner, dict):
        raise Unaskable(f"data of {where} is {_json(inner)}; it has to be an object", OPTIONS)
    others = {key: one for key, one in fields.items() if key not in ("label", "data")}
    data = {**others, **inner}
    if len(msgspec.json.encode(data)) > OBJECT_BYTES_MAX:
        raise Unaskable(f"data of {where} has more than {OBJECT_BYTES_MAX:,} bytes; keep it short", OPTIONS)
    return Option(label.strip()[:LABEL_CHARACTERS_MAX], data)


def _json(value: Any) -> str:
    return shown(msgspec.json.encode(value).decode())
