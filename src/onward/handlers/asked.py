"""What a flow asks of an agent: `agent(…)` has no node that says it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

ANSWER = "answer"
"""The value of the context in which an agent's result has its typed answer."""


class AskedTool(msgspec.Struct, frozen=True):
    """A function that an agent may use, and what is known of it beside its signature."""

    function: Callable[..., Any]
    name: str | None = None
    repeatable: bool = True
    time_limit_s: float | None = None


class AgentAsked(msgspec.Struct, frozen=True):
    """The prompt of an agent in a flow, and what it gets and owes.

    `tools` are functions, beside those that its node allows by name. `returns` is the type of the answer, as
    it was declared; `read` makes it of JSON, and its ValueError says what does not fit.
    """

    prompt: str
    system: str
    tools: Sequence[AskedTool]
    returns: Any
    read: Callable[[Any], Any]
