"""`onward calls`: the calls inside the steps of a run."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.opening import look_of
from onward.cli.options import COMMON, Common, Out, RunName
from onward.cli.print.output import Output
from onward.cli.print.text import one_line, table
from onward.operations.kept import CallList, CallListed
from onward.operations.requests import ListCalls


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
    _tell(found, out)
    return FINE


def _tell(found: CallList, out: Output) -> None:
    if not found["calls"]:
        out.say(f"run {found['display_id']} has no recorded calls")
        return
    rows = [
        (
            one_line(call["step"]),
            one_line(call["call"]),
            str(call["try"]),
            call["state"],
            "" if call["duration_s"] is None else f"{call['duration_s']:.2f} s",
            one_line(call["model"] or call["type"]),
            _tokens(call),
            "" if call["cost"] is None else f"{call['cost']:.6f}",
            one_line(call["error"], 60),
        )
        for call in found["calls"]
    ]
    for line in table(("STEP", "CALL", "TRY", "STATE", "TOOK", "MODEL", "TOKENS", "COST", "ERROR"), rows):
        out.say(line)


def _tokens(call: CallListed) -> str:
    usage = call["usage"]
    return "" if usage is None else f"{usage['input']:,} + {usage['output']:,}"
