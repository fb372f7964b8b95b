"""`onward steer`: an instruction for the agents of a run that is under way."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from onward.cli.commands.start.foreground import foreground
from onward.cli.exits import FINE
from onward.cli.options import COMMON, Common, Out, RunName
from onward.cli.replies import Steered
from onward.model.ids import called
from onward.operations.requests import SteerRun


async def steer(
    run: RunName,
    text: Annotated[str, Parameter(help="What the agents should do, or do differently.")],
    /,
    *,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Give a run's agents an instruction; the next agent step takes it, whichever process holds the run."""
    async with foreground(common, out) as desk:
        told = await desk.operations.decide.steer_run(SteerRun(run=run, text=text))
        waiting = len(told["steering"])
        out.say(f"run {called(told['id'])} has the instruction; its next agent step takes {_count(waiting)}")
        if out.is_json:
            steered: Steered = {"id": told["id"], "steering": told["steering"]}
            out.value(steered)
        return FINE


def _count(waiting: int) -> str:
    return "it" if waiting == 1 else f"all {waiting} instructions that wait"
