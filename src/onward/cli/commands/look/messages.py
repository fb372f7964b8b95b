"""`onward messages`: what the models of a run say, while they say it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.numbers import number
from onward.cli.opening.looking import lists_of, messages_of
from onward.cli.options import COMMON, Common, Out
from onward.cli.print.output import Output
from onward.cli.print.text import visible
from onward.cli.signals import on_signals
from onward.model.ids import called
from onward.model.values import POSITION
from onward.operations.replies.chats import MessagePiece
from onward.operations.requests import ListRuns, ReadMessages

NOTHING = "nothing was said yet; only calls of models have messages."
GONE = "[interrupted: its process is gone]"


async def messages(
    of: Annotated[
        str, Parameter(help="A run: its display id, its id, or the beginning of either; or a chat.")
    ],
    /,
    *,
    follow: Annotated[
        bool, Parameter(name=("--follow", "-f"), help="Continue with what is said, until the run stops.")
    ] = False,
    after: Annotated[int, number(POSITION, help="Continue after this position of the chat.")] = 0,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Print what the models of a run said, or what was said in a chat, also while it grows.

    A line before each message says which it is. With --json each piece is a line with its `position`;
    --after that position continues, and nothing is lost or repeated (docs/messages.md).
    """
    request = ReadMessages(of=of, after=after, follow=follow)
    asked, page = asyncio.Event(), _Page(out)
    async with messages_of(common) as reader, aclosing(reader.read_messages(request, stop=asked)) as found:
        with on_signals(asked.set):
            async for piece in found:
                page.add(piece)
                if out.is_gone:
                    break
    page.close(await _gone(page, common))
    return FINE


async def _gone(page: _Page, common: Common) -> bool:
    """Whether the process is gone that was writing the last message, which has no end yet."""
    if not page.unfinished:
        return False
    async with lists_of(common) as lists:
        (run,) = (await lists.list_runs(ListRuns(run=page.unfinished)))["runs"]
    return run["status"] == "interrupted" and run["reason"] in ("crash", "in_doubt")


class _Page:
    """Prints pieces of messages, with a heading before those of another message."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._heading = ""
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
        heading = _heading(piece)
        if heading != self._heading or piece["kind"] == "reset":
            self._end_line()
            self._out.say(f"==> {heading} <==")
            self._heading, self._kind = heading, ""
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
            self._out.note(NOTHING)
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


def _heading(piece: MessagePiece) -> str:
    again = f", try {piece['number']}" if piece["number"] > 1 else ""
    model = f", {piece['model']}" if piece["model"] else ""
    return f"{called(piece['run'])} {piece['step']} {piece['call']}{again}{model}"
