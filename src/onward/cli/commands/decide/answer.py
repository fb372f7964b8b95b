"""`onward answer`: decide a gate, and continue the run."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from onward.cli.commands.start.foreground import foreground
from onward.cli.exits import FINE, UNFINISHED
from onward.cli.options import COMMON, Answers, Common, Out, RunName
from onward.errors import InvalidInput
from onward.model.answer import Verdict
from onward.operations.requests import AnswerGate, GetRun


async def answer(
    run: RunName,
    choice: Annotated[
        str | None,
        Parameter(help="The choice: its key, its label, or the node it leads to; or the words asked for."),
    ] = None,
    /,
    *,
    approve: Annotated[bool, Parameter(help="Say yes, whatever the gate calls it.")] = False,
    reject: Annotated[
        bool, Parameter(help="Say no. Where no edge takes that, the run fails as rejected.")
    ] = False,
    gate: Annotated[str | None, Parameter(help="The gate, if several are open.")] = None,
    text: Annotated[str, Parameter(help="Words for the run, beside the choice.", show_default=False)] = "",
    go_on: Annotated[
        bool, Parameter(name="--run", negative="--no-run", help="Go on with the run, or only decide.")
    ] = True,
    answers: Answers = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Answer a run's open gate and continue the run. Without an answer: show the question, and ask."""
    verdict = _verdict(choice, approve=approve, reject=reject)
    asking = AnswerGate(run=run, gate=gate, choice=choice or "", text=text, verdict=verdict)
    async with foreground(common, out, answers) as desk:
        if choice is None and verdict is None and not text:
            asked = await desk.execution.ask(asking)
            if asked is None:
                desk.tell(await desk.operations.look.get_run(GetRun(run=run)))
                return UNFINISHED
            asking = asked
        if go_on:
            return desk.finish(await desk.execution.answer_gate(asking))
        desk.tell(await desk.operations.decide.answer_gate(asking))
        return FINE


def _verdict(choice: str | None, *, approve: bool, reject: bool) -> Verdict | None:
    given = [name for name, is_given in (("--approve", approve), ("--reject", reject)) if is_given]
    if choice is not None:
        given.append(f"the choice {choice!r}")
    if len(given) > 1:
        raise InvalidInput(f"{' and '.join(given)} contradict each other; say one.")
    if not (approve or reject):
        return None
    return Verdict.APPROVE if approve else Verdict.REJECT
