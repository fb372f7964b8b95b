"""Events of gates: a question is asked, answered or withdrawn."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from onward.model.events.event import Event
from onward.model.values.bounds import Instant


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


class GateOpened(Event, frozen=True, kw_only=True):
    """A question for a human is stored; it stays open until decided, expired or withdrawn.

    `default` is the key of a choice; `on_timeout` says what happens at `deadline_us`: `default`, `reject`
    or `none`. `about` is shown with the question: the last response, or what the node says to show.
    A gate inside a step has the id `step:call`, and `question` is the hash of what its call asks.
    Version 1 had no more than gate, node, text and choices; version 2 had no `question`.
    """

    VERSION: ClassVar[int] = 3

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


class GateDecided(Event, frozen=True, kw_only=True):
    """A human, or a rule, answered a gate. The first answer is the answer.

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
