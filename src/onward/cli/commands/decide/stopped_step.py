"""`onward retry`, `skip` and `abort`: a resume that says what becomes of the stopped step."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from onward.cli.commands.start.resume import Repeats, resume
from onward.cli.options import COMMON, CONTINUE, Common, Continue, Out, RunName, Wait

Step = Annotated[str | None, Parameter(help="The stopped step or its node, if there are several.")]


async def retry(
    run: RunName,
    /,
    *,
    step: Step = None,
    repeats: Repeats = (),
    going: Continue = CONTINUE,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Retry a stopped step, whether it failed, was interrupted or is in doubt, and continue."""
    return await resume(run, retry=True, step=step, repeats=repeats, going=going, common=common, out=out)


async def skip(
    run: RunName, /, *, step: Step = None, going: Continue = CONTINUE, common: Common = COMMON, out: Out
) -> int:
    """Skip a stopped step and continue after it."""
    return await resume(run, skip=True, step=step, going=going, common=common, out=out)


async def abort(run: RunName, /, *, wait: Wait = False, common: Common = COMMON, out: Out) -> int:
    """Give up a run that has stopped, for good. Nothing is undone; its checkpoints can still be replayed."""
    return await resume(run, abort=True, going=Continue(wait=wait), common=common, out=out)
