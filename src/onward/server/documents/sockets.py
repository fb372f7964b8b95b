"""`/ws`: live events of one chat for document 000 (`?chatId=`), and of all workflows for document 004.

Read-only: messages of clients are ignored. A client that connects first gets the current state, then
events; each message is one JSON object. The frames come from the server's hub, and end as all streams
do: when the server drains, when the client is too slow, or when its credential is no longer valid.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.websockets import WebSocketDisconnect

from onward.errors import ChatNotFound, InvalidInput, RunNotFound
from onward.model.ids import EXACT
from onward.operations.http import VIEWER
from onward.operations.requests import ListRuns, ShowChat
from onward.server.api import known_parameters, look
from onward.server.documents.agent_feed import AgentFeed, ChatWords
from onward.server.documents.agent_paths import agent_nodes
from onward.server.documents.workflows import WorkflowFeed
from onward.server.feeds.room import Told, follow
from onward.server.feeds.socket import CODES
from onward.server.feeds.wants import Events, Feed, Messages
from onward.server.place import Socket

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

    from onward.replies.chats import ChatPage, ChatRunShown
    from onward.replies.runs import RunListed
    from onward.server.context import Context
    from onward.server.feeds.frames import Frame
    from onward.server.place import Asked

RUNS_SHOWN, MESSAGES_SHOWN = 10, 50
UNFINISHED = ("queued", "running", "waiting", "paused", "interrupted")
POSITION_DIGITS_MAX = 18


def places(context: Context) -> list[Socket]:
    """The socket of both documents."""
    return [Socket("/ws", VIEWER, serve)]


async def serve(asked: Asked, socket: WebSocket) -> None:
    """Send events until the client disconnects or the stream ends."""
    given = known_parameters(asked, ("chatId", "after"))
    if "after" in given and "chatId" not in given:
        raise InvalidInput("`after` is a position in a chat; name the chat with `chatId`.")
    after = _position(given["after"]) if "after" in given else None
    async with follow(asked) as told:
        chat = given.get("chatId")
        messages = _workflows(asked, told) if chat is None else _Chat(asked, told, chat, after).messages()
        await socket.accept()
        await _send(told, socket, messages)


def _position(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= POSITION_DIGITS_MAX):
        raise InvalidInput("after is not a whole number of at least 0.")
    return int(text)


async def _send(told: Told, socket: WebSocket, messages: AsyncIterator[Any]) -> None:
    hearing = asyncio.create_task(_wait_for_end(told, socket))
    try:
        async for message in messages:
            if isinstance(message, int):
                await socket.close(message)
                return
            text = msgspec.json.encode(message).decode()
            await told.connection.write(lambda: socket.send_text(text))  # noqa: B023 - awaited here
    except (WebSocketDisconnect, RuntimeError):
        pass  # it hung up while it was written to
    finally:
        hearing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await hearing


async def _wait_for_end(told: Told, socket: WebSocket) -> None:
    """Close the stream when the client hangs up. What it sends is not heard."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
    told.connection.reader.close()


# -- document 004 ----------------------------------------------------------------------------------------
async def _workflows(asked: Asked, told: Told) -> AsyncIterator[Any]:
    """Every stopped workflow and every open approval, then what happens; last the code of the end."""
    feed = WorkflowFeed()
    await told.follow(Feed())
    async for frames in told.frames():
        for frame in frames:
            if frame.event in CODES:
                yield CODES[frame.event]
                return
            for message in await _announced(asked, feed, frame):
                yield message


async def _announced(asked: Asked, feed: WorkflowFeed, frame: Frame) -> Iterable[Any]:
    value = frame.value
    match frame.event:
        case "snapshot":
            return feed.opening(value["stopped"], value["gates"])
        case "run":
            row = await _listed(asked, value["run"])
            return () if row is None else feed.changed(row)
        case "gate" if value.get("closed"):
            feed.closed(value["run"], value["gate"])
        case "gate":
            return feed.asked(value)
    return ()


