"""`onward show`, `events`, `checkpoints`, `calls` and `messages`: what happened in one run.

`calls` lists the calls inside its steps; `messages` prints what its models say, while they say it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from onward.cli.operations import lists_of, look_of, messages_of
from onward.cli.options import COMMON, Common, Out, RunName, StepName, number
from onward.cli.output import FINE, Output, local_time, one_line, table, visible
from onward.cli.print.run import instant_us, is_holder_dead, run_page, when
from onward.cli.print.speech import WHO
from onward.cli.print.step import step_page
from onward.cli.signals import on_signals
from onward.clock import SystemClock
from onward.model.ids import called
from onward.model.limits import MICRO, shown_amount
from onward.model.values import EVENT, POSITION
from onward.operations import requests

if TYPE_CHECKING:
    from onward.replies.chats import MessagePiece
    from onward.replies.steps import CallList, CallListed, Checkpoint, EventShown, RunPage, StepPage

VALUE_WIDTH = 80
ENVELOPE = ("seq", "kind", "at", "token", "run")


async def show(run: RunName, step: StepName | None = None, /, *, common: Common = COMMON, out: Out) -> int:
    """Show one run, step by step: what happened, what is unfinished, what to type next; or show one step.

    For a step: its attempts and tries, prompt, response, output, what it changed in the context, artifacts,
    and where its receipt is. A node name refers to the last visit of that node.
    """
    page: RunPage | StepPage
    async with look_of(common) as look:
        if step is None:
            page = await look.show_run(requests.ShowRun(run=run))
            lines = run_page(page, common, SystemClock().now_us())
        else:
            page = await look.show_step(requests.ShowStep(run=run, step=step))
            lines = step_page(page, common, SystemClock().now_us())
    if out.is_json:
        out.value(page)
        return FINE
    for line in lines:
        out.say(line)
    return FINE


async def events(
    run: RunName,
    /,
    *,
    follow: Annotated[
        bool, Parameter(help="Print new events as they are appended, until the run has ended.")
    ] = False,
    after: Annotated[int, number(EVENT, help="Start after this event.")] = 0,
    dialect: Annotated[
        bool, Parameter(help="Use the event names of the DOT dialect: PipelineStarted, StageCompleted …")
    ] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Print a run's log, one event per line."""
    asked = asyncio.Event()
    request = requests.ReadEvents(run=run, after=after, follow=follow, dialect=dialect)
    async with look_of(common) as look, aclosing(look.read_events(request, stop=asked)) as found:
        with on_signals(asked.set):
            async for event in found:
                _say_event(event, out)
                if out.is_gone:
                    break
    return FINE


def _say_event(event: EventShown, out: Output) -> None:
    if out.is_json:
        out.value(event)
        return
    fields = (f"{key}={_short(value)}" for key, value in event.items() if key not in ENVELOPE)
    at = local_time(instant_us(event["at"]))
    out.say(f"{event['seq']:>5}  {at}  {event['kind']:<18}  {'  '.join(fields)}".rstrip())


def _short(value: Any) -> str:
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), VALUE_WIDTH)


async def checkpoints(run: RunName, /, *, common: Common = COMMON, out: Out) -> int:
    """List a run's checkpoints: where `onward replay` can start."""
    async with look_of(common) as look:
        found = look.list_checkpoints(requests.ListCheckpoints(run=run))
        if out.is_json:
            out.value([checkpoint async for checkpoint in found])
            return FINE
        now_us = SystemClock().now_us()
        rows = [_checkpoint_row(checkpoint, now_us) async for checkpoint in found]
    for line in table(("SEQ", "WHEN", "FINISHED", "NEXT", "STEPS"), rows):
        out.say(line)
    return FINE


def _checkpoint_row(checkpoint: Checkpoint, now_us: int) -> Sequence[str]:
    return (
        str(checkpoint["seq"]),
        when(checkpoint["at"], now_us),
        checkpoint["current_node"] or "-",
        checkpoint["next_node_id"] or "-",
        str(len(checkpoint["completed_nodes"])),
    )


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
        found = await look.list_calls(requests.ListCalls(run=run, step=step, limit=requests.ALL))
    if out.is_json:
        out.value(found["calls"])
        return FINE
    _tell_calls(found, common, out)
    return FINE


