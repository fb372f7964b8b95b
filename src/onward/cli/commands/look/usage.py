"""`onward usage`: what calls cost, with bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.numbers import number
from onward.cli.opening import limits_of
from onward.cli.options import COMMON, Common, Out
from onward.cli.print.bars import share
from onward.cli.print.text import count, table
from onward.model.values.amounts import shown_amount
from onward.model.values.bounds import LIMIT
from onward.operations.requests import GetUsage
from onward.operations.spending import UsageList, UsageShown


async def usage(
    *,
    by: Annotated[
        Literal["run", "chat", "project", "day", "pipeline", "model"],
        Parameter(help="What to put the usage together by."),
    ] = "day",
    limit: Annotated[int, number(LIMIT, help="How many to list.")] = 50,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Show what calls cost: tokens, money and calls, the newest day first, else the most expensive first.

    It is kept when runs are deleted.
    """
    async with limits_of(common) as asked:
        found = await asked.get_usage(GetUsage(by=by, limit=limit))
    if out.is_json:
        out.value(found)
        return FINE
    for line in _lines(found):
        out.say(line)
    return FINE


def _lines(found: UsageList) -> Iterator[str]:
    rows, by = found["usage"], found["by"]
    if not rows:
        yield "nothing was spent yet"
        return
    is_priced = any(row["cost_micro"] for row in rows)
    largest = max(_weight(row, is_priced=is_priced) for row in rows)
    headings = (by.upper(), "CALLS", "INPUT", "OUTPUT", "TOKENS", "COST", "")
    yield from table(headings, [_row(row, largest, is_priced=is_priced) for row in rows])
    yield from _notes(rows)


def _weight(row: UsageShown, *, is_priced: bool) -> int:
    return row["cost_micro"] if is_priced else row["tokens"]


def _row(row: UsageShown, largest: int, *, is_priced: bool) -> tuple[str, ...]:
    counts = (f"{row[name]:,}" for name in ("calls", "input", "output", "tokens"))
    drawn = share(_weight(row, is_priced=is_priced), largest)
    return row["what"] or "–", *counts, shown_amount("cost", row["cost_micro"]), drawn


def _notes(rows: Sequence[UsageShown]) -> Iterator[str]:
    estimated = sum(row["estimated"] for row in rows)
    if estimated:
        yield f"without an answer, counted with what was reserved: {count(estimated, 'call')}"
