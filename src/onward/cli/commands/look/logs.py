"""`onward logs`: what the steps of a run printed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.numbers import number
from onward.cli.opening.looking import logs_of
from onward.cli.options import COMMON, Common, Out, RunName, StepName
from onward.cli.print.output import Output
from onward.cli.print.text import visible
from onward.cli.signals import on_signals
from onward.model.values import ATTEMPT
from onward.operations.here.replies import LogPiece
from onward.operations.here.requests import ReadLogs

NOTHING = (
    "nothing that was printed is kept here. The output of commands and agents is kept on the machine where "
    "they ran; the log has the last lines of attempts that failed. What Python handlers print is not kept: "
    "they write `step.log(text)`, and `onward show` prints it."
)


async def logs(
    run: RunName,
    step: StepName | None = None,
    /,
    *,
    attempt: Annotated[int | None, number(ATTEMPT, help="Only this attempt of each step.")] = None,
    follow: Annotated[
        bool, Parameter(name=("--follow", "-f"), help="Continue with what is printed, until the run stops.")
    ] = False,
    stdout: Annotated[bool, Parameter(help="Only standard output.")] = False,
    stderr: Annotated[bool, Parameter(help="Only standard error.")] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Print what the commands and agents of a run printed: of all its steps or one, of all attempts or one.

    With the run's files on this machine that is the whole output. Without them the log has the last lines of
    attempts that failed or were stopped, and the tracebacks of handlers. A line before each part says what it
    is; if a step is named, that line goes to standard error.

    What Python handlers print goes to the terminal of their process and is not kept. `step.log(text)` is:
    `onward show` prints it.
    """
    streams = tuple(name for name, is_wanted in (("stdout", stdout), ("stderr", stderr)) if is_wanted)
    request = ReadLogs(run=run, step=step, attempt=attempt, follow=follow, streams=streams)
    asked, page = asyncio.Event(), _Page(out, is_one_step=step is not None)
    async with logs_of(common) as reader, aclosing(reader.read_logs(request, stop=asked)) as found:
        with on_signals(asked.set):
            async for piece in found:
                page.add(piece)
                if out.is_gone:
                    break
    page.close()
    return FINE


class _Page:
    """Prints pieces of output, with a heading before those of another try or stream."""

    def __init__(self, out: Output, *, is_one_step: bool) -> None:
        self._out = out
        self._tell = out.note if is_one_step else out.say
        self._heading = ""
        self._is_at_start = True

    def add(self, piece: LogPiece) -> None:
        if self._out.is_json:
            self._out.value(piece)
            self._heading = "-"
            return
        heading = _heading(piece)
        if heading != self._heading:
            self._end_line()
            self._tell(f"==> {heading} <==")
            self._heading = heading
        text = piece["text"]
        if self._out.is_live:
            self._out.say(visible(text), end="")
        else:
            self._out.raw(text.encode())
        self._is_at_start = text.endswith("\n")

    def close(self) -> None:
        self._end_line()
        if not self._heading:
            self._out.note(NOTHING)

    def _end_line(self) -> None:
        if not self._is_at_start:
            self._out.say()
            self._is_at_start = True


def _heading(piece: LogPiece) -> str:
    again = f", try {piece['number']}" if piece["number"] > 1 else ""
    what = piece["stream"]
    if piece["source"] == "log" and what in ("stdout", "stderr"):
        what = "last lines, from the log"
    return f"{piece['step']}, attempt {piece['attempt']}{again}: {what}"
