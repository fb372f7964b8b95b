"""`onward chat`: a message to a chat, and with --watch whatever follows from it, here and now."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Annotated

from cyclopts import Parameter

from onward.cli.commands.start.foreground import FINAL, Foreground, foreground
from onward.cli.exits import FAILED, FINE, UNFINISHED, exit_of
from onward.cli.options import COMMON, Answers, Common, Out, Project, Verbose
from onward.cli.print.chat import SpokenLines, sent_lines
from onward.clock import SystemClock, SystemIds
from onward.errors import ChatNotFound, InvalidInput, Refused
from onward.model.ids import called
from onward.operations.here.submission import directory_of
from onward.operations.replies.chats import MessageSent
from onward.operations.replies.runs import RunState
from onward.operations.requests import GetRun, ReadMessages, ResumeRun, SendMessage, ShowChat

STDIN = "-"
STDIN_CHARACTERS_MAX = 1_100_000
"""More than a message may have, so that a longer one is refused and not cut."""
CONTINUE = "continue"
POLL_S = 0.2
STOPPED = ("interrupted", "paused")
_OF_OUTCOME = {"gate": UNFINISHED, "asked": UNFINISHED, "limit": FAILED, "refused": FAILED}


async def chat(
    name: Annotated[str, Parameter(name="CHAT", help="The chat, by a name of your own, such as site-7.")],
    text: Annotated[
        str | None,
        Parameter(name="TEXT", help="What to say; - reads standard input.", allow_leading_hyphen=True),
    ] = None,
    /,
    *,
    fresh: Annotated[
        bool, Parameter(help="Start anew: a run that stopped or is under way is cancelled as superseded.")
    ] = False,
    resume: Annotated[
        bool, Parameter(help="Continue the run that stopped, whatever on_message says; also one that failed.")
    ] = False,
    project: Project = None,
    pipeline: Annotated[
        str | None,
        Parameter(help="The registered pipeline of a new run: NAME or NAME@VERSION.", metavar="NAME"),
    ] = None,
    key: Annotated[
        str | None, Parameter(help="A message with the same key counts once, however often you send it.")
    ] = None,
    watch: Annotated[
        bool, Parameter(help="Execute what follows here, and print what is said, until it stops.")
    ] = False,
    cwd: Annotated[
        str | None,
        Parameter(
            help="The directory that the commands of a new run work in. Default: with --watch the current "
            "one, else wherever the worker was started.",
            metavar="DIR",
        ),
    ] = None,
    answers: Answers = None,
    verbose: Verbose = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Say something in a chat: it is stored first, and then a run is resumed, steered, answered or started.

    A stopped run of the chat is resumed; a message that finds one under way waits for it, or steers it if the
    pipeline says so; one that finds a gate answers it or shows it. Else a run of a registered pipeline starts
    (docs/chats.md). Without --watch a worker executes it.
    """
    if cwd is not None or watch:
        cwd = directory_of(cwd, is_here=watch)
    asking = SendMessage(
        chat=name,
        text=_text(text, resume=resume),
        fresh=fresh,
        resume=resume,
        project=project,
        pipeline=pipeline,
        key=SystemIds().unique() if key is None else key,
        workdir=cwd,
    )
    async with foreground(common, out, answers, makes_database=True, verbose=verbose) as desk:
        if text is None:
            await _check_resumable(desk, name)
        sent = await desk.operations.chats.send_message(asking)
        if not watch:
            return _tell(desk, sent)
        return await _watched(desk, asking, sent)


def _text(text: str | None, *, resume: bool) -> str:
    if text == STDIN:
        said = sys.stdin.read(STDIN_CHARACTERS_MAX)
        # Blanks at its end do not count, but what was not read might be more.
        return said if len(said) == STDIN_CHARACTERS_MAX else said.strip()
    if text is None and not resume:
        raise InvalidInput('say something, as in `onward chat site-7 "build me a landing page"`.')
    return CONTINUE if text is None else text


async def _check_resumable(desk: Foreground, chat: str) -> None:
    """Refuse to continue nothing: nobody has said what a new run should do."""
    try:
        page = await desk.operations.chats.show_chat(ShowChat(chat=chat, messages=0))
    except ChatNotFound:
        page = None
    if page is None or all(run["status"] in FINAL for run in page["runs"]):
        raise Refused("nothing_to_resume", f"chat {chat} has no run to resume; say what to do instead.")


