"""`onward resume`: going on with a stopped run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from onward.cli.commands.look.preview import tell_preview
from onward.cli.commands.start.foreground import Foreground, foreground
from onward.cli.exits import FINE
from onward.cli.options import COMMON, GOING, Common, Going, Out, RunName
from onward.cli.print.giving_up import gave_up_lines
from onward.cli.print.output import Output
from onward.cli.print.text import age, one_line
from onward.clock import SystemClock
from onward.engine.engine import Resume
from onward.errors import InvalidInput
from onward.model.event import StepFinished
from onward.model.ids import display_id
from onward.model.run import Run
from onward.operations.local.decide import resume_of
from onward.operations.local.preview import is_asking
from onward.operations.replies import Resumed
from onward.operations.requests import ResumeRun
from onward.read.lookup import last_checkpoint
from onward.store.codec import unseal
from onward.store.owner import owner_label


async def resume(
    run: RunName,
    /,
    *,
    from_node: Annotated[
        str | None, Parameter(name="--from", help="Continue at this node instead of the next one.")
    ] = None,
    retry: Annotated[bool, Parameter(help="Retry the stopped step.")] = False,
    skip: Annotated[bool, Parameter(help="Skip the stopped step and continue.")] = False,
    continue_: Annotated[
        bool,
        Parameter(name="--continue", help="Retry it, and tell it that it continues a partial result."),
    ] = False,
    abort: Annotated[bool, Parameter(help="Cancel the run for good; nothing is undone.")] = False,
    step: Annotated[
        str | None, Parameter(help="The stopped step that these four speak of, if there are several.")
    ] = None,
    going: Going = GOING,
    take_over: Annotated[
        bool, Parameter(help="Take the run from a holder that is stuck; it can write nothing more.")
    ] = False,
    dry_run: Annotated[
        bool, Parameter(help="Make all checks, print what would be skipped and run, change nothing.")
    ] = False,
    restore_workspace: Annotated[
        bool,
        Parameter(
            negative="",
            help="Put the work tree back to the last checkpoint; what it holds now is kept under a ref.",
        ),
    ] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Resume a stopped run after its last finished step."""
    action = _one_of({"retry": retry, "skip": skip, "continue": continue_, "abort": abort})
    _one_of({"accept-changes": going.accept_changes, "original": going.original})
    for name, is_given in (("abort", abort), ("dry-run", dry_run), ("wait", going.wait)):
        _one_of({"queue": going.queue, name: is_given})
    asking = ResumeRun(
        run=run,
        from_node=from_node,
        action=action,
        step=step,
        accept_changes=going.accept_changes,
        original=going.original,
        take_over=take_over,
        restore_workspace=restore_workspace,
    )
    async with foreground(common, out, going.answers) as desk:
        if dry_run:
            tell_preview(await desk.operations.decide.preview_resume(asking), out)
            return FINE
        if going.queue:
            return _tell_queued(await desk.operations.decide.resume_run(asking), out)
        how = replace(resume_of(asking), wait=going.wait, interviewer=desk.interviewer)
        return await _go_on(desk, await desk.run_id(run), how)


def _one_of(flags: Mapping[str, bool]) -> str | None:
    given = [name for name, is_given in flags.items() if is_given]
    if len(given) > 1:
        raise InvalidInput(f"{' and '.join(f'--{name}' for name in given)} contradict each other; say one.")
    return given[0] if given else None


async def _go_on(desk: Foreground, run_id: str, how: Resume) -> int:
    known = await desk.engine.journal.load(run_id)
    if is_asking(known.run, how, SystemClock().now_us()):
        return await desk.finish(known)
    desk.progress.narrator.opening = await _opening(desk, known.run, how)
    if known.holder is not None and known.holder.is_alive:
        _tell_holder(desk.out, owner_label(known.holder.owner), how)
    folded = await desk.engine.resume(run_id, how, desk.stop, tell=desk.out.note)
    if how.action == "abort":
        desk.tell(await desk.state(folded))
        last = await last_checkpoint(desk.engine.store.log, run_id, known.run.head)
        for line in gave_up_lines(known.run, None if last is None else last.seq, desk.common):
            desk.out.say(line)
        return FINE
    return await desk.finish(folded)


def _tell_queued(run: Resumed, out: Output) -> int:
    """The decision is made, and this process does no more about it."""
    if run["notice"]:
        out.note(run["notice"])
    out.say(f"run {run['display_id']} is queued; a worker continues it (`onward worker`)")
    if out.is_json:
        out.value(run)
    return FINE


def _tell_holder(out: Output, holder: str, how: Resume) -> None:
    """Somebody is at work on the run: say what becomes of them, if anything does."""
    if how.take_over:
        out.note(f"taking the run from {holder}, which is alive; it can write nothing more.")
    elif how.wait:
        out.say(f"waiting for {holder} to release the run")


async def _opening(desk: Foreground, run: Run, how: Resume) -> str:
    """What the run goes on with."""
    if how.action == "abort":
        return f"cancelling run {display_id(run.id)} ({one_line(run.pipeline)})"
    record = await last_checkpoint(desk.engine.store.log, run.id, run.head)
    name = f"resuming run {display_id(run.id)} ({one_line(run.pipeline)})"
    if record is None:
        return name
    event = unseal(record)
    what = f"step {event.step}" if isinstance(event, StepFinished) else "its start"
    return f"{name} from checkpoint {record.seq}: {what}, {age(record.at_us, SystemClock().now_us())}"
