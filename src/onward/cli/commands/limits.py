"""`onward limits` and `usage`: how much may be spent, how much of that is, and what calls cost.

A bar shows a share of something, in eighths of a character.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, cast

from cyclopts import Parameter

from onward.cli.operations import limits_of
from onward.cli.options import COMMON, Common, Out, number
from onward.cli.output import FINE, Output, count, table
from onward.errors import InvalidInput
from onward.model.ids import called
from onward.model.limits import MEASURES, SCOPE_KINDS, check_measure, check_scope, read_amount, shown_amount
from onward.model.values import LIMIT
from onward.operations.requests import GetUsage, ListLimits, ResetLimits, SetLimit

if TYPE_CHECKING:
    from onward.replies.database import LimitChanged, MeasureShown, ScopeShown, UsageList, UsageShown

SHOWN_MAX = 5
LIMIT_HEADINGS = ("SCOPE", "OF", "LIMIT", "SPENT", "RESERVED", "USED")


async def limits(
    action: Annotated[Literal["show", "set", "reset"], Parameter(help="The action.")] = "show",
    scope: Annotated[
        str | None,
        Parameter(help="chat/ID, project/ID, run/ID, day/YYYY-MM-DD, or a bare chat, project, run or day."),
    ] = None,
    key: Annotated[str | None, Parameter(help="tokens, cost or calls.")] = None,
    value: Annotated[
        str | None, Parameter(help="The limit; cost in dollars, such as 2.50; 0 means no limit.")
    ] = None,
    /,
    *,
    limit: Annotated[int, number(LIMIT, help="How many scopes to show.")] = 200,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Show the limits on model tokens, cost and calls, set one, or reset those of a scope.

    `onward limits set day tokens 200000` applies to every UTC day, `… set run cost 2.50` to every run that
    has no limit of its own (docs/limits.md). Running runs that wait for a limit continue when it is raised.
    """
    if action == "set":
        return await _set(_given(scope, key, value), common, out)
    if key is not None or (action == "show" and scope is not None):
        raise InvalidInput(
            "`onward limits show` takes no scope, `reset` takes a scope; to set a limit, use `onward limits "
            "set SCOPE KEY VALUE`."
        )
    if action == "reset":
        if scope is None:
            raise InvalidInput("name the scope to reset, as in `onward limits reset day`.")
        async with limits_of(common, makes=True) as asked:
            return _tell(await asked.reset_limits(ResetLimits(scope=check_scope(scope))), common, out)
    async with limits_of(common) as asked:
        found = await asked.list_limits(ListLimits(limit=limit))
    if out.is_json:
        out.value(found)
        return FINE
    for line in _limit_lines(found["scopes"]):
        out.say(line)
    if found["chat_run_calls"] is not None:
        out.say(
            f"a run that a chat starts: {found['chat_run_calls']} calls, unless a limit is set for every run"
        )
    return FINE


def _given(scope: str | None, key: str | None, value: str | None) -> SetLimit:
    if scope is None or key is None or value is None:
        raise InvalidInput("name a scope, a key and a value, as in `onward limits set day tokens 200000`.")
    measure = cast('Literal["tokens", "cost", "calls"]', check_measure(key))
    return SetLimit(scope=check_scope(scope), measure=measure, value=read_amount(measure, value))


async def _set(request: SetLimit, common: Common, out: Output) -> int:
    async with limits_of(common, makes=True) as asked:
        return _tell(await asked.set_limit(request), common, out)


def _tell(changed: LimitChanged, common: Common, out: Output) -> int:
    scope = changed["scope"]
    told = [
        f"{measure} {'none' if shown['limit'] is None else shown_amount(measure, shown['limit'])}"
        for measure, shown in _measures(scope)
    ]
    every = f"every {scope['kind']}" if scope["scope"] in SCOPE_KINDS else scope["scope"]
    out.say(f"limits of {every}: {', '.join(told)}")
    for line in _consequences(changed, common):
        out.say(line)
    if changed["lifted"]:
        out.say(f"{count(len(changed['lifted']), 'running run')} that waited for it can continue")
    if out.is_json:
        out.value(changed)
    return FINE


def _consequences(changed: LimitChanged, common: Common) -> Iterator[str]:
    """Where the change stops runs, and where it does not count."""
    for scope in changed["spent_up"][:SHOWN_MAX]:
        used = [
            f"{shown_amount(measure, shown['spent'])} of {shown_amount(measure, shown['limit'])} {measure}"
            for measure, shown in _measures(scope)
            if shown["limit"] and shown["spent"] >= shown["limit"]
        ]
        yield f"{scope['scope']} has spent {', '.join(used)}: its runs stop at their next call"
    for scope in changed["apart"][:SHOWN_MAX]:
        own = [
            f"{measure} {'no limit' if not shown['limit'] else shown_amount(measure, shown['limit'])}"
            for measure, shown in _measures(scope)
            if shown["is_own"]
        ]
        reset = common.command("limits", "reset", shlex.quote(scope["scope"]))
        yield f"{scope['scope']} keeps its own limits ({', '.join(own)}); to remove them: {reset}"
    for what in ("spent_up", "apart"):
        if len(changed[what]) > SHOWN_MAX:
            more = count(len(changed[what]) - SHOWN_MAX, "more scope")
            yield f"… and {more}: {common.command('limits')}"


