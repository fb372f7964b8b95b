"""Chats as a person reads them: what became of a message, what is said, and which runs there are."""

from __future__ import annotations

from collections.abc import Iterator

from onward.cli.options import Common
from onward.cli.print.gates import gate_lines
from onward.cli.print.render import status_words
from onward.cli.print.text import clean, one_line
from onward.model.ids import called, node_of, place_of
from onward.operations.replies.chats import ChatPage, ChatRunShown, MessagePiece, MessageSent, MessageShown

WHO = {"user": "you", "system": "onward"}


def sent_lines(sent: MessageSent, common: Common | None) -> Iterator[str]:
    """What became of a message; with the flags of a command also what to type next."""
    run, chat = sent["run"], one_line(sent["chat"])
    name = "" if run is None else called(run["id"])
    match sent["outcome"]:
        case "started" if run is not None:
            yield f"run {name}: {one_line(run['pipeline'])} starts for chat {chat} ({reading_words(run)})"
        case "resumed" if run is not None:
            yield f"run {name} of chat {chat} is resumed ({reading_words(run)})"
        case "steered":
            yield f"run {name} of chat {chat} has the message; its next agent step takes it"
        case "answered":
            yield f"run {name} of chat {chat} has the answer and continues"
        case "gate" if run is not None:
            yield f"run {name} of chat {chat} waits for an answer; say one of its choices here:"
            for gate in run["gates"]:
                if gate["decided"] is None:
                    yield from (f"  {line}" for line in gate_lines(gate))
        case _:
            yield sent["notice"]
    if sent["is_repeat"]:
        yield "this message was sent before; it is not sent again"
    if common is not None and sent["outcome"] in ("started", "resumed", "answered"):
        yield f"follow it with: {common.command('messages', name, '--follow')}"


def reading_words(run: ChatRunShown) -> str:
    """What the message of a run asked for, and the agents that are planned."""
    what = ", ".join(one_line(word) for word in (run["intent"], run["scope"]) if word)
    agents = ", ".join(one_line(agent) for agent in run["planned_agents"])
    return f"{what}: {agents}" if what and agents else what or agents or "no plan"


def page_lines(page: ChatPage, common: Common) -> Iterator[str]:
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


def _run_lines(run: ChatRunShown, common: Common) -> Iterator[str]:
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


def _message_lines(message: MessageShown) -> Iterator[str]:
    lines = clean(message["text"]).strip().splitlines()
    if not lines and message["state"] == "complete":
        return  # it only used tools
    state = "" if message["state"] == "complete" else f" [{message['state']}]"
    yield f"{_speaker(message)}{state}> {lines[0] if lines else ''}".rstrip()
    yield from (f"  {line}" for line in lines[1:])


def _speaker(said: MessageShown | MessagePiece) -> str:
    """Who says something: for agents, the node of their step."""
    return WHO.get(said["role"]) or one_line(node_of(place_of(said["step"])) or said["model"] or said["role"])


class SpokenLines:
    """Turns pieces of messages into lines, a whole message at a time; what users say is left out."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def of(self, piece: MessagePiece) -> list[str]:
        """The lines of the message that this piece ends; else none."""
        text = self._texts.pop(piece["message"], "")
        if piece["kind"] in ("text", "reset"):
            text = piece["text"] if piece["kind"] == "reset" else text + piece["text"]
        if piece["state"] is None:
            self._texts[piece["message"]] = text
            return []
        if piece["role"] == "user" or not text.strip():
            return []
        first, *rest = clean(text).strip().splitlines()
        return [f"{_speaker(piece)}> {first}", *(f"  {line}" for line in rest)]
