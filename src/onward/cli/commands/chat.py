"""`onward chat` and `chats`: a message to a chat and what follows from it, and which chats there are.

With --watch, whatever follows from a message happens here and now. A chat is shown as a person reads it: what
became of a message, what is said, and which runs there are.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from onward.cli.commands import remote
from onward.cli.commands.foreground import FINAL, Foreground, foreground
from onward.cli.operations import server_of
from onward.cli.options import COMMON, Answers, Common, Out, Project, Verbose, number
from onward.cli.output import FAILED, FINE, UNFINISHED, Output, clean, exit_of, one_line, table
from onward.cli.print.run import gate_lines, status_words, when
from onward.cli.print.speech import WHO, spoken_lines
from onward.clock import SystemClock, SystemIds
from onward.errors import ChatNotFound, InvalidInput, Refused
from onward.model.ids import called, node_of, place_of
from onward.model.values import LIMIT
from onward.operations.here.submission import directory_of
from onward.operations.requests import GetRun, ListChats, ReadMessages, ResumeRun, SendMessage, ShowChat

if TYPE_CHECKING:
    from onward.operations.protocol import ChatOperations, Operations
    from onward.replies import chats as chat_shapes
    from onward.replies.runs import RunState

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
        Parameter(name="TEXT", help="The message; - reads standard input.", allow_leading_hyphen=True),
    ] = None,
    /,
    *,
    fresh: Annotated[
        bool,
        Parameter(help="Start over: a run that has stopped or is in progress is cancelled as superseded."),
    ] = False,
    resume: Annotated[
        bool,
        Parameter(
            help="Resume the run that stopped, even if it failed, regardless of its on_message setting."
        ),
    ] = False,
    project: Project = None,
    pipeline: Annotated[
        str | None,
        Parameter(help="The registered pipeline of a new run: NAME or NAME@VERSION.", metavar="NAME"),
    ] = None,
    key: Annotated[
        str | None, Parameter(help="The idempotency key: messages with the same key are stored once.")
    ] = None,
    watch: Annotated[
        bool, Parameter(help="Execute the run here and print its messages, until it stops.")
    ] = False,
    cwd: Annotated[
        str | None,
        Parameter(
            help="The working directory of a new run's commands. Default: with --watch the current one, "
            "otherwise where the worker was started.",
            metavar="DIR",
        ),
    ] = None,
    answers: Answers = None,
    verbose: Verbose = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Send a message to a chat: it is stored first, then a run is resumed, steered, answered or started.

    If the chat has a stopped run, the message resumes it. If a run is in progress, the message waits for it,
    or steers it if the pipeline allows that. If a gate is open, the message answers it, or shows the
    question. Otherwise a run starts, of the registered pipeline that fits the message, or of a built-in one
    that only answers (docs/chats.md). Without --watch a worker executes the run.
    """
    if cwd is not None or (watch and server_of(common) is None):
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
    async with remote.desk_of(common, out) as server:
        if server is not None:
            return await _sent_to(server, asking, watch=watch, is_empty=text is None)
    async with foreground(common, out, answers, makes_database=True, verbose=verbose) as desk:
        if text is None:
            await _check_resumable(desk.operations, name)
        sent = await desk.operations.chats.send_message(asking)
        if not watch:
            return _tell_sent(desk, sent)
        return await _watched(desk, asking, sent)


async def _sent_to(server: remote.Desk, asking: SendMessage, *, watch: bool, is_empty: bool) -> int:
    """Send a message to a server, which executes what follows."""
    if is_empty:
        await _check_resumable(server.operations, asking.chat)
    sent = await server.operations.chats.send_message(asking)
    is_followed = watch and sent["outcome"] in ("started", "resumed", "answered")
    if not is_followed:
        return _tell_sent(server, sent)
    for line in () if server.out.is_json else sent_lines(sent, None):
        server.out.say(line)
    return await remote.watch_message(server, asking, sent)


def _text(text: str | None, *, resume: bool) -> str:
    if text == STDIN:
        said = sys.stdin.read(STDIN_CHARACTERS_MAX)
        # Blanks at its end do not count, but what was not read might be more.
        return said if len(said) == STDIN_CHARACTERS_MAX else said.strip()
    if text is None and not resume:
        raise InvalidInput('write a message, as in `onward chat site-7 "build me a landing page"`.')
    return CONTINUE if text is None else text


async def _check_resumable(operations: Operations, chat: str) -> None:
    """Refuse to continue nothing: nobody has said what a new run should do."""
    try:
        page = await operations.chats.show_chat(ShowChat(chat=chat))
    except ChatNotFound:
        page = None
    if page is None or all(run["status"] in FINAL for run in page["runs"]):
        raise Refused(
            "nothing_to_resume", f"chat {chat} has no run to resume; write a message that says what to do."
        )


