"""`onward replay`: a fork of a run, from one of its checkpoints."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from onward.cli.commands.start.foreground import foreground
from onward.cli.exits import FINE
from onward.cli.numbers import number
from onward.cli.options import (
    COMMON,
    AcceptChanges,
    Answers,
    Common,
    Original,
    Out,
    RunId,
    RunName,
    Settings,
    Verbose,
)
from onward.cli.print.render import id_words
from onward.cli.print.text import one_line
from onward.cli.values import context_of, one_of
from onward.model.ids import called
from onward.model.values import EVENT
from onward.operations.requests import ForkRun, ResumeRun


async def replay(
    run: RunName,
    /,
    *,
    checkpoint: Annotated[
        int | None, number(EVENT, help="The checkpoint to start from: a SEQ of `onward checkpoints`.")
    ] = None,
    from_step: Annotated[
        str | None,
        Parameter(
            name="--from",
            help="Start before this step instead: its id, such as test#2, or its node for the last visit.",
            metavar="STEP",
        ),
    ] = None,
    accept_changes: AcceptChanges = False,
    original: Original = False,
    settings: Settings = (),
    run_id: RunId = None,
    start: Annotated[
        bool,
        Parameter(name="--run", negative="--no-run", help="Run the fork (the default), or only make it."),
    ] = True,
    answers: Answers = None,
    verbose: Verbose = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Fork a run at a checkpoint, or before a step, and run the fork. The run itself stays as it is."""
    one_of({"checkpoint": checkpoint is not None, "from": from_step is not None})
    one_of({"accept-changes": accept_changes, "original": original})
    asking = ForkRun(
        run=run,
        checkpoint=checkpoint,
        from_step=from_step,
        changes=context_of(settings),
        run_id=run_id,
        accept_changes=accept_changes,
        original=original,
    )
    async with foreground(common, out, answers, verbose=verbose) as desk:
        forked = await desk.operations.start.fork_run(asking)
        child, parent = forked["id"], forked["parent"]
        assert parent is not None  # a fork has one
        out.say(
            f"run {called(child)}: {one_line(forked['pipeline'])}{id_words(child)}, "
            f"forked from {called(parent['run'])} at checkpoint {parent['seq']}"
        )
        if forked["notice"]:
            out.note(forked["notice"])
        if not start:
            desk.tell(forked)
            return FINE
        return desk.finish(await desk.execution.resume_run(ResumeRun(run=child, original=True)))
