"""`onward calls`: the calls inside the steps of a run."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.opening.looking import look_of
from onward.cli.options import COMMON, Common, Out, RunName
from onward.cli.print.output import Output
from onward.cli.print.text import one_line, table
from onward.model.ids import called
from onward.model.limits import MICRO, shown_amount
from onward.operations.replies.steps import CallList, CallListed
from onward.operations.requests import ListCalls

ESTIMATED = "~"


async def calls(
    run: RunName,
    /,
    *,
    step: Annotated[str | None, Parameter(help="Only the calls of this step, or of this node.")] = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """List the calls inside the steps of a run: model requests, effects and recorded functions."""
    async with look_of(common) as look:
        found = await look.list_calls(ListCalls(run=run, step=step))
    if out.is_json:
        out.value(found["calls"])
        return FINE
    _tell(found, common, out)
    return FINE


def _tell(found: CallList, common: Common, out: Output) -> None:
    if not found["calls"]:
        out.say(f"run {called(found['run'])} has no recorded calls")
        return
    rows = [
        (
            one_line(call["step"]),
            one_line(call["call"]),
            str(call["try"]),
            f"{call['state']}, process gone" if call["is_gone"] else call["state"],
            "" if call["duration_s"] is None else f"{call['duration_s']:.2f} s",
            one_line(call["model"] or _what(call)),
            _tokens(call),
            _cost(call),
            one_line(_note(call), 80),
        )
        for call in found["calls"]
    ]
    for line in table(("STEP", "CALL", "TRY", "STATE", "TOOK", "MODEL", "TOKENS", "COST", "NOTE"), rows):
        out.say(line)

    if any(call["estimated"] for call in found["calls"]):
        out.say(f"{ESTIMATED} what the call had reserved, because what it cost is not known")
    if any(call["is_gone"] for call in found["calls"]):
        resume = common.command("resume", called(found["run"]))
        out.say(f"the process that made the open calls is gone; to continue the run: {resume}")


def _what(call: CallListed) -> str:
    return f"{call['type']} {call['name']}" if call["type"] == "tool" else call["type"]


def _tokens(call: CallListed) -> str:
    usage, estimated = call["usage"], call["estimated"]
    if usage is not None:
        return f"{usage['input']:,} + {usage['output']:,}"
    return "" if estimated is None else f"{ESTIMATED}{estimated['tokens']:,}"


def _cost(call: CallListed) -> str:
    estimated = call["estimated"]
    if call["cost"] is not None:
        return _dollars(call["cost"])
    return "" if estimated is None else f"{ESTIMATED}{_dollars(estimated['cost'])}"


def _dollars(amount: float) -> str:
    return shown_amount("cost", round(amount * MICRO))


def _note(call: CallListed) -> str:
    """What it was called with, what went wrong, and whether a limit kept the answer short."""
    ceiling, usage = call["shortened_to"], call["usage"]
    said = ""
    if ceiling is not None:
        is_cut = usage is not None and usage["output"] >= ceiling
        said = f"answer {'cut off' if is_cut else 'limited'} at {ceiling:,} tokens by a limit"
    return "; ".join(filter(None, (call["error"], call["about"], said)))
