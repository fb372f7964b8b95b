"""`onward answer`: decide a gate, and go on."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from onward.cli.commands.start.foreground import foreground
from onward.cli.exits import FINE, UNFINISHED
from onward.cli.options import COMMON, Answers, Common, Out, RunName
from onward.errors import InvalidInput
from onward.machine.decide.requests import open_gate
from onward.model.answer import Answer, Verdict
from onward.operations.requests import AnswerGate


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
    said = _said(choice, text, approve=approve, reject=reject)
    async with foreground(common, out, answers) as desk:
        run_id, by = await desk.run_id(run), "user"
        if said.skipped:
            known = await desk.engine.journal.load(run_id)
            asked = open_gate(known.run, gate)
            if desk.interviewer is not None:
                said = await desk.engine.ask(known.run, asked, desk.interviewer)
                by, gate = desk.interviewer.name, asked.gate
            if said.skipped:
                desk.tell(await desk.state(known))
                return UNFINISHED
        if not go_on:
            asking = AnswerGate(
                run=run_id, gate=gate, by=by, choice=said.choice, text=said.text, verdict=said.verdict
            )
            desk.tell(await desk.operations.decide.answer_gate(asking))
            return FINE
        return await desk.finish(
            await desk.engine.answer(
                run_id, said, by=by, gate=gate, stop=desk.stop, interviewer=desk.interviewer
            )
        )


def _said(choice: str | None, text: str, *, approve: bool, reject: bool) -> Answer:
    """What the flags say together; nothing at all is for the interviewer to find out."""
    given = [name for name, is_given in (("--approve", approve), ("--reject", reject)) if is_given]
    if choice is not None:
        given.append(f"the choice {choice!r}")
    if len(given) > 1:
        raise InvalidInput(f"{' and '.join(given)} contradict each other; say one.")
    if approve or reject:
        return Answer(text=text, verdict=Verdict.APPROVE if approve else Verdict.REJECT)
    return Answer.skip() if choice is None and not text else Answer(choice or "", text)
