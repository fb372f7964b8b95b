"""`onward answer`: decide a gate, and continue the run."""

from __future__ import annotations

import shlex
from typing import Annotated

from cyclopts import Parameter

from onward.cli.commands.start.foreground import foreground
from onward.cli.exits import FINE, exit_of
from onward.cli.opening.looking import lists_of
from onward.cli.options import COMMON, Answers, Common, Out, RunName, Verbose
from onward.cli.print.gates import gate_lines
from onward.cli.print.output import Output
from onward.cli.print.text import one_line
from onward.errors import InvalidInput, NoDatabase
from onward.model.gate import Verdict
from onward.model.ids import called
from onward.operations.replies.runs import GateListed, RunState
from onward.operations.requests import ALL, AnswerGate, GetRun, ListGates
from onward.pipeline.gate import FREEFORM


async def answer(
    run: RunName | None = None,
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
        bool,
        Parameter(
            name="--run", negative="--no-run", help="Go on with the run (the default), or only decide."
        ),
    ] = True,
    answers: Answers = None,
    verbose: Verbose = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Answer a run's open gate and continue the run. Without an answer: show the question, and ask.

    Without a run: list the open gates of all runs, with what they are about.
    """
    verdict = _verdict(choice, approve=approve, reject=reject)
    if run is None:
        if verdict is not None or gate is not None or text:
            raise InvalidInput("an answer needs its run; `onward answer` lists the runs that wait for one.")
        return await _list_open(common, out)
    asking = AnswerGate(run=run, gate=gate, choice=choice or "", text=text, verdict=verdict)
    async with foreground(common, out, answers, verbose=verbose) as desk:
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


async def _list_open(common: Common, out: Output) -> int:
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
        raise InvalidInput(f"{' and '.join(given)} contradict each other; say one.")
    if not (approve or reject):
        return None
    return Verdict.APPROVE if approve else Verdict.REJECT
