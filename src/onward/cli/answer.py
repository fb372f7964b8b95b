"""`onward answer`: decide a gate, and go on."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from onward.cli.exits import FINE, UNFINISHED
from onward.cli.foreground import foreground
from onward.cli.options import COMMON, Answers, Common, Out, RunName
from onward.engine.look import find_run
from onward.machine.decide import open_gate


async def answer(
    run: RunName,
    choice: Annotated[
        str | None, Parameter(help="The choice: its key, its label, or the node it leads to.")
    ] = None,
    /,
    *,
    gate: Annotated[str | None, Parameter(help="The gate, if several are open.")] = None,
    text: Annotated[str, Parameter(help="Words for the run, beside the choice.", show_default=False)] = "",
    go_on: Annotated[
        bool, Parameter(name="--run", negative="--no-run", help="Go on with the run, or only decide.")
    ] = True,
    answers: Answers = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Decide a run's open gate and go on with it. Without a choice: show the question, and ask."""
    async with foreground(common, out, answers) as desk:
        run_id, by = (await find_run(desk.engine.store, run)).row.id, "user"
        if choice is None:
            known = await desk.engine.journal.load(run_id)
            asked = open_gate(known.run, gate)
            if desk.interviewer is not None:
                choice, by, gate = (
                    await desk.interviewer.ask(known.run, asked),
                    desk.interviewer.name,
                    asked.gate,
                )
            if choice is None:
                await desk.tell(known)
                return UNFINISHED
        folded = await desk.engine.answer(
            run_id, choice, by=by, gate=gate, text=text, run=go_on, stop=desk.stop
        )
        if not go_on:
            await desk.tell(folded)
            return FINE
        return await desk.finish(folded)
