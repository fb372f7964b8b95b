"""`onward stats`: how the database stands, from the database alone."""

from __future__ import annotations

from collections.abc import Iterator

from onward.cli.exits import FINE
from onward.cli.opening.looking import lists_of
from onward.cli.options import COMMON, Common, Out
from onward.cli.print.text import count, one_line, table
from onward.model.ids import called
from onward.model.values import span
from onward.operations.replies.database import Stats
from onward.operations.requests import GetStats

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


async def stats(*, common: Common = COMMON, out: Out) -> int:
    """Summarize the database: runs by status and reason, the queue, who holds runs, what is stalled.

    One consistent look; exact, and cheap however many runs are over.
    """
    async with lists_of(common) as lists:
        found = await lists.get_stats(GetStats())
    if out.is_json:
        out.value(found)
        return FINE
    for line in _lines(found):
        out.say(line)
    return FINE


def _lines(found: Stats) -> Iterator[str]:
    runs, queue = found["runs"], found["queue"]
    yield f"{count(runs['total'], 'run')}, {runs['recoverable']:,} recoverable"
    rows = [
        (
            one["status"],
            one_line(one["reason"]) or "–",
            f"{one['runs']:,}",
            "yes" if one["recoverable"] else "",
        )
        for one in runs["by_reason"]
    ]
    if rows:
        yield from (f"  {line}" for line in table(("STATUS", "REASON", "RUNS", "RECOVERABLE"), rows))
    age = f", the oldest for {span(queue['age_s'])}" if queue["due"] else ""
    yield f"queue     {queue['due']:,} due{age}; {queue['later']:,} later"
    if queue["stuck"]:
        yield f"stuck     {count(len(queue['stuck']), 'due run')} could not be claimed"
        yield from (
            f"  run {called(one['run'])}, {count(one['failures'], 'time')}: {one_line(one['why'])}"
            for one in queue["stuck"]
        )
    for one in queue["unserved"]:
        yield f"waiting   {count(one['runs'], 'due run')}: {one_line(one['says'], 1_000)}"
    yield f"held      {runs['held']:,}, of them {runs['stalled']:,} stalled"
    notify = found["notifications"]
    if notify["waiting"] or notify["failed"]:
        yield f"notify    {notify['waiting']:,} waiting, {notify['failed']:,} failed"
    for window, ended in found["ended"].items():
        told = ", ".join(f"{number:,} {status}" for status, number in ended.items())
        yield f"last {window:<5}{told}"
    yield f"database  {size(found['database_bytes'])}"
    if found["workers"]:
        workers = [(one["worker"], f"{one['runs']:,}", f"{one['stalled']:,}") for one in found["workers"]]
        yield from table(("WORKER", "RUNS", "STALLED"), workers)


def size(number: int) -> str:
    """Bytes for people."""
    amount, unit = float(number), 0
    while amount >= 1024 and unit < len(UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{number:,} B" if unit == 0 else f"{amount:.1f} {UNITS[unit]}"
