"""Requests about limits, and what was spent. Costs are in millionths of a dollar."""

from __future__ import annotations

from typing import Literal

from onward.model.values.amounts import AMOUNT_MAX
from onward.model.values.bounds import LISTED, Whole
from onward.operations.requests.request import Request

AMOUNT = Whole(0, AMOUNT_MAX)


class ListLimits(Request, frozen=True, kw_only=True):
    """The limits that are set, and what is spent and reserved where."""

    limit: int = 200

    def __post_init__(self) -> None:
        LISTED.check(self.limit, "limit")


class SetLimit(Request, frozen=True, kw_only=True):
    """Set a limit of a scope; 0 is none. `cost` is in millionths of a dollar."""

    scope: str
    measure: Literal["tokens", "cost", "calls"]
    value: int
    by: str = "user"

    def __post_init__(self) -> None:
        AMOUNT.check(self.value, "value")


class ResetLimits(Request, frozen=True, kw_only=True):
    """Go back to the defaults of its kind in a scope; in a default, to no limit. What is spent stays."""

    scope: str
    by: str = "user"


class GetUsage(Request, frozen=True, kw_only=True):
    """What was spent, put together by one thing."""

    by: Literal["run", "chat", "project", "day", "pipeline", "model"] = "day"
    limit: int = 50

    def __post_init__(self) -> None:
        LISTED.check(self.limit, "limit")


class LimitRaise(Request, frozen=True, kw_only=True):
    """A limit to raise before a run is resumed: that of its day, run, chat or project; 0 is none.

    With `id` it must be the one that the run counts in; a run has only one of each kind.
    """

    kind: Literal["chat", "day", "project", "run"]
    id: str = ""
    measure: Literal["tokens", "cost", "calls"]
    value: int

    def __post_init__(self) -> None:
        AMOUNT.check(self.value, "value")
