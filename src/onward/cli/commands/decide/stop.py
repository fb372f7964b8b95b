"""`onward pause` and `onward cancel`: asking whoever holds a run to stop, and seeing that it does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

from cyclopts import Parameter

from onward.cli.commands.start.foreground import Foreground, foreground
from onward.cli.exits import FINE, UNFINISHED, exit_of
from onward.cli.numbers import number
from onward.cli.options import COMMON, Common, Out, RunName
from onward.clock import SystemClock
from onward.engine.log.journal import Folded
from onward.model.ids import display_id
from onward.model.run import RunStatus
from onward.model.values.bounds import WAIT
from onward.read.lookup import find_run

POLL_S = 0.1
Wait = Annotated[
    bool, Parameter(name="--wait", negative="--no-wait", help="See that it happens, or only ask for it.")
]
Timeout = Annotated[float, number(WAIT, help="For how many seconds to wait; 0 only asks.")]
Ask = Callable[[], Awaitable[Folded]]


async def pause(
    run: RunName,
    /,
    *,
    after: Annotated[
        Literal["step", "call", "now"],
        Parameter(help="Let the step finish, let the call finish, or stop now."),
    ] = "step",
    wait: Wait = True,
    timeout: Timeout = 60.0,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Ask a run to stop, so that it can be resumed; at once if nobody is at work on it."""
    async with foreground(common, out) as desk:
        run_id = (await find_run(desk.engine.store.runs, run)).row.id
        return await _ask(
            desk, lambda: desk.engine.pause(run_id, after=after), RunStatus.PAUSED, timeout if wait else 0
        )


async def cancel(
    run: RunName,
    /,
    *,
    wait: Wait = True,
    timeout: Timeout = 60.0,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Give a run up for good."""
    async with foreground(common, out) as desk:
        run_id = (await find_run(desk.engine.store.runs, run)).row.id
        return await _ask(
            desk, lambda: desk.engine.cancel(run_id), RunStatus.CANCELLED, timeout if wait else 0
        )


async def _ask(desk: Foreground, ask: Ask, wanted: RunStatus, timeout_s: float) -> int:
    """Ask, wait until the run stands still, and say how it stands."""
    folded = await ask()
    if folded.run.status is RunStatus.RUNNING and timeout_s > 0:
        desk.out.say(f"run {display_id(folded.run.id)} has been asked; waiting for its holder")
        folded = await _stopped(desk, ask, folded, timeout_s)
    if folded.run.status is RunStatus.RUNNING:
        desk.out.say(f"run {display_id(folded.run.id)} has been asked and is still at work")
        return FINE if timeout_s <= 0 else UNFINISHED
    await desk.tell(folded)
    return FINE if folded.run.status is wanted else exit_of(folded.run.status.value)


async def _stopped(desk: Foreground, ask: Ask, folded: Folded, timeout_s: float) -> Folded:
    """The run as soon as nobody works on it, or as it stands when the time is over or a signal comes."""
    clock, asked = SystemClock(), asyncio.Event()
    unlisten = desk.stop.listen(asked.set)
    deadline_s = clock.awake_s() + timeout_s
    while folded.run.status is RunStatus.RUNNING and not asked.is_set() and clock.awake_s() < deadline_s:
        await clock.wait_s(POLL_S, asked)
        folded = await desk.engine.journal.load(folded.run.id)
        if folded.run.status is RunStatus.RUNNING and not (folded.holder and folded.holder.is_alive):
            folded = await ask()  # its holder died before it could do as it was asked
    unlisten()
    return folded
