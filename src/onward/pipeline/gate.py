"""Human gates as a pipeline defines them: the question, its choices, and what an answer means.

Begin with `question_of`. A choice stands for an edge, or for an option that a step proposed: a list in the
context, which the gate names.

Every gate understands words of approval and rejection, so that an API or a button can say yes or no without
knowing the labels of the edges.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from onward.model.gate import Choice
from onward.pipeline.edges import accelerator, has_accelerator, normalise_label
from onward.pipeline.graph import Edge, Graph, Node
from onward.pipeline.source import OBJECT_BYTES_MAX, Value, as_text, shown

MULTIPLE_CHOICE, YES_NO, CONFIRMATION, FREEFORM = "multiple_choice", "yes_no", "confirmation", "freeform"
QUESTION_TYPES = (MULTIPLE_CHOICE, YES_NO, CONFIRMATION, FREEFORM)
DEFAULT, REJECT, NONE = "default", "reject", "none"
TIMEOUT_RULES = (REJECT, NONE)

APPROVING = ("approve", "yes", "ok", "okay", "accept", "confirm")
GOING_ON = ("approved", "continue", "proceed", "lgtm")
"""Also words of approval, but only by themselves: "Continue editing" approves nothing."""
REJECTING = ("reject", "no", "deny", "decline", "cancel")
YES_AND_NO = {YES_NO: ("Yes", "No"), CONFIRMATION: ("Confirm", "Cancel")}
"""The two answers of the types that have two: the yes, then the no."""
LABEL_CHARACTERS_MAX = 500
"""A label after its values were put in."""


_SHORT = {"y": APPROVING, "n": REJECTING}


def meant(kind: str, choices: Sequence[Choice], said: str) -> Choice | None:
    """The choice that an answer means: by key, label, target, or as a word for yes or no.

    Two labels may differ only in their accelerators; an answer that could mean either means neither.
    """
    wanted = said.strip()
    if not wanted:
        return None
    for choice in choices:
        if choice.key.lower() == wanted.lower():
            return choice
    for choice in choices:
        if choice.label.strip() == wanted:
            return choice
    named = [choice for choice in choices if normalise_label(choice.label) == normalise_label(wanted)]
    if named:
        return named[0] if len(named) == 1 else None
    leading = [choice for choice in choices if choice.to == wanted]
    if leading:
        return leading[0] if len(leading) == 1 else None
    return _by_word(kind, choices, wanted.lower())


def _by_word(kind: str, choices: Sequence[Choice], word: str) -> Choice | None:
    words = _SHORT.get(word, (word,))
    if words[0] in APPROVING:
        return approving(kind, choices)
    return rejecting(kind, choices) if words[0] in REJECTING else None


def approving(kind: str, choices: Sequence[Choice]) -> Choice | None:
    """The choice that means yes, or None.

    Its label is a word of approval; or begins with one, as "Yes, ship it"; or it has the key Y, as
    "[Y] Ship". The first of these rules that any choice meets decides, if only one does.
    """
    if kind in YES_AND_NO:
        return choices[0]
    found = worded(choices, (*APPROVING, *GOING_ON))
    if found is not None:
        return found
    for is_yes in (_begins_with_yes, _has_key_y):
        named = [choice for choice in choices if is_yes(choice.label)]
        if named:
            return named[0] if len(named) == 1 else None
    return None


def _begins_with_yes(label: str) -> bool:
    return re.split(r"[\W_]", normalise_label(label), maxsplit=1)[0] in APPROVING


def _has_key_y(label: str) -> bool:
    return accelerator(label).upper() == "Y" and (has_accelerator(label) or len(label.strip()) == 1)


def rejecting(kind: str, choices: Sequence[Choice]) -> Choice | None:
    """The choice that means no, or None."""
    return choices[1] if kind in YES_AND_NO else worded(choices, REJECTING)


def worded(choices: Sequence[Choice], words: Sequence[str]) -> Choice | None:
    """The choice labelled with the first of these words that occurs; None if two choices have it."""
    for word in words:
        named = [choice for choice in choices if normalise_label(choice.label) == word]
        if named:
            return named[0] if len(named) == 1 else None
    return None


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
        raise Unaskable(f"{where} are {found}; a step before the gate must set them", OPTIONS)
    if len(value) > OPTIONS_MAX:
        raise Unaskable(f"{where} are {len(value)}; offer at most {OPTIONS_MAX}", OPTIONS)
    return [_option(one, f"option {number} of {name}") for number, one in enumerate(value, 1)]


def _option(value: Any, where: str) -> Option:
    """An option: a text, or an object with a label (or name) and whatever later steps may need."""
    fields = {"label": value} if isinstance(value, str) else value
    if not isinstance(fields, dict):
        raise Unaskable(f"{where} is {_json(value)}; it must be a string, or an object with a label", OPTIONS)
    label = fields.get("label", fields.get("name"))
    if not isinstance(label, str) or not label.strip():
        raise Unaskable(f"{where} has no label; give it one, as a string", OPTIONS)
    inner = fields.get("data", {})
    if not isinstance(inner, dict):
        raise Unaskable(f"data of {where} is {_json(inner)}; it must be an object", OPTIONS)
    others = {key: one for key, one in fields.items() if key not in ("label", "data")}
    data = {**others, **inner}
    if len(msgspec.json.encode(data)) > OBJECT_BYTES_MAX:
        raise Unaskable(f"data of {where} has more than {OBJECT_BYTES_MAX:,} bytes; keep it short", OPTIONS)
    return Option(label.strip()[:LABEL_CHARACTERS_MAX], data)


def _json(value: Any) -> str:
    return shown(msgspec.json.encode(value).decode())


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


_METADATA = "human.metadata."


class Question(msgspec.Struct, frozen=True):
    """A gate as the graph defines it; `default` is the key of a choice.

    `about` is what the node says to show with the question; None leaves it to the engine.
    """

    type: str
    text: str
    about: str | None
    choices: tuple[Choice, ...]
    default: str
    timeout_s: float | None
    on_timeout: str
    remind_s: float | None
    metadata: dict[str, str]


def question_of(graph: Graph, node: Node, words: Words = as_written, find: Find | None = None) -> Question:
    """What a gate asks; `words` puts values into its texts, `find` gives its options.

    Raises Unaskable, or what an attribute raises.
    """
    kind = as_question_type(node.attrs.get("human.type", MULTIPLE_CHOICE))
    if node.text(OPTIONS) and kind != MULTIPLE_CHOICE:
        raise Unaskable(
            f"human gate {node.id} is of type {kind}, which has no options; "
            f"remove {OPTIONS}, or write human.type={MULTIPLE_CHOICE}",
            OPTIONS,
        )
    choices = offered(graph, node, kind, words, find)
    default = default_of(node, kind, choices)
    timeout_s = node.duration_s("human.timeout")
    rule = as_timeout_rule(node.attrs.get("human.on_timeout", NONE))
    return Question(
        type=kind,
        text=words(node.text("human.question") or node.instruction),
        about=words(node.text("human.show")) if "human.show" in node.attrs else None,
        choices=choices,
        default=default.key if default else "",
        timeout_s=node.timeout_s if timeout_s is None else timeout_s,
        on_timeout=DEFAULT if default else rule,
        remind_s=node.duration_s("human.remind"),
        metadata={
            key.removeprefix(_METADATA): as_text(value)
            for key, value in node.attrs.items()
            if key.startswith(_METADATA)
        },
    )


# -- readings ----------------------------------------------------------------------------------------


def as_question_type(value: Value) -> str:
    """The type of a question; `YES_NO`, `yes-no` and `yes_no` are the same."""
    found = as_text(value).strip().lower().replace("-", "_")
    if found not in QUESTION_TYPES:
        raise ValueError(f"one of {', '.join(QUESTION_TYPES)}")
    return found


def as_timeout_rule(value: Value) -> str:
    """What a deadline does if there is no default choice."""
    found = as_text(value).strip().lower()
    if found not in TIMEOUT_RULES:
        raise ValueError(f"one of {', '.join(TIMEOUT_RULES)}, or name a choice with human.default_choice")
    return found


def default_of(node: Node, kind: str, choices: Sequence[Choice]) -> Choice | None:
    """The choice that `human.default_choice` names by target, label or key; of several, the first."""
    written = node.text("human.default_choice").strip()
    if not written:
        return None
    to = [choice for choice in choices if choice.to == written]
    found = to[0] if len(to) == 1 else meant(kind, choices, written) or next(iter(to), None)
    if found is None:
        names = ", ".join(choice.to or choice.label for choice in choices)
        raise Unaskable(
            f"human.default_choice of {node.id} is {shown(written)}, which is not one of: {names}",
            "human.default_choice",
        )
    return found
