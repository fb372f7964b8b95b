"""Limits as they are written on a command line."""

from __future__ import annotations

from typing import Literal, cast

from onward.errors import InvalidInput
from onward.model.limits import SCOPE_KINDS, check_measure, check_scope, kind_of, read_amount
from onward.operations.requests import LimitRaise


def raise_of(text: str) -> LimitRaise:
    """The limit to raise that `day.tokens=200000` names."""
    name, equals, value = text.rpartition("=")
    scope, dot, measure = name.rpartition(".")
    if not equals or not dot or kind_of(scope) not in SCOPE_KINDS:
        raise InvalidInput(
            f"--raise {text[:60]!r} names no limit; write SCOPE.KEY=VALUE, such as day.tokens=200000 or "
            f"run.cost=2.50, with one of {', '.join(SCOPE_KINDS)}."
        )
    kind, _, id = check_scope(scope).partition("/")
    return LimitRaise(
        kind=cast('Literal["chat", "day", "project", "run"]', kind),
        id=id,
        measure=cast('Literal["tokens", "cost", "calls"]', check_measure(measure)),
        value=read_amount(measure, value),
    )
