"""`onward retry`, `skip` and `abort`: a resume that says what becomes of the stopped step."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from onward.cli.options import COMMON, Answers, Common, Out, RunName
from onward.cli.resume import resume

Step = Annotated[str | None, Parameter(help="The stopped step or its node, if there are several.")]
AcceptChanges = Annotated[bool, Parameter(help="Go on under the changed pipeline file.")]
Original = Annotated[bool, Parameter(help="Go on under the source stored with the run.")]
Wait = Annotated[bool, Parameter(help="Wait until whoever holds the run lets go of it.")]


async def retry(
    run: RunName,
    /,
    *,
    step: Step = None,
    accept_changes: AcceptChanges = False,
    original: Original = False,
    wait: Wait = False,
    answers: Answers = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Make a stopped step again, whether it failed, was interrupted or is in doubt, and go on."""
    return await resume(
        run,
        retry=True,
        step=step,
        accept_changes=accept_changes,
        original=original,
        wait=wait,
        answers=answers,
        common=common,
        out=out,
    )


async def skip(
    run: RunName,
    /,
    *,
    step: Step = None,
    accept_changes: AcceptChanges = False,
    original: Original = False,
    wait: Wait = False,
    answers: Answers = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Go on behind a stopped step, as if it had been skipped."""
    return await resume(
        run,
        skip=True,
        step=step,
        accept_changes=accept_changes,
        original=original,
        wait=wait,
        answers=answers,
        common=common,
        out=out,
    )


async def abort(run: RunName, /, *, wait: Wait = False, common: Common = COMMON, out: Out) -> int:
    """Give up a run that has stopped; nothing of it can be resumed."""
    return await resume(run, abort=True, wait=wait, common=common, out=out)
