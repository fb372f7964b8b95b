"""Gates: the events of a question, which is asked, answered or withdrawn, and the answer to it.

An answer is one of the gate's choices, a verdict, text, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar

import msgspec
from blake3 import blake3

from onward.model.context import check_value
from onward.model.events import Event
from onward.model.values import Instant

ABOUT_CHARACTERS = 100


class Choice(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One answer that a gate offers: the key to press, its label, the node it leads to.

    `to` is empty if the answer names no node: free text that edges are chosen by, or a no without an edge.
    `data` is what later steps learn of it if it is chosen, such as a description or colours.
    """

    key: str
    label: str
    to: str
    data: dict[str, Any] = {}


def content_hash(*, gate: str, node: str, type: str, text: str, about: str, choices: Sequence[Choice]) -> str:
    """What a person was shown who answers a question: what it asks, is about and offers, as one hash.

    The deadline is not part of it: the same question asked anew is answered by the same answer.
    """
    shown = (gate, node, type, text, about, choices)
    return blake3(msgspec.json.encode(shown, order="sorted")).hexdigest()


def asked_about(text: str) -> str:
    """What a question is called with, for people: the beginning of its text."""
    return msgspec.json.encode([text[:ABOUT_CHARACTERS]]).decode()


class GateOpened(Event, frozen=True, kw_only=True):
    """A question for a human is stored; it stays open until decided, expired or withdrawn.

    `default` is the key of a choice; `on_timeout` says what happens at `deadline_us`: `default`, `reject`
    or `none`. `about` is shown with the question: the last response, or what the node says to show.
    A gate inside a step has the id `step:call`, and `question` is the hash of what its call asks.
    `stays`: a flow asks, and the question stays open while no process executes it; `patches` are the changes
    to the flow's code that it came by. Version 1 had no more than gate, node, text and choices; version 2 had
    no `question`, version 3 neither of the last two.
    """

    VERSION: ClassVar[int] = 4

    gate: str
    node: str
    text: str
    choices: tuple[Choice, ...]
    type: str = "multiple_choice"
    default: str = ""
    deadline_us: Instant | None = None
    on_timeout: str = "none"
    remind_us: Instant | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    about: str = ""
    question: str = ""
    stays: bool = False
    patches: tuple[str, ...] = ()


class GateDecided(Event, frozen=True, kw_only=True):
    """A human, or a rule, answered a gate. The first answer counts.

    `rejected`: the answer is no, and there is no edge for it; inside a step, that the answer is no.
    `expired`: no one answered in time, and the rule for the deadline applied. Version 1 had neither.
    """

    VERSION: ClassVar[int] = 2

    gate: str
    choice: Choice
    by: str
    text: str = ""
    rejected: bool = False
    expired: bool = False


class GateWithdrawn(Event, frozen=True, kw_only=True):
    """The answer is no longer needed."""

    gate: str


class Verdict(StrEnum):
    """A yes or no that any gate understands, whatever its choices are called."""

    APPROVE = "approve"
    REJECT = "reject"


class Answer(msgspec.Struct, frozen=True):
    """An answer to a gate: a choice by its key, label or target, or a verdict, with an optional comment.

    If a gate asks for text, the text alone is the answer. A `skipped` answer leaves the gate open.
    """

    choice: str = ""
    text: str = ""
    verdict: Verdict | None = None
    skipped: bool = False

    def __post_init__(self) -> None:
        """What is said is stored for ever, so what could not be is refused here."""
        check_value(self.choice, "the answer")
        check_value(self.text, "the text of the answer")

    @classmethod
    def approve(cls, text: str = "") -> Answer:
        """Yes, whatever its label."""
        return cls(verdict=Verdict.APPROVE, text=text)

    @classmethod
    def reject(cls, text: str = "") -> Answer:
        """No, whatever its label; if no edge handles it, the run fails as rejected."""
        return cls(verdict=Verdict.REJECT, text=text)

    @classmethod
    def skip(cls) -> Answer:
        """No answer; the gate stays open."""
        return cls(skipped=True)

    @classmethod
    def of(cls, said: Answer | str | bool | None) -> Answer:
        """What an interviewer returned, as an answer: True approves, False rejects, None skips."""
        match said:
            case Answer():
                return said
            case None:
                return cls.skip()
            case bool():
                return cls.approve() if said else cls.reject()
            case _:
                return cls(choice=str(said))


class Decision(msgspec.Struct, frozen=True):
    """The decision about a step's question: the choice as it was offered, the comment, and who decided.

    `choice` is empty if the person wrote only text, or rejected without taking one of the choices.
    `rejected`: the answer is no. `expired`: no one answered before the deadline, so its rule decided.
    """

    choice: str
    text: str
    by: str
    rejected: bool = False
    expired: bool = False
