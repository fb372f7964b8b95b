"""`onward status --watch`: the same list, kept up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from onward.cli.print.output import Output
from onward.cli.print.render import run_line, run_table, unserved_lines
from onward.cli.signals import on_signals
from onward.clock import SystemClock
from onward.operations.protocol import ListOperations
from onward.operations.replies.runs import RunListed
from onward.operations.requests import ListRuns

POLL_S = 0.5


async def watch_runs(lists: ListOperations, wanted: ListRuns, out: Output) -> None:
    """Until Ctrl-C; one run only until it has ended. A terminal is redrawn, a pipe gets what changed."""
    asked = asyncio.Event()
    with on_signals(asked.set):
        if out.is_live:
            await _redraw(lists, wanted, asked)
        else:
            await _tell_changes(lists, wanted, out, asked)


async def _redraw(lists: ListOperations, wanted: ListRuns, asked: asyncio.Event) -> None:
    from rich.live import Live
    from rich.text import Text

    clock = SystemClock()
    with Live(auto_refresh=False) as live:
        while not asked.is_set():
            found = (await lists.list_runs(wanted))["runs"]
            # What does not fit a screen cannot be redrawn; the newest are on top.
            rows = [*run_table(found, clock.now_us()), *unserved_lines(found)]
            rows = rows[: max(live.console.height - 1, 2)]
            live.update(Text("\n".join(rows), no_wrap=True, overflow="ellipsis"), refresh=True)
            if _has_ended(wanted, found):
                return
            await clock.wait_s(POLL_S, asked)


async def _tell_changes(lists: ListOperations, wanted: ListRuns, out: Output, asked: asyncio.Event) -> None:
    told: dict[str, str] = {}
    while not asked.is_set() and not out.is_gone:
        found = (await lists.list_runs(wanted))["runs"]
        for run in reversed(found):
            line = run_line(run)
            if told.get(run["id"]) == line:
                continue
            told[run["id"]] = line
            if out.is_json:  # only of what changed is the log worth reading
                (told_of,) = (await lists.list_runs(ListRuns(run=run["id"], completed=True)))["runs"]
                out.value(told_of)
            else:
                out.say(line)
        if _has_ended(wanted, found):
            return
        await SystemClock().wait_s(POLL_S, asked)


def _has_ended(wanted: ListRuns, found: Sequence[RunListed]) -> bool:
    return wanted.run is not None and found[0]["ended_at"] is not None
