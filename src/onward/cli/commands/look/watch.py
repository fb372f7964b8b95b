"""`onward status --watch`: the same list, kept up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from onward.cli.commands.look.listing import Wanted
from onward.cli.print.output import Output
from onward.cli.print.render import run_line, run_table
from onward.cli.signals import on_signals
from onward.clock import SystemClock
from onward.read.lookup import completed_of
from onward.read.view import view_row
from onward.store.port.runs import Listed
from onward.store.port.store import Store

POLL_S = 0.5
Show = Callable[[Sequence[Listed]], None]


async def watch_runs(store: Store, wanted: Wanted, out: Output) -> None:
    """Until Ctrl-C; one run only until it has ended. A terminal is redrawn, a pipe gets what changed."""
    asked = asyncio.Event()
    with on_signals(asked.set):
        if out.is_live:
            await _redraw(store, wanted, asked)
        else:
            await _tell_changes(store, wanted, out, asked)


async def _redraw(store: Store, wanted: Wanted, asked: asyncio.Event) -> None:
    from rich.live import Live
    from rich.text import Text

    clock = SystemClock()
    with Live(auto_refresh=False) as live:
        while not asked.is_set():
            found = await wanted.find(store)
            # What does not fit a screen cannot be redrawn; the newest are on top.
            rows = run_table(found, clock.now_us())[: max(live.console.height - 1, 2)]
            live.update(Text("\n".join(rows), no_wrap=True, overflow="ellipsis"), refresh=True)
            if _has_ended(wanted, found):
                return
            await clock.wait_s(POLL_S, asked)


async def _tell_changes(store: Store, wanted: Wanted, out: Output, asked: asyncio.Event) -> None:
    told: dict[str, str] = {}
    while not asked.is_set() and not out.is_gone:
        found = await wanted.find(store)
        for listed in reversed(found):
            line = run_line(listed)
            if told.get(listed.row.id) == line:
                continue
            told[listed.row.id] = line
            if out.is_json:
                out.value(view_row(listed.row, listed.holder, await completed_of(store.log, listed.row.id)))
            else:
                out.say(line)
        if _has_ended(wanted, found):
            return
        await SystemClock().wait_s(POLL_S, asked)


def _has_ended(wanted: Wanted, found: Sequence[Listed]) -> bool:
    return wanted.run is not None and found[0].row.ended_at_us is not None