def _tell_calls(found: CallList, common: Common, out: Output) -> None:
    if not found["calls"]:
        out.say(f"run {called(found['run'])} has no recorded calls")
        return
    rows = [
        (
            one_line(call["step"]),
            one_line(call["call"]),
            str(call["try"]),
            f"{call['state']}, process ended" if call["is_gone"] else call["state"],
            "" if call["duration_s"] is None else f"{call['duration_s']:.2f} s",
            one_line(call["model"] or _what(call)),
            _tokens(call),
            _cost(call),
            one_line(_call_note(call), 80),
        )
        for call in found["calls"]
    ]
    for line in table(("STEP", "CALL", "TRY", "STATE", "TOOK", "MODEL", "TOKENS", "COST", "NOTE"), rows):
        out.say(line)

    if any(call["estimated"] for call in found["calls"]):
        out.say(f"{ESTIMATED} the call's reservation, because its cost is not known")
    if any(call["is_gone"] for call in found["calls"]):
        resume = common.command("resume", called(found["run"]))
        out.say(f"the process that made the open calls has ended; to continue the run: {resume}")


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


def _call_note(call: CallListed) -> str:
    """What it was called with, what went wrong, and whether a limit kept the answer short."""
    ceiling, usage = call["shortened_to"], call["usage"]
    said = ""
    if ceiling is not None:
        is_cut = usage is not None and usage["output"] >= ceiling
        said = f"answer {'cut off' if is_cut else 'limited'} at {ceiling:,} tokens by a limit"
    return "; ".join(filter(None, (call["error"], call["note"], call["about"], said)))


NOTHING_SAID = "no messages yet; only model calls have messages."
GONE = "[interrupted: its process ended]"


async def messages(
    of: Annotated[
        str,
        Parameter(
            name="RUN|CHAT", help="A run: its id, its display id, or the beginning of either; or a chat."
        ),
    ],
    /,
    *,
    follow: Annotated[
        bool,
        Parameter(name=("--follow", "-f"), help="Print new messages as they arrive, until the run stops."),
    ] = False,
    after: Annotated[int, number(POSITION, help="Continue after this position of the chat.")] = 0,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Print the messages of a run's models, or of a chat, including unfinished ones.

    A line before each message names its author. With --json each piece is a line with its `position`; --after
    continues from a position without losing or repeating anything (docs/messages.md).
    """
    request = requests.ReadMessages(of=of, after=after, follow=follow)
    asked, page = asyncio.Event(), _MessagePage(out)
    async with messages_of(common) as reader, aclosing(reader.read_messages(request, stop=asked)) as found:
        with on_signals(asked.set):
            async for piece in found:
                page.add(piece)
                if out.is_gone:
                    break
    page.close(await _gone(page, common))
    return FINE


async def _gone(page: _MessagePage, common: Common) -> bool:
    """Whether the process is gone that was writing the last message, which has no end yet."""
    if not page.unfinished:
        return False
    async with lists_of(common) as lists:
        (run,) = (await lists.list_runs(requests.ListRuns(run=page.unfinished)))["runs"]
    return is_holder_dead(run)


class _MessagePage:
    """Prints pieces of messages, with a heading before those of another message."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._heading = self._message = ""
        self._kind = ""
        self._is_at_start = True
        self.unfinished = ""
        """The run of the last message, if that has no end."""

    def add(self, piece: MessagePiece) -> None:
        self.unfinished = piece["run"] if piece["state"] is None else ""
        if self._out.is_json:
            self._out.value(piece)
            self._heading = "-"
            return
        heading, message = _message_heading(piece), piece["message"]
        if (heading, message) != (self._heading, self._message) or piece["kind"] == "reset":
            self._end_line()
            self._out.say(f"==> {heading} <==")
            self._heading, self._message, self._kind = heading, message, ""
        for part in piece["parts"] or [{"kind": piece["kind"], "text": piece["text"]}]:
            self._part(part["kind"], part["text"])
        if piece["state"] is not None:
            self._end_line()
            if piece["state"] != "complete":
                self._out.say(f"[{piece['state']}]")
            self._kind = ""

    def close(self, is_gone: bool) -> None:
        self._end_line()
        if not self._heading:
            self._out.note(NOTHING_SAID)
        elif is_gone and not self._out.is_json:
            self._out.say(GONE)

    def _part(self, kind: str, text: str) -> None:
        if kind in ("start", "end") or not text:
            return
        is_whole = kind in ("tool_call", "tool_result")
        if kind != self._kind or is_whole:
            self._end_line()
            if kind != "text":
                self._print(f"[{kind.replace('_', ' ')}] ")
        self._kind = kind
        self._print(text)

    def _print(self, text: str) -> None:
        if self._out.is_live:
            self._out.say(visible(text), end="")
        else:
            self._out.raw(text.encode())
        self._is_at_start = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._is_at_start:
            self._out.say()
            self._is_at_start = True


def _message_heading(piece: MessagePiece) -> str:
    if piece["role"] in WHO:
        return WHO[piece["role"]]
    again = f", try {piece['number']}" if piece["number"] > 1 else ""
    model = f", {piece['model']}" if piece["model"] else ""
    return f"{called(piece['run'])} {piece['step']} {piece['call']}{again}{model}"
