"""`onward usage`: what calls cost, with bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.numbers import number
from onward.cli.opening.operating import limits_of
from onward.cli.options import COMMON, Common, Out
from onward.cli.print.bars import share
from onward.cli.print.text import count, table
from onward.model.limits import shown_amount
from onward.model.values import LIMIT
from onward.operations.replies.database import UsageList, UsageShown
from onward.operations.requests import GetUsage

HEADINGS = ("CALLS", "INPUT", "OUTPUT", "ESTIMATED", "TOKENS", "COST", "")


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
    headings: tuple[str, ...] = (by.upper(), *HEADINGS)
    shown = [_row(row, largest, is_priced=is_priced) for row in rows]
    if not any(row["estimated"] for row in rows):
        headings, shown = _without(headings), [_without(row) for row in shown]
    yield from table(headings, shown)
    yield from _notes(rows)


def _weight(row: UsageShown, *, is_priced: bool) -> int:
    return row["cost_micro"] if is_priced else row["tokens"]


def _row(row: UsageShown, largest: int, *, is_priced: bool) -> tuple[str, ...]:
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
            f"estimated: {count(estimated, 'call')} whose cost is not known, counted with what was reserved "
            "(in TOKENS and COST)"
        )