def _tell_sent(
    desk: Foreground | remote.Desk, sent: chat_shapes.MessageSent, said: Collection[str] = ()
) -> int:
    """Say what became of a message, and what to type next; not what was `said` in the chat and printed."""
    for line in sent_lines(sent, desk.common):
        if line not in said:
            desk.out.say(line)
    run = sent["run"]
    if run is not None and run["waiting_for"]:
        desk.out.note(run["waiting_for"]["says"])
    if desk.out.is_json:
        desk.out.value(sent)
    return _OF_OUTCOME.get(sent["outcome"], FINE)


async def _watched(desk: Foreground, asking: SendMessage, sent: chat_shapes.MessageSent) -> int:
    """Execute what follows from a message here, until its run stops."""
    is_repeat = sent["is_repeat"]
    is_resumed = sent["outcome"] == "resumed"
    async with _listening(desk, asking.chat, sent["message"], is_resumed=is_resumed) as said:
        sent = await _its_turn(desk, asking, sent)
        sent["is_repeat"] = is_repeat  # asking what became of it is no sending
        run = sent["run"]
        if sent["outcome"] == "queued":
            _tell_sent(desk, sent)
            return UNFINISHED
        is_over = sent["outcome"] in _OF_OUTCOME or sent["outcome"] == "steered"
        ended = None
        if run is not None and not is_over:
            if not desk.out.is_json:
                for line in sent_lines(sent, None):
                    desk.out.say(line)
            ended = await _executed(desk, run["id"])
    if ended is None:
        return _tell_sent(desk, sent, said)
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


async def _its_turn(
    desk: Foreground, asking: SendMessage, sent: chat_shapes.MessageSent
) -> chat_shapes.MessageSent:
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


async def _what_is_missing(desk: Foreground, sent: chat_shapes.MessageSent) -> str:
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
        return f"run {name} is {run['status']}; continue it with {resume}, or dismiss it with {dismiss}"
    return ""


@asynccontextmanager
async def _listening(
    desk: Foreground, chat: str, message: str, *, is_resumed: bool
) -> AsyncIterator[Collection[str]]:
    """Print what is said in a chat after a message, whole messages at a time, while the block lasts.

    It yields what Onward itself said in these messages.
    """
    page = await desk.operations.chats.show_chat(ShowChat(chat=chat))
    after = next((one["last_position"] or 0 for one in page["messages"] if one["id"] == message), 0)
    # Why the run had stopped before, which is no news once it continues.
    old = {one["id"] for one in page["messages"] if one["role"] == "system"} if is_resumed else set()
    stop, lines, said = asyncio.Event(), SpokenLines(), set[str]()

    async def listen() -> None:
        request = ReadMessages(of=chat, after=after, follow=True)
        async with aclosing(desk.operations.messages.read_messages(request, stop=stop)) as found:
            async for piece in found:
                for line in () if piece["message"] in heard | old else lines.of(piece):
                    desk.out.say(line)
                    said.add(line.removeprefix(f"{WHO['system']}> "))

    heard = desk.progress.narrator.speech.known  # what is said here is shown as it comes
    listening = None if desk.out.is_json else asyncio.create_task(listen())
    try:
        yield said
    finally:
        stop.set()
        if listening is not None:
            await asyncio.wait([listening])
            if not listening.cancelled() and (error := listening.exception()) is not None:
                desk.out.note(f"messages could not be read: {error}")


CHAT_HEADINGS = ("CHAT", "PROJECT", "RUN", "STATUS", "WAITING", "SINCE")
NO_CHATS = 'no chats yet; start one with `onward chat NAME "…"`.'


async def chats(
    action: Annotated[Literal["list", "show"], Parameter(help="The action.")] = "list",
    name: Annotated[str | None, Parameter(name="CHAT", help="With show: the name of the chat.")] = None,
    /,
    *,
    limit: Annotated[int, number(LIMIT, help="How many chats to list, or runs of one to show.")] = 20,
    common: Common = COMMON,
    out: Out,
) -> int:
    """List chats, newest first, or show one: its runs, plans, stops, messages, and what is pending."""
    if (name is None) is not (action == "list"):
        raise InvalidInput("name the chat to show, as in `onward chats show site-7`; `list` takes no name.")
    async with _looking(common, out) as looking:
        if name is not None:
            page = await looking.show_chat(ShowChat(chat=name, runs=limit))
            if out.is_json:
                out.value(page)
            else:
                for line in page_lines(page, common):
                    out.say(line)
            return FINE
        found = await looking.list_chats(ListChats(limit=limit))
    if out.is_json:
        out.value(found)
    elif not found["chats"]:
        out.note(NO_CHATS)
    else:
        for line in table(CHAT_HEADINGS, [_chat_row(one) for one in found["chats"]]):
            out.say(line)
    return FINE


@asynccontextmanager
async def _looking(common: Common, out: Output) -> AsyncIterator[ChatOperations]:
    async with remote.desk_of(common, out) as server:
        if server is not None:
            yield server.operations.chats
            return
    async with foreground(common, out) as desk:
        yield desk.operations.chats


