"""A server at an address: every message is a POST, and its answer JSON or a stream of events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Mapping
from contextlib import suppress

from onward.agents.http import Http, Incoming, Outgoing
from onward.agents.providers import KeyMissing, Keys, TimeLimits
from onward.agents.tools.mcp import protocol as mcp
from onward.agents.tools.mcp.settings import McpServer
from onward.agents.wire import ExchangeFailed, SseReader, TooLarge
from onward.clock import Clock, TookTooLong, within

SESSION = "Mcp-Session-Id"
STREAM, WHOLE = "text/event-stream", "application/json"
GOODBYE_S = 5.0
BODY_BYTES_MAX = 4 * mcp.MESSAGE_BYTES_MAX
_VISIBLE = re.compile(r"[\x21-\x7e]{1,1024}")


class HttpChannel:
    """Sends requests to one address. The session is what the server called it at the handshake."""

    has_headers = True
    noted = ""

    def __init__(self, server: McpServer, *, keys: Keys, clock: Clock) -> None:
        self._name = f"the MCP server {server.name!r}"
        self._server, self._keys, self._clock = server, keys, clock
        self._http = Http(clock, body_bytes_max=BODY_BYTES_MAX)
        self._session = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def exchange(self, sending: mcp.OutgoingRequest, listen: mcp.Listen) -> mcp.ServerAnswer:
        """As the port says."""
        had_session = bool(self._session)
        outgoing = await self._outgoing(sending.body, sending.headers)
        try:
            async with self._http.post(outgoing) as incoming:
                if incoming.status == 404 and had_session:
                    self._session = ""
                    raise mcp.SessionLost
                if not had_session:
                    given = incoming.headers.get(SESSION.lower(), "")
                    self._session = given if _VISIBLE.fullmatch(given) else ""
                if incoming.status != 200:
                    return await self._refusal(incoming)
                return await self._answer(incoming, sending.id, listen)
        except ExchangeFailed as trouble:
            raise mcp.ServerFailed(f"{self._name} {trouble.what}", is_sent=trouble.is_sent) from None

    async def tell(self, message: bytes, headers: Mapping[str, str]) -> None:
        """As the port says."""
        try:
            async with self._http.post(await self._outgoing(message, headers)) as incoming:
                if incoming.status == 404 and self._session:
                    self._session = ""
                    raise mcp.SessionLost
                if incoming.status >= 300:
                    raise mcp.ServerFailed(f"{self._name} rejected a message ({incoming.status})")
        except ExchangeFailed as trouble:
            raise mcp.ServerFailed(f"{self._name} {trouble.what}", is_sent=trouble.is_sent) from None

    def tell_soon(self, message: bytes, headers: Mapping[str, str]) -> None:
        """As the port says."""
        self._start(self._try(self.tell(message, headers)))

    async def close(self) -> None:
        """As the port says; the server is told, if it has a session."""
        if self._session:
            await self._try(self._leave())
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.close()

    async def _leave(self) -> None:
        async with self._http.post(await self._outgoing(b"", {}, method="DELETE")):
            pass  # it may not allow that, which changes nothing

    async def _outgoing(self, body: bytes, headers: Mapping[str, str], method: str = "POST") -> Outgoing:
        sent = {"Content-Type": WHOLE, "Accept": f"{WHOLE}, {STREAM}", **headers}
        if self._session:
            sent[SESSION] = self._session
        try:
            for name, value in self._server.headers.items():
                sent[name] = await self._keys.value(value)
        except KeyMissing as missing:
            raise mcp.ServerFailed(f"{self._name} cannot be used: {missing}") from None
        limit_s = self._server.time_limit_s
        limits = TimeLimits(first_byte_s=limit_s, between_s=limit_s, total_s=max(limit_s, 86_400.0))
        assert self._server.url is not None, "a server has a command or an address"
        return Outgoing(method=method, url=self._server.url, headers=sent, body=body, limits=limits)

    async def _answer(self, incoming: Incoming, id: int, listen: mcp.Listen) -> mcp.ServerAnswer:
        kind = incoming.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (STREAM, WHOLE):
            raise mcp.ServerFailed(
                f"{self._name} answered with {mcp.plain(kind, 50) or 'no content type'}, which is not a "
                "message; check its url",
                is_sent=True,
            )
        events = SseReader(mcp.MESSAGE_BYTES_MAX)
        whole = bytearray()
        try:
            while piece := await incoming.read():
                if kind == STREAM:
                    if answer := self._find(events.feed(piece), id, listen):
                        return answer
                else:
                    whole += piece
                    if len(whole) > mcp.MESSAGE_BYTES_MAX:
                        raise TooLarge
            if answer := self._find(events.finish() if kind == STREAM else [bytes(whole)], id, listen):
                return answer
        except TooLarge:
            what = f"sent a message of more than {mcp.MESSAGE_BYTES_MAX >> 20} MiB"
            raise mcp.ServerFailed(f"{self._name} {what}", is_sent=True) from None
        except mcp.NotAMessage:
            raise mcp.ServerFailed(f"{self._name} sent an invalid message", is_sent=True) from None
        raise mcp.ServerFailed(f"{self._name} ended its response without a result", is_sent=True)

    def _find(self, bodies: list[bytes], id: int, listen: mcp.Listen) -> mcp.ServerAnswer | None:
        """The answer among the messages; the others are heard."""
        for body in bodies:
            if not body.strip():
                continue  # an event that only names a place to continue at
            for message in mcp.read_messages(body):
                if isinstance(message, mcp.ServerAnswer) and (message.id == id or _is_about_all(message)):
                    return message
                self._other(message, listen)
        return None

    def _other(self, message: mcp.Received, listen: mcp.Listen) -> None:
        if isinstance(message, mcp.ServerRequest):
            self.tell_soon(mcp.reply_to(message), {})
        elif isinstance(message, mcp.ServerNotification):
            listen(message)

    async def _refusal(self, incoming: Incoming) -> mcp.ServerAnswer:
        """What an error response says: an error of the protocol, or else a sentence about the status."""
        body = await incoming.beginning()
        with suppress(mcp.NotAMessage):
            for message in mcp.read_messages(body):
                if isinstance(message, mcp.ServerAnswer) and message.error is not None:
                    return message
        status = incoming.status
        advice = "check its headers" if status in (401, 403) else "check its url and its state"
        raise mcp.ServerFailed(
            f"{self._name} rejected the request ({status}); {advice}", is_sent=status >= 500
        )

    async def _try(self, work: Coroutine[object, object, None]) -> None:
        with suppress(mcp.ServerFailed, mcp.SessionLost, ExchangeFailed, TookTooLong):
            await within(work, GOODBYE_S, self._clock)

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_about_all(message: mcp.ServerAnswer) -> bool:
    """An error without an id is about the one request of this connection."""
    return message.id is None and message.error is not None
