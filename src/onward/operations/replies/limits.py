"""Replies about limits and usage. Costs are in millionths of a dollar."""

from __future__ import annotations

from typing import TypedDict


class MeasureShown(TypedDict):
    """One limit of a scope, and how much of it is used; `limit` is None if there is none.

    `is_own`: it was set for this scope, and is not the default of its kind.
    """

    limit: int | None
    is_own: bool
    spent: int
    reserved: int


class ScopeShown(TypedDict):
    """A scope with its three measures; `warned` are those of which 80 % were spent."""

    scope: str
    kind: str
    tokens: MeasureShown
    cost_micro: MeasureShown
    calls: MeasureShown
    warned: list[str]


class LimitList(TypedDict):
    """Scopes: the defaults first, then those with a limit or spending.

    `chat_run_calls` is how many calls a run of a chat may make if nothing is said about it; None if a limit
    is set for every run.
    """

    scopes: list[ScopeShown]
    chat_run_calls: int | None


class LimitChanged(TypedDict):
    """A scope after a change, and the running runs whose held attempts try again.

    `spent_up` are the scopes in which the limit leaves nothing: their runs stop at their next call. After a
    change of a default, `apart` are the scopes of its kind with a limit of their own, which is unchanged. Of
    days only those that are not over are in both; after a change of the default of runs, no run is.
    """

    scope: ScopeShown
    lifted: list[str]
    spent_up: list[ScopeShown]
    apart: list[ScopeShown]


class UsageShown(TypedDict):
    """What the calls of a run, chat, project, day, pipeline or model cost.

    `estimated` counts the calls whose cost is not known: they were charged what they had reserved.
    """

    what: str
    input: int
    output: int
    cached: int
    tokens: int
    cost_micro: int
    calls: int
    estimated: int


class UsageList(TypedDict):
    """Usage, put together by one thing: the newest day first, else the most expensive first."""

    by: str
    usage: list[UsageShown]
