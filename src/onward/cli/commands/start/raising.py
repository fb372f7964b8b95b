"""Limits as they are written on a command line."""

from __future__ import annotations

from typing import Literal, cast

from onward.errors import InvalidInput
from onward.model.values.amounts import check_measure, read_amount
from onward.model.values.scopes import KINDS
from onward.operations.requests import LimitRaise


def raise_of(text: str) -> LimitRaise:
    """The limit to raise that `day.tokens=200000` names."""
    name, equals, value = text.partition("=")
    kind, dot, measure = name.partition(".")
    if not equals or not dot or kind not in KINDS:
        raise InvalidInput(
            f"--raise {text[:60]!r} names no limit; write SCOPE.KEY=VALUE, such as day.tokens=200000 or "
            f"run.cost=2.50, with one of {', '.join(KINDS)}."
        )
    return LimitRaise(
        kind=cast('Literal["chat", "day", "project", "run"]', kind),
        measure=cast('Literal["tokens", "cost", "calls"]', check_measure(measure)),
        value=read_amount(measure, value),
    )
