"""Replies about steps that are under way: how far they have come inside."""

from __future__ import annotations

from typing import Any, TypedDict

from onward.operations.replies.instant import Instant


class CallProgress(TypedDict):
    """A call of a step that is not over; `state` is ok, open or lost.

    `result` is what it answered, if that is small and not a model's text.
    """

    call: str
    type: str
    name: str
    state: str
    result: Any


class StepProgress(TypedDict):
    """What an open step has of its calls: whoever continues it begins with that.

    `rounds` counts the answered requests to its model; the next one is `rounds + 1`, of `rounds_max`.
    """

    step: str
    attempt: int
    state: str
    model: str
    rounds: int
    rounds_max: int | None
    text: str
    reasoning: str
    calls: list[CallProgress]
    held_by: str | None
    held_since: Instant | None
