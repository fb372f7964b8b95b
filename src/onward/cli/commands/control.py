"""`onward pause`, `cancel`, `steer` and `dismiss`: requests to whoever holds a run.

`pause` and `cancel` ask the holder to stop, and see that it does. `steer` gives an instruction to the agents
of a run that is under way. A run that was dismissed is not offered any more, and no message resumes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from onward.cli.commands import remote
from onward.cli.commands.foreground import Foreground, foreground
from onward.cli.options import COMMON, Common, Out, RunName, number
from onward.cli.output import FINE, UNFINISHED, Output, exit_of
from onward.clock import SystemClock
from onward.errors import Refused
from onward.model.ids import called
from onward.model.run import RunStatus
from onward.model.values import WAIT
from onward.operations.requests import CancelRun, DismissRun, GetRun, ListRuns, PauseRun, SteerRun

if TYPE_CHECKING:
    from onward.cli.replies import Steered
    from onward.operations.protocol import DecideOperations
    from onward.replies.runs import RunState

POLL_S = 0.1
Wait = Annotated[
    bool,
    Parameter(
        name="--wait",
        negative="--no-wait",
        help="Wait until the run has stopped (the default), or only send the request.",
    ),
]
Timeout = Annotated[float, number(WAIT, help="How many seconds to wait; with 0, return at once.")]
Ask = Callable[[], "Awaitable[RunState]"]


async def pause(
    run: RunName,
    /,
    *,
    after: Annotated[
        Literal["step", "call", "now"],
        Parameter(help="When to stop: after the current step, after the current call, or now."),
    ] = "step",
    wait: Wait = True,
    timeout: Timeout = 60.0,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Stop a run so that it can be resumed. A run that no live process holds stops at once."""
    asking, timeout_s = PauseRun(run=run, after=after), timeout if wait else 0
    async with remote.desk_of(common, out) as server:
        if server is not None:
            ask = partial(server.operations.decide.pause_run, asking)
            stopped = partial(server.stopped, timeout_s=timeout_s)
            return await _ask(server, ask, RunStatus.PAUSED, stopped if timeout_s else None)
    async with foreground(common, out) as desk:
        ask = partial(desk.operations.decide.pause_run, asking)
        stopped = partial(_stopped, desk, ask, timeout_s)
        return await _ask(desk, ask, RunStatus.PAUSED, stopped if timeout_s else None)


async def cancel(
    run: RunName,
    /,
    *,
    reason: Annotated[
        str, Parameter(help="Why, in your own words; it is kept with the run.", show_default=False)
    ] = "",
    wait: Wait = True,
    timeout: Timeout = 60.0,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Cancel a run for good."""
    asking, timeout_s = CancelRun(run=run, reason=reason), timeout if wait else 0
    async with remote.desk_of(common, out) as server:
        if server is not None:
            ask = partial(server.operations.decide.cancel_run, asking)
            stopped = partial(server.stopped, timeout_s=timeout_s)
            return await _ask(server, ask, RunStatus.CANCELLED, stopped if timeout_s else None)
    async with foreground(common, out) as desk:
        ask = partial(desk.operations.decide.cancel_run, asking)
        stopped = partial(_stopped, desk, ask, timeout_s)
        return await _ask(desk, ask, RunStatus.CANCELLED, stopped if timeout_s else None)


@asynccontextmanager
async def _deciding(common: Common, out: Output) -> AsyncIterator[DecideOperations]:
    """Where requests are decided that are over at once: on the server that is named, or here."""
    async with remote.desk_of(common, out) as server:
        if server is not None:
            yield server.operations.decide
            return
    async with foreground(common, out) as desk:
        yield desk.operations.decide


async def _ask(
    desk: Foreground | remote.Desk,
    ask: Ask,
    wanted: RunStatus,
    stopped: Callable[[RunState], Awaitable[RunState]] | None,
) -> int:
    """Ask, wait until the run stands still if `stopped` waits for that, and print its state."""
    run = await ask()
    if run["status"] == RunStatus.RUNNING and stopped is not None:
        desk.out.say(f"run {called(run['id'])} has the request; waiting for the process that holds it")
        run = await stopped(run)
    if run["status"] == RunStatus.RUNNING:
        desk.out.say(f"run {called(run['id'])} has the request and is still running")
        if desk.out.is_json:
            desk.out.value(run)
        return UNFINISHED if stopped is not None else FINE
    desk.tell(run)
    return FINE if run["status"] == wanted else exit_of(run["status"])


async def _stopped(desk: Foreground, ask: Ask, timeout_s: float, run: RunState) -> RunState:
    """The run when no process executes it any more, or as it is when the time limit or a signal comes."""
    clock, asked = SystemClock(), asyncio.Event()
    desk.stop.listen(asked.set)
    deadline_s = clock.awake_s() + timeout_s
    standing = ListRuns(run=run["id"])
    while not asked.is_set() and clock.awake_s() < deadline_s:
        await clock.wait_s(POLL_S, asked)
        (seen,) = (await desk.operations.lists.list_runs(standing))["runs"]
        if seen["status"] == RunStatus.INTERRUPTED:
            # Perhaps its holder died before it could do as it was asked; if it stopped, it stays as it is.
            with suppress(Refused):
                run = await ask()
        if seen["status"] != RunStatus.RUNNING:
            break
    desk.stop.unlisten(asked.set)
    return await desk.operations.look.get_run(GetRun(run=run["id"]))


async def steer(
    run: RunName,
    text: Annotated[str, Parameter(help="What the agents should do, or do differently.")],
    /,
    *,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Send an instruction to a run's agents; the next agent step receives it, in any process."""
    async with _deciding(common, out) as decide:
        told = await decide.steer_run(SteerRun(run=run, text=text))
        waiting = len(told["steering"])
        out.say(
            f"run {called(told['id'])} has the instruction; its next agent step receives {_count(waiting)}"
        )
        if out.is_json:
            steered: Steered = {"id": told["id"], "steering": told["steering"]}
            out.value(steered)
        return FINE


def _count(waiting: int) -> str:
    return "it" if waiting == 1 else f"all {waiting} pending instructions"


async def dismiss(run: RunName, /, *, common: Common = COMMON, out: Out) -> int:
    """Stop suggesting a stopped run, and stop resuming it automatically; `onward resume` still works."""
    async with _deciding(common, out) as decide:
        told = await decide.dismiss_run(DismissRun(run=run))
        name = called(told["id"])
        out.say(f"run {name} is dismissed; {common.command('resume', name)} still continues it")
        if out.is_json:
            out.value(told)
        return FINE