def _chat_row(one: chat_shapes.ChatListed) -> tuple[str, ...]:
    status = f"{one['status']} ({one['reason']})" if one["reason"] else one["status"] or "-"
    return (
        one_line(one["chat"]),
        one_line(one["project"] or "-"),
        called(one["run"]) if one["run"] else "-",
        status,
        str(one["waiting"]) if one["waiting"] else "-",
        when(one["created_at"]),
    )


def sent_lines(sent: chat_shapes.MessageSent, common: Common | None) -> Iterator[str]:
    """What became of a message; with the flags of a command also what to type next."""
    run, chat = sent["run"], one_line(sent["chat"])
    name = "" if run is None else called(run["id"])
    match sent["outcome"]:
        case "started" if run is not None:
            yield f"run {name}: {one_line(run['pipeline'])} starts for chat {chat} ({reading_words(run)})"
        case "resumed" if run is not None:
            yield f"run {name} of chat {chat} is resumed ({reading_words(run)})"
        case "steered":
            yield f"run {name} of chat {chat} has the message; its next agent step receives it"
        case "answered":
            yield f"run {name} of chat {chat} has the answer and continues"
        case "gate" if run is not None:
            yield f"run {name} of chat {chat} waits for an answer; send one of its choices:"
            for gate in run["gates"]:
                if gate["decided"] is None:
                    yield from (f"  {line}" for line in gate_lines(gate))
        case _:
            yield sent["notice"]
    if sent["is_repeat"]:
        yield "this message was already sent; it is not sent again"
    if common is not None and sent["outcome"] in ("started", "resumed", "answered"):
        yield f"follow it with: {common.command('messages', name, '--follow')}"


def reading_words(run: chat_shapes.ChatRunShown) -> str:
    """What the message of a run asked for, and the agents that are planned."""
    what = ", ".join(one_line(word) for word in (run["intent"], run["scope"]) if word)
    agents = ", ".join(one_line(agent) for agent in run["planned_agents"])
    return f"{what}: {agents}" if what and agents else what or agents or "no plan"


def page_lines(page: chat_shapes.ChatPage, common: Common) -> Iterator[str]:
    """A chat: its runs, what was said, what waits."""
    project = f", project {one_line(page['project'])}" if page["project"] else ""
    yield f"chat {one_line(page['chat'])}{project}"
    for run in reversed(page["runs"]):
        yield ""
        yield from _run_lines(run, common)
    if page["messages"]:
        yield ""
        for message in page["messages"]:
            yield from _message_lines(message)
    for waiting in page["waiting"]:
        yield ""
        behind = f" until run {called(waiting['behind'])} has ended" if waiting["behind"] else ""
        yield f"waits{behind}: {one_line(waiting['text'])}"


def _run_lines(run: chat_shapes.ChatRunShown, common: Common) -> Iterator[str]:
    name = called(run["id"])
    yield f"run {name}: {one_line(run['pipeline'])}, {status_words(run)}, {reading_words(run)}"
    if run["user_message"]:
        yield f"  asked    {one_line(run['user_message'])}"
    if run["agents_left"] and run["status"] not in ("completed", "cancelled"):
        yield f"  left     {', '.join(one_line(agent) for agent in run['agents_left'])}"
    if run["limit"] is not None:
        limit = run["limit"]
        yield f"  limit    {limit['scope']}: {limit['used']:,} of {limit['limit']:,} ({limit['measure']})"
        if limit["raise_to"]:
            yield f"  continue {common.command('resume', name, '--raise', limit['raise_to'])}"
    for gate in run["gates"]:
        if gate["decided"] is None:
            yield from (f"  {line}" for line in gate_lines(gate))


def _message_lines(message: chat_shapes.MessageShown) -> Iterator[str]:
    lines = clean(message["text"]).strip().splitlines()
    if not lines and message["state"] == "complete":
        return  # it only used tools
    state = "" if message["state"] == "complete" else f" [{message['state']}]"
    yield f"{_speaker(message)}{state}> {lines[0] if lines else ''}".rstrip()
    yield from (f"  {line}" for line in lines[1:])


def _speaker(said: chat_shapes.MessageShown | chat_shapes.MessagePiece) -> str:
    """Who says something: for agents, the node of their step."""
    return WHO.get(said["role"]) or one_line(node_of(place_of(said["step"])) or said["model"] or said["role"])


class SpokenLines:
    """Turns pieces of messages into lines, a whole message at a time; what users say is left out."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def of(self, piece: chat_shapes.MessagePiece) -> list[str]:
        """The lines of the message that this piece ends; else none."""
        text = self._texts.pop(piece["message"], "")
        if piece["kind"] in ("text", "reset"):
            text = piece["text"] if piece["kind"] == "reset" else text + piece["text"]
        if piece["state"] is None:
            self._texts[piece["message"]] = text
            return []
        if piece["role"] == "user" or not text.strip():
            return []
        return spoken_lines(_speaker(piece), text)
