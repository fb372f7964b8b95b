"""`onward steer`: an instruction for the agents of a run that is under way."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from onward.cli.commands.start.foreground import foreground
from onward.cli.exits import FINE
from onward.cli.options import COMMON, Common, Out, RunName
from onward.model.ids import display_id
from onward.read.lookup import find_run


async def steer(
    run: RunName,
    text: Annotated[str, Parameter(help="What the agents should do, or do differently.")],
    /,
    *,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Give a run's agents an instruction; the next agent step takes it, whoever is at work on the run."""
    async with foreground(common, out) as desk:
        run_id = (await find_run(desk.engine.store.runs, run)).row.id
        folded = await desk.engine.steer(run_id, text)
        waiting = len(folded.run.steering)
        out.say(f"run {display_id(run_id)} has been told; its next agent step takes {_count(waiting)}")
        if out.is_json:
            out.value({"id": run_id, "steering": list(folded.run.steering)})
        return FINE


def _count(waiting: int) -> str:
    return "it" if waiting == 1 else f"all {waiting} instructions that wait"
