"""`onward resume`, `retry`, `skip`, `abort` and `answer`: continue a run that stopped or waits.

`retry`, `skip` and `abort` are a resume that says what becomes of the stopped step; `answer` decides a gate
and continues the run. `resume --dry-run` says what would be skipped, and what would run first. When a run
was cancelled, it says what is unknown, what stays, and what is still possible.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from onward.cli import options
from onward.cli.commands import remote
from onward.cli.commands.foreground import Foreground, foreground
from onward.cli.operations import lists_of
from onward.cli.output import FINE, Output, age, context_of, exit_of, one_line, one_of
from onward.cli.print.run import asleep_until, gate_lines, instant_us, left_lines
from onward.clock import SystemClock
from onward.errors import InvalidInput, NoDatabase
from onward.model.gate import Verdict
from onward.model.ids import called
from onward.model.run import RunStatus
from onward.operations.here.submission import directory_of, is_elsewhere, missing_notice
from onward.operations.requests import ALL, AnswerGate, GetRun, ListGates, ResumeRun
from onward.pipeline.gate import FREEFORM

if TYPE_CHECKING:
    from onward.operations.here.replies import ResumeOutlook
    from onward.replies.runs import GateListed, ResumePreview, RunState, RunWithNotice

Repeats = Annotated[
    tuple[str, ...],
    Parameter(
        name="--repeat",
        help="With --retry: repeat this call, even if it has a result and is marked as not repeatable. "
        "Repeatable.",
        negative="",
        metavar="CALL",
    ),
]

Fresh = Annotated[
    bool,
    Parameter(
        negative="",
        help="With --retry: start a step in doubt over, and discard the results of its calls.",
    ),
]


async def resume(
    run: options.RunName,
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
            name="--continue", help="Retry the stopped step, with a note that it continues partial work."
        ),
    ] = False,
    abort: Annotated[bool, Parameter(help="Cancel the run for good; nothing is undone.")] = False,
    step: Annotated[
        str | None, Parameter(help="Which stopped step to retry, skip or continue, if there are several.")
    ] = None,
    going: options.Continue = options.CONTINUE,
    take_over: Annotated[
        bool, Parameter(help="Take the run from a stuck process, which can no longer write to it afterwards.")
    ] = False,
    dry_run: Annotated[
        bool,
        Parameter(
            help="Check everything, print what would be skipped and what would run, and change nothing."
        ),
    ] = False,
    answers: Annotated[
        tuple[str, ...],
        Parameter(
            name="--answer",
            help="With --continue: the result of a call in doubt, CALL=TEXT or CALL:=JSON. Repeatable.",
            negative="",
            metavar="CALL=VALUE",
        ),
    ] = (),
    repeats: Repeats = (),
    fresh: Fresh = False,
    restore_workspace: Annotated[
        bool,
        Parameter(
            negative="",
            help="Reset the work tree to the last checkpoint; its current state is kept as a git ref.",
        ),
    ] = False,
    raises: options.Raises = (),
    common: options.Common = options.COMMON,
    out: options.Out,
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
        fresh=fresh,
        workdir=None if going.cwd is None else directory_of(going.cwd, is_here=not going.queue),
        raises=tuple(map(options.raise_of, raises)),
    )
    async with remote.desk_of(common, out) as server:
        if server is not None:
            if dry_run:
                tell_preview(await server.operations.decide.preview_resume(asking), out)
                return FINE
            return await remote.resume(server, asking)
    async with foreground(common, out, going.answers, verbose=going.verbose, run=run) as desk:
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
        desk.out.note(
            f"taking the run from {ahead['holder']}, which is alive; it can no longer write to the run."
        )
    elif ahead["holder"] is not None and wait:
        desk.out.say(f"waiting for {ahead['holder']} to release the run")
    run = await desk.execution.resume_run(asking, wait=wait, tell=desk.out.note)
    if asking.action != "abort":
        return desk.finish(run)
    desk.tell(run)
    for line in cancelled_lines(ahead, desk.common):
        desk.out.say(line)
    return FINE


def _tell_queued(run: RunWithNotice, out: Output) -> int:
    """The decision is made, and this process does no more about it."""
    waiting = run["waiting_for"]["says"] if run["waiting_for"] else ""
    for notice in filter(None, (run["notice"], missing_notice(run["workdir"]), waiting)):
        out.note(notice)
    name = called(run["id"])
    if until := asleep_until(run):
        out.say(f"run {name} waits until {until}; a worker continues it then (`onward worker`)")
    elif run["status"] == RunStatus.WAITING.value:
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


def tell_preview(seen: ResumePreview, out: Output) -> None:
    """Print what a resume would skip and do."""
    if seen["notice"]:
        out.note(seen["notice"])
    for step in seen["skip"]:
        out.say(f"SKIP  {one_line(step)}")
    for act in seen["plan"]:
        why = f"  ({one_line(act['why'])})" if act["why"] else ""
        out.say(f"{act['does'].upper():<5} {one_line(act['what'])}{why}")
    for line in left_lines(seen["left"]):
        out.say(line)
    out.say("nothing was changed")
    if out.is_json:
        out.value(seen)


def cancelled_lines(before: ResumeOutlook, common: options.Common) -> Iterator[str]:
    """For a run as it was before it was cancelled."""
    doubtful, last = before["in_doubt"], before["checkpoint"]
    if doubtful:
        yield f"whether {one_line(', '.join(doubtful))} finished is unknown; nothing was undone"
    else:
        yield "what its steps did stays as it is; nothing was undone"
    if last is None:
        yield "it cannot be resumed"
        return
    again = f", which runs {one_line(', '.join(doubtful))} again" if doubtful else ""
    replay = common.command("replay", called(before["run"]), "--checkpoint", str(last["seq"]))
    yield f"it cannot be resumed; a fork can continue from its last checkpoint{again}: {replay}"


Step = Annotated[str | None, Parameter(help="The stopped step or its node, if there are several.")]


async def retry(
    run: options.RunName,
    /,
    *,
    step: Step = None,
    repeats: Repeats = (),
    fresh: Fresh = False,
    going: options.Continue = options.CONTINUE,
    common: options.Common = options.COMMON,
    out: options.Out,
) -> int:
    """Retry a stopped step, whether it failed, was interrupted or is in doubt, and continue the run."""
    return await resume(
        run, retry=True, step=step, repeats=repeats, fresh=fresh, going=going, common=common, out=out
    )


async def skip(
    run: options.RunName,
    /,
    *,
    step: Step = None,
    going: options.Continue = options.CONTINUE,
    common: options.Common = options.COMMON,
    out: options.Out,
) -> int:
    """Skip a stopped step and continue after it."""
    return await resume(run, skip=True, step=step, going=going, common=common, out=out)


async def abort(
    run: options.RunName,
    /,
    *,
    wait: options.Wait = False,
    common: options.Common = options.COMMON,
    out: options.Out,
) -> int:
    """Cancel a run that has stopped, for good. Nothing is undone; its checkpoints can still be replayed."""
    return await resume(run, abort=True, going=options.Continue(wait=wait), common=common, out=out)


async def answer(
    run: options.RunName | None = None,
    choice: Annotated[
        str | None,
        Parameter(help="The choice: its key, its label, or the node it leads to; or the text it asks for."),
    ] = None,
    /,
    *,
    approve: Annotated[bool, Parameter(help="Take the approving choice, whatever its label.")] = False,
    reject: Annotated[
        bool, Parameter(help="Reject. If no edge handles that, the run fails as rejected.")
    ] = False,
    gate: Annotated[str | None, Parameter(help="The gate, if several are open.")] = None,
    text: Annotated[
        str, Parameter(help="A comment for the run, in addition to the choice.", show_default=False)
    ] = "",
    go_on: Annotated[
        bool,
        Parameter(
            name="--run",
            negative="--no-run",
            help="Continue the run (the default), or only store the answer.",
        ),
    ] = True,
    answers: options.Answers = None,
    verbose: options.Verbose = False,
    common: options.Common = options.COMMON,
    out: options.Out,
) -> int:
    """Answer a run's open gate and continue the run. Without a choice: show the question and prompt.

    Without a run: list the open gates of all runs, with what is to be decided.
    """
    verdict = _verdict(choice, approve=approve, reject=reject)
    if run is None:
        if verdict is not None or gate is not None or text:
            raise InvalidInput("an answer needs its run; `onward answer` lists the runs that wait for one.")
        return await _list_open(common, out)
    asking = AnswerGate(run=run, gate=gate, choice=choice or "", text=text, verdict=verdict)
    async with remote.desk_of(common, out) as server:
        if server is not None:
            return await remote.answer(server, asking)
    async with foreground(common, out, answers, verbose=verbose, run=run) as desk:
        if choice is None and verdict is None and not text:
            asked = await desk.execution.ask(asking)
            if asked is None:
                left = await desk.operations.look.get_run(GetRun(run=run))
                desk.tell(
                    left,
                    is_whole=True,
                    answer=_to_say(left, gate) if desk.execution.interviewer is None else (),
                )
                return exit_of(left["status"])
            asking = asked
        if go_on:
            return desk.finish(await desk.execution.answer_gate(asking))
        desk.tell(await desk.operations.decide.answer_gate(asking))
        return FINE


def _to_say(run: RunState, gate: str | None) -> tuple[str, ...]:
    """What is missing from a command line that was to answer, where nobody can be asked."""
    types = {one["type"] for one in run["gates"] if gate in (None, one["gate"])}
    words = "WORDS" if types == {FREEFORM} else "CHOICE"
    return (words,) if gate is None else (words, "--gate", shlex.quote(gate))


async def _list_open(common: options.Common, out: Output) -> int:
    """Print every open gate, the oldest first, and how to answer."""
    because = ""
    gates: list[GateListed] = []
    try:
        async with lists_of(common) as lists:
            gates = (await lists.list_gates(ListGates(limit=ALL)))["gates"]
    except NoDatabase as error:
        because = f": {error}"
    if out.is_json:
        out.value(gates)
    if not gates:
        out.say(f"no run waits for an answer{because}")
        return FINE
    for gate in () if out.is_json else gates:
        name = called(gate["run"])
        out.say(f"run {name} ({one_line(gate['pipeline'])}): {common.command('answer', name)}")
        for line in gate_lines(gate, is_whole=True):
            out.say(f"  {line}")
    return FINE


def _verdict(choice: str | None, *, approve: bool, reject: bool) -> Verdict | None:
    given = [name for name, is_given in (("--approve", approve), ("--reject", reject)) if is_given]
    if choice is not None:
        given.append(f"the choice {choice!r}")
    if len(given) > 1:
        raise InvalidInput(f"{' and '.join(given)} contradict each other; give one of them.")
    if not (approve or reject):
        return None
    return Verdict.APPROVE if approve else Verdict.REJECT
