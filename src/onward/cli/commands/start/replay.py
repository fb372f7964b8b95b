"""`onward replay`: a fork of a run, from one of its checkpoints."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from onward.cli.commands.start.foreground import foreground
from onward.cli.exits import FINE
from onward.cli.numbers import number
from onward.cli.options import COMMON, Answers, Common, Out, RunId, RunName, Settings
from onward.cli.print.text import one_line
from onward.cli.values import context_of
from onward.engine.engine import Resume
from onward.model.ids import display_id
from onward.model.values.bounds import EVENT
from onward.read.lookup import find_run


async def replay(
    run: RunName,
    /,
    *,
    checkpoint: Annotated[
        int, number(EVENT, help="The checkpoint to start from: a SEQ of `onward checkpoints`.")
    ],
    settings: Settings = (),
    run_id: RunId = None,
    start: Annotated[
        bool, Parameter(name="--run", negative="--no-run", help="Run the fork, or only make it.")
    ] = True,
    answers: Answers = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Fork a run at one of its checkpoints and run the fork. The run itself stays as it is."""
    changes: dict[str, Any] = context_of(settings)
    async with foreground(common, out, answers) as desk:
        parent = (await find_run(desk.engine.store.runs, run)).row
        forked = await desk.engine.fork(parent.id, checkpoint, changes=changes, new_id=run_id)
        child = forked.run.id
        out.say(
            f"run {display_id(child)}: {one_line(parent.pipeline)} (id {child}), "
            f"forked from {parent.display_id} at checkpoint {checkpoint}"
        )
        if not start:
            await desk.tell(forked)
            return FINE
        return await desk.finish(
            await desk.engine.resume(child, Resume(original=True, interviewer=desk.interviewer), desk.stop)
        )