async def _listed(asked: Asked, run: str) -> RunListed | None:
    """A run as it stands; None if it was deleted since."""
    try:
        found = await look(asked, "lists.list_runs", ListRuns(run=EXACT + run))
    except RunNotFound:
        return None
    row: RunListed = found["runs"][0]
    return row


# -- document 000 ----------------------------------------------------------------------------------------
class _Chat:
    """What one page of a chat is told."""

    def __init__(self, asked: Asked, told: Told, chat: str, after: int | None) -> None:
        self._asked, self._told, self._chat, self._after = asked, told, chat, after
        self._words = ChatWords(chat)
        self._feeds: dict[str, _Redrawn] = {}
        self._is_heard = False

    async def messages(self) -> AsyncIterator[Any]:
        """The newest unfinished run as it stands, then what happens; last the code of the end."""
        await self._told.follow(Feed())  # before looking: nothing is missed between
        page = await self._page()
        if page is not None:
            await self._hear(page)
            newest = page["runs"][0] if page["runs"] else None
            if newest is not None and newest["status"] in UNFINISHED and not newest["is_dismissed"]:
                await self._follow(newest)
        async for frames in self._told.frames():
            for frame in frames:
                if frame.event in CODES:
                    yield CODES[frame.event]
                    return
                for message in await self._of(frame):
                    yield message

    async def _of(self, frame: Frame) -> Iterable[Any]:
        value = frame.value
        match frame.stream, frame.event:
            case "feed", "run" if value["chat"] == self._chat and value["run"] not in self._feeds:
                await self._found(value["run"])
            case "events", "event":
                return (
                    self._feeds[value["run"]].told(value) if value["run"] in self._feeds else self._any(value)
                )
            case "messages", "piece":
                return self._words.said(value)
        return ()

    def _any(self, value: Any) -> Iterable[Any]:
        """An event that the parent of a fork wrote belongs to the fork."""
        return [message for feed in self._feeds.values() for message in feed.inherited(value)]

    async def _found(self, run: str) -> None:
        """Follow a run of the chat that is new, or that continues."""
        page = await self._page()
        if page is None:
            return
        if not self._is_heard:
            await self._hear(page)
        shown = next((one for one in page["runs"] if one["id"] == run), None)
        if shown is not None:
            await self._follow(shown)

    async def _follow(self, run: ChatRunShown) -> None:
        names = run["planned_agents"] or await self._asked.context.reader.read(
            lambda operations: agent_nodes(operations, run["id"])
        )
        feed = AgentFeed(self._chat, run["id"], names)
        self._feeds[run["id"]] = _Redrawn(feed, run["head"])
        await self._told.follow(Events(run["id"]))

    async def _hear(self, page: ChatPage) -> None:
        """Follow what is said: what still streams from its beginning, or all after the position asked for."""
        self._is_heard = True
        after = _end_of(page) if self._after is None else self._after
        await self._told.follow(Messages(self._chat, after))

    async def _page(self) -> ChatPage | None:
        request = ShowChat(chat=self._chat, runs=RUNS_SHOWN, messages=MESSAGES_SHOWN)
        try:
            page: ChatPage = await look(self._asked, "chats.show_chat", request)
        except ChatNotFound:
            return None
        return page


def _end_of(page: ChatPage) -> int:
    """The position after which a page that knows all whole messages has to hear."""
    streaming = [one["first_position"] - 1 for one in page["messages"] if one["last_position"] is None]
    whole = [one["last_position"] for one in page["messages"] if one["last_position"] is not None]
    return min(streaming, default=max(whole, default=0))


class _Redrawn:
    """A run that a page is shown from event `head` on: what was before is told as it stands there."""

    def __init__(self, feed: AgentFeed, head: int) -> None:
        self._feed, self._head = feed, head

    def told(self, event: Any) -> Iterable[Any]:
        """What a page is sent when this has happened."""
        messages = list(self._feed.event(event))
        if self._feed.head > self._head:
            return messages
        return self._feed.redraw() if self._feed.head == self._head else ()

    def inherited(self, event: Any) -> Iterable[Any]:
        """The same for an event of the run that this one was forked from."""
        return self.told(event) if event["seq"] == self._feed.head + 1 else ()
