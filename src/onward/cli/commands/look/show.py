"""Commands that look at one run: show, events, checkpoints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.numbers import number
from onward.cli.opening import store_to_look_at
from onward.cli.options import COMMON, Common, Out, RunName
from onward.cli.print.leftovers import look_at_left
from onward.cli.print.output import Output
from onward.cli.print.render import run_page, when
from onward.cli.print.text import local_time, one_line, table
from onward.cli.signals import on_signals
from onward.clock import SystemClock
from onward.engine.log.journal import Journal
from onward.machine.fold.row import project
from onward.model.values.bounds import EVENT
from onward.read.checkpoints import read_checkpoints
from onward.read.dialect_events import Teller
from onward.read.lookup import find_run, log_pages, read_projection
from onward.read.steps import view_steps
from onward.read.view import instant, view_event, view_run
from onward.store.codec import unseal
from onward.store.port.record import Record
from onward.store.port.store import Store

POLL_S = 0.2
VALUE_WIDTH = 80
Seen = tuple[int, int, str, dict[str, Any]]
ENVELOPE = ("seq", "kind", "at", "token", "run")


async def show(run: RunName, /, *, common: Common = COMMON, out: Out) -> int:
    """Show one run: what happened, step by step, what is open, and what to type next."""
    async with store_to_look_at(common) as store:
        view = await view_page(store, (await find_run(store.runs, run)).row.id, common)
    if out.is_json:
        out.value(view)
        return FINE
    for line in run_page(view, common, SystemClock().now_us()):
        out.say(line)
    return FINE


async def view_page(store: Store, run_id: str, common: Common) -> dict[str, Any]:
    """All that `onward show` says about a run, as plain values."""
    folded = await Journal(store.log, SystemClock()).load(run_id)
    log = await read_projection(store.log, run_id)
    is_held = folded.holder is not None and folded.holder.is_alive
    return {
        **view_run(project(folded.run), folded.holder, folded.run, log.completed()),
        "steps": view_steps(log, folded.run, is_held=is_held),
        "left": await look_at_left(store, folded, common),
        "forks": await _forks(store, run_id),
    }


async def _forks(store: Store, run_id: str) -> list[dict[str, Any]]:
    return [
        {"id": row.id, "display_id": row.display_id, "seq": row.parent_seq, "status": row.status.value}
        for row in (listed.row for listed in await store.runs.forks(run_id))
    ]


async def events(
    run: RunName,
    /,
    *,
    follow: Annotated[bool, Parameter(help="Go on with what is appended, until the run has ended.")] = False,
    after: Annotated[int, number(EVENT, help="Begin after this event.")] = 0,
    dialect: Annotated[
        bool, Parameter(help="Use the event names of the DOT dialect: PipelineStarted, StageCompleted …")
    ] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Print a run's log, one event a line."""
    asked, heard = asyncio.Event(), 0
    async with store_to_look_at(common) as store:
        run_id = (await find_run(store.runs, run)).row.id
        teller = Teller(run_id) if dialect else None
        with on_signals(asked.set):
            while True:
                # Asked before reading, so that the last events of a run are read once more.
                is_over = not follow or await _has_ended(store, run_id)
                # What a name says may depend on what came before, so a teller hears everything.
                async for page in log_pages(store.log, run_id, after=heard if teller else after):
                    heard = page[-1].seq
                    for record in page:
                        told = list(_in_dialect(teller, record)) if teller else [_event(record)]
                        if record.seq > after:
                            _say(told, out)
                    after = max(after, heard)
                if is_over or asked.is_set() or out.is_gone:
                    return FINE
                await SystemClock().wait_s(POLL_S, asked)


async def _has_ended(store: Store, run_id: str) -> bool:
    folded = await Journal(store.log, SystemClock()).load(run_id)
    return folded.run.ended_at_us is not None


def _event(record: Record) -> Seen:
    return record.seq, record.at_us, record.kind, view_event(record)


def _in_dialect(teller: Teller, record: Record) -> Iterator[Seen]:
    for told in teller.tell(unseal(record), record.at_us):
        envelope = {"seq": record.seq, "kind": told.name, "at": instant(record.at_us)}
        yield record.seq, record.at_us, told.name, {**envelope, **told.fields}


def _say(events: Iterable[Seen], out: Output) -> None:
    for seq, at_us, kind, view in events:
        if out.is_json:
            out.value(view)
            continue
        fields = (f"{key}={_short(value)}" for key, value in view.items() if key not in ENVELOPE)
        out.say(f"{seq:>5}  {local_time(at_us)}  {kind:<18}  {'  '.join(fields)}".rstrip())


def _short(value: Any) -> str:
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), VALUE_WIDTH)


async def checkpoints(run: RunName, /, *, common: Common = COMMON, out: Out) -> int:
    """List a run's checkpoints: where `onward replay` can start."""
    async with store_to_look_at(common) as store:
        run_id = (await find_run(store.runs, run)).row.id
        if out.is_json:
            out.value([checkpoint async for checkpoint in read_checkpoints(store.log, run_id)])
            return FINE
        now_us = SystemClock().now_us()
        rows = [_row(checkpoint, now_us) async for checkpoint in read_checkpoints(store.log, run_id)]
    for line in table(("SEQ", "WHEN", "FINISHED", "NEXT", "STEPS"), rows):
        out.say(line)
    return FINE


def _row(checkpoint: Mapping[str, Any], now_us: int) -> Sequence[str]:
    return (
        str(checkpoint["seq"]),
        when(checkpoint["at"], now_us),
        checkpoint["current_node"] or "-",
        checkpoint["next_node_id"] or "-",
        str(len(checkpoint["completed_nodes"])),
    )
