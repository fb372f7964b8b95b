"""Commands that look at one run: show, events, checkpoints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated, Any

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.numbers import number
from onward.cli.opening.looking import look_of
from onward.cli.options import COMMON, Common, Out, RunName, StepName
from onward.cli.print.output import Output
from onward.cli.print.render import instant_us, run_page, when
from onward.cli.print.step import step_page
from onward.cli.print.text import local_time, one_line, table
from onward.cli.signals import on_signals
from onward.clock import SystemClock
from onward.model.values import EVENT
from onward.operations.replies.steps import Checkpoint, EventShown, RunPage, StepPage
from onward.operations.requests import ListCheckpoints, ReadEvents, ShowRun, ShowStep

VALUE_WIDTH = 80
ENVELOPE = ("seq", "kind", "at", "token", "run")


async def show(run: RunName, step: StepName | None = None, /, *, common: Common = COMMON, out: Out) -> int:
    """Show one run: what happened, step by step, what is open, and what to type next; or one of its steps.

    Of a step: its attempts and tries, prompt, response, output, what it changed in the context, artifacts,
    and where its receipt is. A node stands for its last visit.
    """
    page: RunPage | StepPage
    async with look_of(common) as look:
        if step is None:
            page = await look.show_run(ShowRun(run=run))
            lines = run_page(page, common, SystemClock().now_us())
        else:
            page = await look.show_step(ShowStep(run=run, step=step))
            lines = step_page(page, common, SystemClock().now_us())
    if out.is_json:
        out.value(page)
        return FINE
    for line in lines:
        out.say(line)
    return FINE


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
    asked = asyncio.Event()
    request = ReadEvents(run=run, after=after, follow=follow, dialect=dialect)
    async with look_of(common) as look, aclosing(look.read_events(request, stop=asked)) as found:
        with on_signals(asked.set):
            async for event in found:
                _say(event, out)
                if out.is_gone:
                    break
    return FINE


def _say(event: EventShown, out: Output) -> None:
    if out.is_json:
        out.value(event)
        return
    fields = (f"{key}={_short(value)}" for key, value in event.items() if key not in ENVELOPE)
    at = local_time(instant_us(event["at"]))
    out.say(f"{event['seq']:>5}  {at}  {event['kind']:<18}  {'  '.join(fields)}".rstrip())


def _short(value: Any) -> str:
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), VALUE_WIDTH)


async def checkpoints(run: RunName, /, *, common: Common = COMMON, out: Out) -> int:
    """List a run's checkpoints: where `onward replay` can start."""
    async with look_of(common) as look:
        found = look.list_checkpoints(ListCheckpoints(run=run))
        if out.is_json:
            out.value([checkpoint async for checkpoint in found])
            return FINE
        now_us = SystemClock().now_us()
        rows = [_row(checkpoint, now_us) async for checkpoint in found]
    for line in table(("SEQ", "WHEN", "FINISHED", "NEXT", "STEPS"), rows):
        out.say(line)
    return FINE


def _row(checkpoint: Checkpoint, now_us: int) -> Sequence[str]:
    return (
        str(checkpoint["seq"]),
        when(checkpoint["at"], now_us),
        checkpoint["current_node"] or "-",
        checkpoint["next_node_id"] or "-",
        str(len(checkpoint["completed_nodes"])),
    )
