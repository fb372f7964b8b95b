"""`onward resume`: continue a stopped run."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from onward.cli.commands.look.preview import tell_preview
from onward.cli.commands.start.foreground import Foreground, foreground
from onward.cli.commands.start.raising import raise_of
from onward.cli.exits import FINE
from onward.cli.options import COMMON, CONTINUE, Common, Continue, Out, RunName
from onward.cli.print.cancelled import cancelled_lines
from onward.cli.print.output import Output
from onward.cli.print.render import instant_us
from onward.cli.print.text import age, one_line
from onward.cli.values import context_of, one_of
from onward.clock import SystemClock
from onward.model.ids import called
from onward.model.run import RunStatus
from onward.operations.here.replies import ResumeOutlook
from onward.operations.here.submission import directory_of, is_elsewhere, missing_notice
from onward.operations.replies.runs import Resumed
from onward.operations.requests import ResumeRun

Repeats = Annotated[
    tuple[str, ...],
    Parameter(
        name="--repeat",
        help="With --retry: repeat this call, although it was answered and must not be repeated. Repeatable.",
        negative="",
        metavar="CALL",
    ),
]


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
        Parameter(
            name="--continue", help="Retry the stopped step, and tell it that it continues partial work."
        ),
    ] = False,
    abort: Annotated[bool, Parameter(help="Cancel the run for good; nothing is undone.")] = False,
    step: Annotated[
        str | None, Parameter(help="Which stopped step to retry, skip or continue, if there are several.")
    ] = None,
    going: Continue = CONTINUE,
    take_over: Annotated[
        bool, Parameter(help="Take the run from a stuck process, which can then no longer write to it.")
    ] = False,
    dry_run: Annotated[
        bool, Parameter(help="Make all checks, print what would be skipped and run, change nothing.")
    ] = False,
    answers: Annotated[
        tuple[str, ...],
        Parameter(
            name="--answer",
            help="With --continue: what a call in doubt answered, CALL=TEXT or CALL:=JSON. Repeatable.",
            negative="",
            metavar="CALL=VALUE",
        ),
    ] = (),
    repeats: Repeats = (),
    restore_workspace: Annotated[
        bool,
        Parameter(
            negative="",
            help="Put the work tree back to the last checkpoint; what it holds now is kept under a ref.",
        ),
    ] = False,
    raises: Annotated[
        tuple[str, ...],
        Parameter(
            name="--raise",
            negative="",
            help="Raise a limit of the run first, such as day.tokens=200000 or run.cost=2.50.",
        ),
    ] = (),
    common: Common = COMMON,
    out: Out,
) -> int:
    """Resume a stopped run after its last finished step."""
    action = one_of({"retry": retry, "skip": skip, "continue": continue_, "abort": abort})
    one_of({"accept-changes": going.accept_changes, "original": going.original})
    for name, is_given in (("abort", abort), ("dry-run", dry_run), ("wait", going.wait)):
        one_of({"queue": going.queue, name: is_given})
    one_of({"raise": bool(raises), "dry-run": dry_run})
    asking = ResumeRun(
        run=run,
        from_node=from_node,
        action=action,
        step=step,
        accept_changes=going.accept_changes,
        original=going.original,
        take_over=take_over,
        restore_workspace=restore_workspace,
        answers=context_of(answers, "--answer"),
        repeats=repeats,
        workdir=None if going.cwd is None else directory_of(going.cwd, is_here=not going.queue),
        raises=tuple(map(raise_of, raises)),
    )
    async with foreground(common, out, going.answers, verbose=going.verbose) as desk:
        if dry_run:
            tell_preview(await desk.operations.decide.preview_resume(asking), out)
            return FINE
        if going.queue:
            return _tell_queued(await desk.operations.decide.resume_run(asking), out)
        return await _execute(desk, asking, wait=going.wait)


async def _execute(desk: Foreground, asking: ResumeRun, *, wait: bool) -> int:
    ahead = await desk.execution.look_ahead(asking)
    if ahead["is_asking"]:
        return desk.finish(await desk.execution.ask_run(asking, tell=desk.out.note))
    desk.progress.narrator.opening = _opening(ahead, asking)
    if ahead["holder"] is not None and asking.take_over:
        desk.out.note(f"taking the run from {ahead['holder']}, which is alive; it can write nothing more.")
    elif ahead["holder"] is not None and wait:
        desk.out.say(f"waiting for {ahead['holder']} to release the run")
    run = await desk.execution.resume_run(asking, wait=wait, tell=desk.out.note)
    if asking.action != "abort":
        return desk.finish(run)
    desk.tell(run)
    for line in cancelled_lines(ahead, desk.common):
        desk.out.say(line)
    return FINE


def _tell_queued(run: Resumed, out: Output) -> int:
    """The decision is made, and this process does no more about it."""
    waiting = run["waiting_for"]["says"] if run["waiting_for"] else ""
    for notice in filter(None, (run["notice"], missing_notice(run["workdir"]), waiting)):
        out.note(notice)
    name = called(run["id"])
    if run["status"] == RunStatus.WAITING.value:
        out.say(f"run {name} still waits for an answer; answer with `onward answer {name}`")
    else:
        out.say(f"run {name} is queued; a worker continues it (`onward worker`)")
    if out.is_json:
        out.value(run)
    return FINE


def _opening(ahead: ResumeOutlook, asking: ResumeRun) -> str:
    """What the run continues with."""
    name = f"run {called(ahead['run'])} ({one_line(ahead['pipeline'])})"
    if asking.action == "abort":
        return f"cancelling {name}"
    place = asking.workdir or ahead["workdir"] or ""
    where = f"; its commands run in {one_line(place, 1_000)}" if is_elsewhere(place) else ""
    last = ahead["checkpoint"]
    if last is None:
        return f"resuming {name}{where}"
    what = "its start" if last["step"] is None else f"step {last['step']}"
    ago = age(instant_us(last["at"]), SystemClock().now_us())
    return f"resuming {name} from checkpoint {last['seq']}: {what}, {ago}{where}"
