"""What commands that decide do against a server (`--server`): they ask it, and say what it replied.

Nothing is executed here: the server's worker does that. A command that follows a run prints what the server
says of it until it stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from onward.cli.operations import remote_of, server_of
from onward.cli.output import FINE, Output, exit_of
from onward.cli.print.run import gate_lines, next_command, summary
from onward.cli.signals import on_signals
from onward.clock import SystemClock
from onward.errors import OnwardError, RunNotFound
from onward.model.ids import called
from onward.model.run import RunStatus
from onward.operations.requests import AnswerGate, GetRun, ReadMessages, ResumeRun, SendMessage, ShowChat

if TYPE_CHECKING:
    from onward.cli.options import Common
    from onward.operations.protocol import Operations
    from onward.replies.chats import MessageSent
    from onward.replies.runs import RunState

POLL_S = 0.5
GOING = ("queued", "running")


class WorkflowNotFound(OnwardError):
    """The server has no run of this name."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        super().__init__(f"Workflow not found: the server has no run {wanted[:80]!r}.")


class Desk(msgspec.Struct, frozen=True):
    """A server that a command asks, and where it prints."""

    operations: Operations
    common: Common
    out: Output

    def tell(self, run: RunState) -> None:
        """How a run stands, and what to type next."""
        self.out.say(summary(run))
        if run["waiting_for"]:
            self.out.note(run["waiting_for"]["says"])
        for gate in run["gates"] if run["status"] == "waiting" else ():
            if gate["decided"] is None:
                for line in gate_lines(gate):
                    self.out.say(f"  {line}")
        ahead = next_command(run, self.common)
        if ahead:
            self.out.say(f"continue with: {ahead}")
        if self.out.is_json:
            self.out.value(run)

    async def state(self, run: str) -> RunState:
        """The run as it stands."""
        return await self.operations.look.get_run(GetRun(run=run))

    async def stopped(self, run: RunState, timeout_s: float | None = None) -> RunState:
        """The run when it stands still, or as it is when the time is over or a signal came."""
        clock, asked = SystemClock(), asyncio.Event()
        until_s = None if timeout_s is None else clock.awake_s() + timeout_s
        with on_signals(asked.set):
            while run["status"] in GOING and not asked.is_set():
                left_s = POLL_S if until_s is None else until_s - clock.awake_s()
                if left_s <= 0:
                    break
                await clock.wait_s(min(POLL_S, left_s), asked)
                run = await self.state(run["id"])
        return run


@asynccontextmanager
async def desk_of(common: Common, out: Output) -> AsyncIterator[Desk | None]:
    """The server that the flags name; None if they name none."""
    place = server_of(common)
    if place is None:
        yield None
        return
    async with remote_of(common, place) as operations:
        try:
            yield Desk(operations, common, out)
        except RunNotFound as error:
            raise WorkflowNotFound(getattr(error, "wanted", str(error))) from None


async def resume(desk: Desk, asking: ResumeRun) -> int:
    """Let a run continue on the server; document 004's words."""
    run = await desk.operations.decide.resume_run(asking)
    if run["notice"]:
        desk.out.note(run["notice"])
    if run["status"] == RunStatus.CANCELLED:
        desk.tell(run)
        return FINE
    desk.out.say(f"Workflow {run['id']} resumed")
    if desk.out.is_json:
        desk.out.value(run)
    return FINE


async def answer(desk: Desk, asking: AnswerGate) -> int:
    """Decide a gate on the server; without an answer, show the open ones."""
    if not asking.choice and asking.verdict is None and not asking.text:
        run = await desk.state(asking.run)
        desk.tell(run)
        return exit_of(run["status"])
    run = await desk.operations.decide.answer_gate(asking)
    desk.out.say(f"run {called(run['id'])} has the answer and continues")
    if desk.out.is_json:
        desk.out.value(run)
    return FINE


async def watch_message(desk: Desk, asking: SendMessage, sent: MessageSent) -> int:
    """Print what follows from a message until its run stands still; the server executes it."""
    from onward.cli.commands.chat import SpokenLines

    run = sent["run"]
    if run is None:
        return FINE
    page = await desk.operations.chats.show_chat(ShowChat(chat=asking.chat))
    after = next((one["last_position"] or 0 for one in page["messages"] if one["id"] == sent["message"]), 0)
    stop, lines = asyncio.Event(), SpokenLines()

    async def listen() -> None:
        request = ReadMessages(of=asking.chat, after=after, follow=True)
        async with aclosing(desk.operations.messages.read_messages(request, stop=stop)) as found:
            async for piece in found:
                for line in () if desk.out.is_json else lines.of(piece):
                    desk.out.say(line)

    listening = asyncio.create_task(listen())
    try:
        ended = await desk.stopped(await desk.state(run["id"]))
    finally:
        stop.set()
        await asyncio.wait([listening])
    if (error := listening.exception()) is not None:
        desk.out.note(f"messages could not be read: {error}")
    desk.tell(ended)
    return exit_of(ended["status"])
