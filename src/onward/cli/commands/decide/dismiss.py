"""`onward dismiss`: a stopped run is not offered any more, and no message resumes it."""

from __future__ import annotations

from onward.cli.commands.start.foreground import foreground
from onward.cli.exits import FINE
from onward.cli.options import COMMON, Common, Out, RunName
from onward.model.ids import called
from onward.operations.requests import DismissRun


async def dismiss(run: RunName, /, *, common: Common = COMMON, out: Out) -> int:
    """Stop suggesting a stopped run, and stop resuming it automatically; `onward resume` still works."""
    async with foreground(common, out) as desk:
        told = await desk.operations.decide.dismiss_run(DismissRun(run=run))
        name = called(told["id"])
        out.say(f"run {name} is dismissed; {common.command('resume', name)} still continues it")
        if out.is_json:
            out.value(told)
        return FINE