def _tell(desk: Foreground, sent: MessageSent) -> int:
    """Say what became of a message, and what to type next."""
    for line in sent_lines(sent, desk.common):
        desk.out.say(line)
    run = sent["run"]
    if run is not None and run["waiting_for"]:
        desk.out.note(run["waiting_for"]["says"])
    if desk.out.is_json:
        desk.out.value(sent)
    return _OF_OUTCOME.get(sent["outcome"], FINE)


async def _watched(desk: Foreground, asking: SendMessage, sent: MessageSent) -> int:
    """Execute what follows from a message here, until its run stops."""
    is_repeat = sent["is_repeat"]
    async with _listening(desk, asking.chat, sent["message"]):
        sent = await _its_turn(desk, asking, sent)
        sent["is_repeat"] = is_repeat  # asking what became of it is no sending
        run = sent["run"]
        if sent["outcome"] == "queued":
            _tell(desk, sent)
            return UNFINISHED
        if run is None or sent["outcome"] in _OF_OUTCOME or sent["outcome"] == "steered":
            return _tell(desk, sent)
        if not desk.out.is_json:
            for line in sent_lines(sent, None):
                desk.out.say(line)
        ended = await _executed(desk, run["id"])
    desk.progress.close()
    if desk.out.is_json:
        again = await desk.operations.chats.send_message(asking)
        again["is_repeat"] = is_repeat
        desk.out.value(again)
    else:
        desk.tell(ended)
    return exit_of(ended["status"])


async def _executed(desk: Foreground, run_id: str) -> RunState:
    """A run that is queued, executed here until it stops, unless a worker was faster.

    One that has stopped stays so: the message that started it was dealt with.
    """
    try:
        found = await desk.operations.look.get_run(GetRun(run=run_id))
        if found["status"] == "queued":
            return await desk.execution.resume_run(ResumeRun(run=run_id))
        if found["status"] != "running":
            return await desk.execution.attend_run(GetRun(run=run_id))
    except Refused as refusal:
        if refusal.code not in ("occupied", "invalid_state"):
            raise
    return await desk.execution.wait_run(GetRun(run=run_id))


async def _its_turn(desk: Foreground, asking: SendMessage, sent: MessageSent) -> MessageSent:
    """Wait until a message has its turn. Under its key it is asked about again and again, and sent once."""
    clock, asked = SystemClock(), asyncio.Event()
    desk.stop.listen(asked.set)
    if sent["outcome"] == "queued":
        desk.out.say(sent["notice"])
    told = ""
    while sent["outcome"] == "queued" and not asked.is_set():
        missing = await _what_is_missing(desk, sent)
        if missing not in ("", told):
            desk.out.note(missing)
        told = missing
        if sent["is_being_read"] and sent["behind"] is not None:
            await _executed(desk, sent["behind"])
        else:
            await clock.wait_s(POLL_S, asked)
        sent = await desk.operations.chats.send_message(asking)
    desk.stop.unlisten(asked.set)
    return sent


async def _what_is_missing(desk: Foreground, sent: MessageSent) -> str:
    """What has to happen before the run continues that a message waits for; nothing if it is at work."""
    if sent["behind"] is None or sent["is_being_read"]:
        return ""
    run = await desk.operations.look.get_run(GetRun(run=sent["behind"]))
    name, command = called(run["id"]), desk.common.command
    if run["waiting_for"]:
        return run["waiting_for"]["says"]
    if run["status"] == "waiting":
        return f"run {name} waits for an answer: {command('answer', name)}"
    if run["status"] in STOPPED:
        resume, dismiss = command("resume", name), command("dismiss", name)
        return f"run {name} is {run['status']}; continue it with {resume}, or leave it with {dismiss}"
    return ""


@asynccontextmanager
async def _listening(desk: Foreground, chat: str, message: str) -> AsyncIterator[None]:
    """Print what is said in a chat after a message, whole messages at a time, while the block lasts."""
    page = await desk.operations.chats.show_chat(ShowChat(chat=chat))
    after = next((one["last_position"] or 0 for one in page["messages"] if one["id"] == message), 0)
    stop, lines = asyncio.Event(), SpokenLines()

    async def listen() -> None:
        request = ReadMessages(of=chat, after=after, follow=True)
        async with aclosing(desk.operations.messages.read_messages(request, stop=stop)) as found:
            async for piece in found:
                for line in lines.of(piece):
                    desk.out.say(line)

    listening = None if desk.out.is_json else asyncio.create_task(listen())
    try:
        yield
    finally:
        stop.set()
        if listening is not None:
            await asyncio.wait([listening])
            if not listening.cancelled() and (error := listening.exception()) is not None:
                desk.out.note(f"what is said could not be read: {error}")
