"""A server without sockets: the whole application, its credentials, and a client that speaks ASGI to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from onward.clock import new_secret
from onward.model.settings import DEFAULT_CHATS
from onward.operations.local.access import Access
from onward.operations.local.operations import LocalOperations
from onward.server.app import ROOMS, App, Room, make_app
from onward.server.context import Context
from onward.server.hosts import hosts_of
from onward.server.reading import LoopReader
from onward.server.settings import ServeSettings
from onward.testing.clock import ManualClock, SeededIds
from tests.world import Process, World, in_memory, line

HOST = "127.0.0.1:8765"
SOURCE = line("write", "check")
ADMIN = "admin"


@dataclass
class Reply:
    """What came back."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name.lower()]
        return found[0] if found else None

    @property
    def code(self) -> str | None:
        """The code of a problem."""
        kind = self.header("content-type")
        return self.json["code"] if kind == "application/problem+json" else None


@dataclass
class Door:
    """One server and the tokens of whoever asks it, by the role that they are named after."""

    app: App
    context: Context
    process: Process
    access: Access
    tokens: dict[str, str] = field(default_factory=dict)

    async def token(self, *roles: str, **how: Any) -> str:
        """A token with these roles; one for each set of them."""
        name = "-".join(roles) + "".join(how)
        if name not in self.tokens:
            self.tokens[name] = (await self.access.make_token(name, roles, **how)).text
        return self.tokens[name]

    async def expired(self) -> str:
        """A token whose time is over."""
        if "expired" not in self.tokens:
            until_us = self.context.clock.now_us() - 1
            made = await self.access.make_token("expired", [ADMIN], expires_at_us=until_us)
            self.tokens["expired"] = made.text
        return self.tokens["expired"]

    async def revoked(self) -> str:
        """A token that was revoked."""
        if "revoked" not in self.tokens:
            made = await self.access.make_token("revoked", [ADMIN])
            await self.context.store.principals.revoke(made.principal.id, at_us=self.context.clock.now_us())
            self.tokens["revoked"] = made.text
        return self.tokens["revoked"]

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        role: str | None = ADMIN,
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        raw: bytes | None = None,
    ) -> Reply:
        """Ask as somebody with this role; a header that is given replaces the usual one, and "" omits it."""
        given = list(headers.items() if isinstance(headers, Mapping) else headers)
        usual = {"host": HOST}
        if role is not None:
            usual["authorization"] = f"Bearer {await self.token(role)}"
        content = raw if raw is not None else (b"" if body is None else msgspec.json.encode(body))
        if content:
            usual |= {"content-type": "application/json", "content-length": str(len(content))}
        named = {name.lower() for name, _ in given}
        sent = [(name, value) for name, value in usual.items() if name not in named]
        sent += [(name.lower(), value) for name, value in given if value]
        return await exchange(self.app, method, path, sent, content)

    async def get(self, path: str, **how: Any) -> Reply:
        return await self.ask("GET", path, **how)

    async def post(self, path: str, body: Any = None, **how: Any) -> Reply:
        return await self.ask("POST", path, {} if body is None else body, **how)


async def exchange(
    app: Any, method: str, path: str, headers: Sequence[tuple[str, str]], content: bytes | None = b""
) -> Reply:
    """One request as ASGI has it, and the whole reply. Without content, the client hangs up instead."""
    place, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": place,
        "raw_path": place.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8765),
    }
    coming: list[dict[str, Any]] = [{"type": "http.request", "body": content, "more_body": False}]
    if content is None:
        coming = [{"type": "http.disconnect"}]
    sent: list[dict[str, Any]] = []
    never = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if coming:
            return coming.pop()
        await never.wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    body = b"".join(message.get("body", b"") for message in sent[1:])
    decoded = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in start["headers"]]
    return Reply(start["status"], decoded, body)


async def handshake(
    door: Door, path: str, *, role: str | None = ADMIN, headers: Sequence[tuple[str, str]] = ()
) -> Reply:
    """The handshake of a WebSocket: status 101 if it was accepted, else the refusal."""
    usual = {"host": HOST}
    if role is not None:
        usual["authorization"] = f"Bearer {await door.token(role)}"
    named = {name for name, _ in headers}
    sent = [(name, value) for name, value in usual.items() if name not in named]
    sent += [(name, value) for name, value in headers if value]
    place, _, query = path.partition("?")
    scope = {
        "type": "websocket",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "ws",
        "path": place,
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in sent],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8765),
        "subprotocols": [],
        "extensions": {"websocket.http.response": {}},
    }
    coming: list[dict[str, Any]] = [
        {"type": "websocket.disconnect", "code": 1001},
        {"type": "websocket.connect"},
    ]
    told: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return coming.pop() if coming else {"type": "websocket.disconnect", "code": 1001}

    async def send(message: Any) -> None:
        told.append(message)

    await door.app(scope, receive, send)
    if told[0]["type"] != "websocket.http.response.start":
        return Reply(101, [], b"")
    decoded = [(name.decode().lower(), value.decode()) for name, value in told[0]["headers"]]
    return Reply(told[0]["status"], decoded, b"".join(one.get("body", b"") for one in told[1:]))


async def door_of(
    world: World, rooms: Sequence[Room] = ROOMS, process: Process | None = None, **settings: Any
) -> Door:
    """A server at a database, or in a process; its clock moves when told."""
    process = process or await world.process(clock=ManualClock(autojump=False))
    operations = LocalOperations(process.engine, process.clock, DEFAULT_CHATS)
    how = ServeSettings(**{"requests": 10_000.0, "burst": 10_000, "creations": 10_000.0, **settings})
    context = Context(
        operations=operations,
        reader=LoopReader(operations),
        store=process.store,
        clock=process.clock,
        ids=SeededIds(1_000),
        settings=how,
    )
    app = make_app(context, hosts_of(how, how.port), rooms)
    access = Access(process.store, process.clock, SeededIds(2_000), new_secret)
    return Door(app, context, process, access)


@asynccontextmanager
async def a_door(**settings: Any) -> AsyncIterator[Door]:
    """A server in memory."""
    async with in_memory() as world:
        yield await door_of(world, **settings)
