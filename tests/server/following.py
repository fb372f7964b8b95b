"""Clients of streams without sockets: what came, frame by frame, and whether anything is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from onward.clock import Clock, SystemClock
from onward.operations.local.lists import LocalLists
from onward.operations.local.look import LocalLook
from onward.server.feeds.hub import Hub
from onward.server.feeds.room import open_streams
from onward.server.feeds.streams import Streams
from onward.server.feeds.thread import HubThread
from onward.server.feeds.topics import Reading
from onward.store.port.store import Store
from tests.server.door import HOST, Door, door_of
from tests.world import Process, World, in_memory

PATIENCE_S = 30.0


class Came(msgspec.Struct):
    """A frame as a client sees it."""

    event: str
    id: int | None = None
    data: Any = None
    stream: str = ""
    run: str | None = None


def parsed(text: str) -> list[Came]:
    """The frames of an event stream, without its comments and its `retry`."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "event" in fields:
            id = int(fields["id"]) if "id" in fields else None
            found.append(Came(fields["event"], id, msgspec.json.decode(fields["data"])))
    return found


@dataclass
class Client:
    """One connection. While `reads` is clear, nothing arrives, as with a client that has stalled."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: str = ""
    came: list[Came] = field(default_factory=list)
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    code: int | None = None
    writes: int = 0
    task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        assert self.task is not None
        return self.task.done()

    def is_cut(self, server: Following) -> bool:
        """Whether the server has given it up; the client may not know yet."""
        return any(one.reader.is_over for one in server.streams.open_now)

    def names(self) -> list[str]:
        return [one.event for one in self.came]

    def ids(self, event: str | None = None) -> list[int]:
        return [one.id for one in self.came if one.id is not None and event in (None, one.event)]

    def of(self, event: str) -> list[Any]:
        return [one.data for one in self.came if one.event == event]

    @property
    def last(self) -> int:
        """The cursor to come back with."""
        return self.ids()[-1] if self.ids() else 0

    async def until(self, event: str, times: int = 1) -> Any:
        """The data of the frame of this name, when it has come so many times."""
        async with asyncio.timeout(PATIENCE_S):
            while len(found := self.of(event)) < times:
                assert not self.is_over, self.names()
                self.moved.clear()
                await self.moved.wait()
        return found[times - 1]

    async def until_id(self, id: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.last < id:
                assert not self.is_over, self.names()
                self.moved.clear()
                await self.moved.wait()

    async def ended(self) -> list[str]:
        """The names of all frames, when the server has ended the connection."""
        assert self.task is not None
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.shield(self.task)
        return self.names()

    async def hang_up(self) -> None:
        """Go away."""
        self.gone.set()
        self.reads.set()
        assert self.task is not None
        async with asyncio.timeout(PATIENCE_S):
            await self.task

    def add(self, text: str) -> None:
        self.raw += text
        whole, _, _ = self.raw.rpartition("\n\n")
        self.came = parsed(whole)
        self.moved.set()


@dataclass
class Following:
    """A server with streams."""

    door: Door
    streams: Streams
    hub: Hub
    clients: list[Client] = field(default_factory=list)

    @property
    def store(self) -> Store:
        return self.door.process.store

    async def follow(
        self, path: str, *, role: str = "viewer", headers: Mapping[str, str] | None = None, reads: bool = True
    ) -> Client:
        """Ask for an event stream."""
        given = {"accept": "text/event-stream", **(headers or {})}
        scope = await self._scope(path, role, given)
        client = self._client(reads)

        coming = [True]

        async def receive() -> dict[str, Any]:
            if coming:
                coming.pop()
                return {"type": "http.request", "body": b"", "more_body": False}
            await client.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                client.status = message["status"]
                client.headers = {name.decode(): value.decode() for name, value in message["headers"]}
                return
            await client.reads.wait()
            client.writes += bool(message.get("body"))
            client.add(message.get("body", b"").decode())

        client.task = asyncio.create_task(self.door.app(scope, receive, send))
        return client

    async def live(self, query: str, *, role: str = "viewer", reads: bool = True) -> Client:
        """Open a live socket."""
        scope = await self._scope(f"/api/live?{query}", role, {})
        scope |= {"type": "websocket", "scheme": "ws", "subprotocols": []}
        scope["extensions"] = {"websocket.http.response": {}}
        client = self._client(reads)
        connected = [True]

        async def receive() -> dict[str, Any]:
            if connected:
                connected.pop()
                return {"type": "websocket.connect"}
            await client.gone.wait()
            return {"type": "websocket.disconnect", "code": 1000}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "websocket.accept":
                client.status = 101
            elif message["type"] == "websocket.http.response.start":
                client.status = message["status"]
            elif message["type"] == "websocket.close":
                client.code = message["code"]
            elif message["type"] == "websocket.send":
                await client.reads.wait()
                client.writes += 1
                client.came += msgspec.json.decode(message["text"], type=list[Came])
                client.moved.set()

        client.task = asyncio.create_task(self.door.app(scope, receive, send))
        return client

    def _client(self, reads: bool) -> Client:
        client = Client()
        if reads:
            client.reads.set()
        self.clients.append(client)
        return client

    async def _scope(self, path: str, role: str, headers: Mapping[str, str]) -> dict[str, Any]:
        place, _, query = path.partition("?")
        given = {"host": HOST, "authorization": f"Bearer {await self.door.token(role)}", **headers}
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": place,
            "raw_path": place.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8765),
        }


def hub_at(store: Store, look: LocalLook, clock: Clock) -> Hub:
    """A hub in this loop."""
    return Hub(Reading(store, look, LocalLists(store)), clock)


@asynccontextmanager
async def following(
    world: World, process: Process | None = None, **settings: Any
) -> AsyncIterator[Following]:
    """A server at this database, with streams; its hub looks in real time, and all else when told.

    The hub reads with `process`, if there is one.
    """
    door = await door_of(world, **settings)
    reads = process or door.process
    engine = reads.engine
    look = LocalLook(reads.store, reads.clock, lambda: engine.leftovers, lambda: engine.sources)
    hub = await hub_at(reads.store, look, SystemClock()).begin()
    found = Following(door, open_streams(door.context, HubThread(hub, clock=SystemClock())), hub)
    try:
        yield found
    finally:
        for client in found.clients:
            client.gone.set()
            client.reads.set()
        await asyncio.gather(*(one.task for one in found.clients if one.task), return_exceptions=True)
        await found.streams.close()


@asynccontextmanager
async def followed(**settings: Any) -> AsyncIterator[Following]:
    """The same in memory."""
    async with in_memory() as world, following(world, **settings) as found:
        yield found


def assert_contiguous(ids: Sequence[int], after: int = 0) -> None:
    """Fail unless these are all numbers that come after `after`, each once, in their order."""
    assert list(ids) == list(range(after + 1, after + 1 + len(ids))), f"a gap or a repeat after {after}"
