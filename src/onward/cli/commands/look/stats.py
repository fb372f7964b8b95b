"""`onward stats`: how the database stands, from the database alone."""

from __future__ import annotations

from collections.abc import Iterator

from onward.cli.exits import FINE
from onward.cli.opening import store_to_look_at
from onward.cli.options import COMMON, Common, Out
from onward.cli.print.text import count, one_line, span, table
from onward.model.ids import display_id
from onward.observe.figures import ended_of, view_measured
from onward.store.owner import owner_label
from onward.store.port.measures import Measured

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


async def stats(*, common: Common = COMMON, out: Out) -> int:
    """Say how the database stands: runs by status and reason, the queue, who holds runs, what is stalled.

    One consistent look; exact, and cheap however many runs are over.
    """
    async with store_to_look_at(common) as store:
        found = await store.measures.measure()
    if out.is_json:
        out.value(view_measured(found))
        return FINE
    for line in _lines(found):
        out.say(line)
    return FINE


def _lines(found: Measured) -> Iterator[str]:
    total = sum(found.runs.values())
    yield f"{count(total, 'run')}, {found.recoverable:,} recoverable"
    rows = [
        (stand.status.value, one_line(stand.reason) or "–", f"{number:,}", "yes" if stand.recoverable else "")
        for stand, number in sorted(found.runs.items())
    ]
    if rows:
        yield from (f"  {line}" for line in table(("STATUS", "REASON", "RUNS", "RECOVERABLE"), rows))
    age = f", the oldest for {span(found.queue_age_s)}" if found.due else ""
    yield f"queue     {found.due:,} due{age}; {found.later:,} later"
    if found.stuck:
        yield f"stuck     {count(len(found.stuck), 'due run')} could not be claimed"
        yield from (
            f"  run {display_id(stuck.run)}, {count(stuck.failures, 'time')}: {one_line(stuck.why)}"
            for stuck in found.stuck
        )
    yield f"held      {found.held:,}, of them {found.stalled:,} stalled"
    for window, ended in ended_of(found).items():
        told = ", ".join(f"{number:,} {status}" for status, number in ended.items())
        yield f"last {window:<5}{told}"
    yield f"database  {size(found.size)}"
    if found.holdings:
        workers = [
            (owner_label(holding.owner), f"{holding.runs:,}", f"{holding.stalled:,}")
            for holding in found.holdings
        ]
        yield from table(("WORKER", "RUNS", "STALLED"), workers)


def size(number: int) -> str:
    """Bytes for people."""
    amount, unit = float(number), 0
    while amount >= 1024 and unit < len(UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{number:,} B" if unit == 0 else f"{amount:.1f} {UNITS[unit]}"
