"""What a human gate asks, as its node and edges define it. A choice stands for an edge, or for an option."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from onward.model.gate import Choice
from onward.pipeline.gate.answers import meant
from onward.pipeline.gate.choices import Find, Words, as_written, offered
from onward.pipeline.gate.options import OPTIONS, Unaskable
from onward.pipeline.gate.words import DEFAULT, MULTIPLE_CHOICE, NONE, QUESTION_TYPES, TIMEOUT_RULES
from onward.pipeline.graph import Graph, Node
from onward.pipeline.value import Value, as_text, shown

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
            f"human.default_choice of {node.id} is {shown(written)}, which is none of: {names}",
            "human.default_choice",
        )
    return found
