"""Replies about gates: open questions and their answers."""

from __future__ import annotations

from typing import Any, TypedDict

from onward.operations.replies.instant import Instant


class ChoiceOffered(TypedDict):
    """What can be answered to a gate, and the node it leads to."""

    key: str
    label: str
    to: str
    data: dict[str, Any]


class GateShown(TypedDict):
    """A question: what it asks, is about and offers, until when, and what was decided."""

    gate: str
    node: str
    type: str
    text: str
    about: str
    choices: list[ChoiceOffered]
    default: str | None
    opened_at: Instant
    deadline: Instant | None
    on_timeout: str
    remind_s: float | None
    metadata: dict[str, Any]
    decided: str | None
    by: str | None
    answer: str
    rejected: bool
    expired: bool


class GateListed(TypedDict):
    """An open question in a list, with its run."""

    run: str
    display_id: str
    pipeline: str
    gate: str
    node: str
    type: str
    text: str
    about: str
    choices: list[ChoiceOffered]
    opened_at: Instant
    deadline: Instant | None


class GateList(TypedDict):
    """A page of open questions; `cursor` gets the next page, if there may be one."""

    gates: list[GateListed]
    cursor: str | None