def _limit_lines(scopes: Sequence[ScopeShown]) -> Iterator[str]:
    rows = [
        _limit_row(scope["scope"], measure, shown)
        for scope in scopes
        for measure, shown in _measures(scope)
        if shown["limit"] or (scope["scope"] not in SCOPE_KINDS and (shown["spent"] or shown["reserved"]))
    ]
    if not rows:
        yield "no limits, and nothing was spent; set one with `onward limits set day tokens 200000`"
        return
    yield from table(LIMIT_HEADINGS, rows)


def _limit_row(scope: str, measure: str, shown: MeasureShown) -> tuple[str, ...]:
    limit, is_default = shown["limit"], scope in SCOPE_KINDS
    told = "none" if limit is None else shown_amount(measure, limit)
    if is_default:
        return f"every {scope}", measure, told, "", "", ""
    used = "" if limit is None else bar(shown["spent"], limit, shown["reserved"])
    own = "" if shown["is_own"] or limit is None else " (default)"
    amounts = (shown_amount(measure, shown["spent"]), shown_amount(measure, shown["reserved"]))
    return scope_words(scope), measure, f"{told}{own}", *amounts, used


def scope_words(scope: str) -> str:
    """A scope as it is shown, and can be typed: a run by its short name."""
    kind, slash, name = scope.partition("/")
    return f"{kind}/{called(name)}" if kind == "run" and slash else scope


def _measures(scope: ScopeShown) -> Sequence[tuple[str, MeasureShown]]:
    return tuple(zip(MEASURES, (scope["tokens"], scope["cost_micro"], scope["calls"]), strict=True))


USAGE_HEADINGS = ("CALLS", "INPUT", "OUTPUT", "ESTIMATED", "TOKENS", "COST", "")


async def usage(
    *,
    by: Annotated[
        Literal["run", "chat", "project", "day", "pipeline", "model"],
        Parameter(help="How to group the usage."),
    ] = "day",
    limit: Annotated[int, number(LIMIT, help="How many to list.")] = 50,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Show what calls cost in tokens and money: by day, newest first; otherwise the most expensive first.

    Usage is kept when runs are deleted.
    """
    async with limits_of(common) as asked:
        found = await asked.get_usage(GetUsage(by=by, limit=limit))
    if out.is_json:
        out.value(found)
        return FINE
    for line in _usage_lines(found):
        out.say(line)
    return FINE


def _usage_lines(found: UsageList) -> Iterator[str]:
    rows, by = found["usage"], found["by"]
    if not rows:
        yield "nothing was spent yet"
        return
    is_priced = any(row["cost_micro"] for row in rows)
    largest = max(_weight(row, is_priced=is_priced) for row in rows)
    headings: tuple[str, ...] = (by.upper(), *USAGE_HEADINGS)
    shown = [_usage_row(row, largest, is_priced=is_priced) for row in rows]
    if not any(row["estimated"] for row in rows):
        headings, shown = _without(headings), [_without(row) for row in shown]
    yield from table(headings, shown)
    yield from _notes(rows)


def _weight(row: UsageShown, *, is_priced: bool) -> int:
    return row["cost_micro"] if is_priced else row["tokens"]


def _usage_row(row: UsageShown, largest: int, *, is_priced: bool) -> tuple[str, ...]:
    estimated = row["tokens"] - row["input"] - row["output"] if row["estimated"] else 0
    counts = (f"{one:,}" for one in (row["calls"], row["input"], row["output"], estimated, row["tokens"]))
    drawn = share(_weight(row, is_priced=is_priced), largest)
    return row["what"] or "–", *counts, shown_amount("cost", row["cost_micro"]), drawn


def _without(row: tuple[str, ...]) -> tuple[str, ...]:
    """The row without what is estimated."""
    return (*row[:4], *row[5:])


def _notes(rows: Sequence[UsageShown]) -> Iterator[str]:
    estimated = sum(row["estimated"] for row in rows)
    if estimated:
        yield (
            f"estimated: {count(estimated, 'call')} with unknown cost, counted with their reservation (in "
            "TOKENS and COST)"
        )


WIDTH = 20
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(used: int, whole: int, reserved: int = 0, *, width: int = WIDTH) -> str:
    """How much of something is used, with what is reserved after it, and the share in percent."""
    if whole <= 0:
        return ""
    full = _part(used, whole, width)
    held = _part(used + reserved, whole, width)[len(full) :]
    drawn = (full + "░" * len(held)).ljust(width, "·")[:width]
    return f"{drawn} {100 * used // whole} %"


def share(part: int, largest: int, *, width: int = WIDTH) -> str:
    """A bar as long as the part is of the largest."""
    return _part(part, largest, width) if largest > 0 else ""


def _part(part: int, whole: int, width: int) -> str:
    eighths = min(8 * width * part // whole, 8 * width)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
