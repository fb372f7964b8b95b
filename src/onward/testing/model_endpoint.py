"""An endpoint on loopback that speaks three providers' formats, plays a script, misbehaves when told.

    python -m onward.testing.model_endpoint SCRIPT.json --ledger FILE   prints its address, runs until stopped

    async with serving_model(ModelScript(...)) as endpoint:            in the process of a test
        os.environ["OPENAI_BASE_URL"] = endpoint.base_url              or ANTHROPIC_…, GOOGLE_GEMINI_…

It is made for tests: it trusts its clients, and listens on 127.0.0.1 only. A ledger has every request that it
received: in memory, and in a file that survives a kill.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from blake3 import blake3

from onward.clock import Clock, SystemClock
from onward.errors import InvalidInput
from onward.listener import LOOPBACK, listening
from onward.testing.script import ModelScript, Playing, ScriptedReply, ScriptPrompt, played, read_script
from onward.testing.wire_formats import MALFORMED, PAGE, ServerWire, error_body, error_headers, event, wire_of


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request. `is_whole`: its reply was sent to the end, as far as the endpoint can tell."""

    number: int
    at_us: int
    path: str
    model: str = ""
    body_hash: str
    body_bytes: int
    idempotency_key: str = ""
    has_key: bool = False
    """Whether a key came with it; the key itself is not kept."""
    prefix: str = ""
    """The beginning of the answer that came with it, of which the rest is asked for."""
    status: int = 0
    sent: int = 0
    """How many events of the reply were sent: its pieces, and what begins and ends it."""
    is_whole: bool = False


class RequestLedger:
    """Adds an entry when a request has come, and again when its reply has ended."""

    def __init__(self, path: str | None = None, *, told: Callable[[LedgerEntry], None] | None = None) -> None:
        self._path, self._told = path, told
        self._entries: dict[int, LedgerEntry] = {}

    @property
    def entries(self) -> list[LedgerEntry]:
        """The requests in the order in which they came, as they stand."""
        return list(self._entries.values())

    def put(self, entry: LedgerEntry) -> None:
        """Replace what is known of a request."""
        self._entries[entry.number] = entry
        if self._path is not None:
            line = msgspec.json.encode(entry) + b"\n"
            descriptor = _open_ledger(self._path)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        if self._told is not None:
            self._told(entry)


def _open_ledger(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def read_ledger(path: str) -> list[LedgerEntry]:
    """The requests in a file, each as it was last seen; none if nothing came yet."""
    if not os.path.exists(path):
        return []
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")[:-1]  # what follows the last newline is half an entry
    found = [msgspec.json.decode(line, type=LedgerEntry) for line in lines]
    return list({entry.number: entry for entry in found}.values())


HEAD_BYTES_MAX = 64 * 1024
PORT_MAX = 65_535
END = b"0\r\n\r\n"


class _Client(msgspec.Struct, frozen=True):
    """The other end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        """Send, unless the client has left: the system would take the bytes all the same."""
        if self.reader.at_eof() or self.writer.transport.is_closing():
            raise ConnectionResetError
        self.writer.write(data)

    async def drain(self) -> None:
        """Wait until there is room for more."""
        await self.writer.drain()


class _Exchange(msgspec.Struct, frozen=True):
    """One request and what is to be answered."""

    client: _Client
    wire: ServerWire
    prompt: ScriptPrompt
    reply: ScriptedReply


class ModelEndpoint:
    """The server; `ledger` has every request that it received."""

    def __init__(self, script: ModelScript, *, ledger: RequestLedger, clock: Clock) -> None:
        self.ledger, self.base_url = ledger, ""
        self._playing, self._clock = Playing(script), clock
        self.connections = 0
        """How many were made so far."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, one after the other."""
        self._writers.add(writer)
        self._idle.clear()
        self.connections += 1
        try:
            while await self._one(_Client(reader, writer)):
                pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
            if not self._writers:
                self._idle.set()

    async def until_idle(self) -> None:
        """Wait until no client is connected."""
        await self._idle.wait()

    async def _one(self, client: _Client) -> bool:
        """Whether the connection can be used again."""
        head = await client.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        path = first.split(" ")[1] if first.count(" ") >= 2 else ""
        body = await client.reader.readexactly(int(headers.get("content-length") or 0))
        wire = wire_of(path)
        if wire is None:
            page = b'{"error":{"message":"no such page"}}'
            client.send(_plain(404, {"content-type": "application/json"}, page))
            return True
        prompt = _prompt(wire, path, body)
        reply = self._playing.next(prompt)
        entry = LedgerEntry(
            number=self._playing.requests,
            at_us=self._clock.now_us(),
            path=path,
            model=prompt.model,
            body_hash=blake3(body).hexdigest(),
            body_bytes=len(body),
            idempotency_key=headers.get("idempotency-key", ""),
            has_key=wire.key_header in headers,
            prefix=prompt.prefix,
            status=reply.status,
        )
        self.ledger.put(entry)
        if await self._reply(_Exchange(client, wire, prompt, reply), entry):
            return True
        if reply.break_with == "stall":
            await client.reader.read()  # until the client has had enough
        return False

    async def _reply(self, exchange: _Exchange, entry: LedgerEntry) -> bool:
        client, wire, prompt, reply = exchange.client, exchange.wire, exchange.prompt, exchange.reply
        given = {"x-request-id": f"req_{entry.number}"}
        await self._wait(reply.first_delay_s)
        if reply.status != 200:
            refused = _plain(reply.status, given | error_headers(reply), error_body(reply, wire))
            return await self._send_all(client, entry, refused)
        if reply.break_with == "html" and reply.break_after == 0:
            page = _plain(200, given | {"content-type": "text/html"}, PAGE)
            return await self._send_all(client, entry, page)
        act = played(reply, prompt)
        if reply.is_whole_json:
            headers = given | {"content-type": "application/json"}
            return await self._send_all(client, entry, _plain(200, headers, wire.whole(act, reply, prompt)))
        client.send(_head(200, given | {"content-type": "text/event-stream", "transfer-encoding": "chunked"}))
        return await self._stream(exchange, list(wire.events(act, reply, prompt)), entry)

    async def _send_all(self, client: _Client, entry: LedgerEntry, data: bytes) -> bool:
        client.send(data)
        await client.drain()
        self.ledger.put(msgspec.structs.replace(entry, sent=1, is_whole=True))
        return True

    async def _stream(self, exchange: _Exchange, sending: list[bytes], entry: LedgerEntry) -> bool:
        """The events one by one; the first only says who speaks, and does not count as a piece."""
        client, reply = exchange.client, exchange.reply
        until = len(sending) if reply.break_after is None else reply.break_after + 1
        sent, is_whole = 0, False
        try:
            for sent_now in sending[:until]:
                if sent > 1:
                    await self._wait(reply.delay_s)
                is_last = reply.break_after is None and sent + 1 == until
                # The end goes with the last event, after which a client may leave.
                client.send(_chunk(sent_now) + (END if is_last else b""))
                sent, is_whole = sent + 1, is_last
                if reply.delay_s or sent % 64 == 0:
                    await client.drain()
            await client.drain()
        finally:
            self.ledger.put(msgspec.structs.replace(entry, sent=sent, is_whole=is_whole))
        return is_whole or await self._break(exchange)

    async def _break(self, exchange: _Exchange) -> bool:
        """Misbehave in the middle of an answer; the connection is of no further use."""
        client, how = exchange.client, exchange.reply.break_with
        if how in ("malformed", "error"):
            client.send(_chunk(MALFORMED if how == "malformed" else event(exchange.wire.error(500))))
            await client.drain()
        if how != "stall":
            client.writer.close()  # with what was written, but without the end of the body
            await client.writer.wait_closed()
        return False

    async def _wait(self, seconds: float) -> None:
        if seconds:
            await self._clock.wait_s(seconds, asyncio.Event())


@asynccontextmanager
async def serving_model(
    script: ModelScript | None = None,
    *,
    ledger: RequestLedger | None = None,
    clock: Clock | None = None,
    port: int = 0,
) -> AsyncIterator[ModelEndpoint]:
    """An endpoint inside the block; its `base_url` is what OPENAI_BASE_URL and the others take."""
    endpoint = ModelEndpoint(
        script or ModelScript(), ledger=ledger or RequestLedger(), clock=clock or SystemClock()
    )
    async with listening(endpoint.connected, port=port, limit=HEAD_BYTES_MAX) as bound:
        endpoint.base_url = f"http://{LOOPBACK}:{bound}/v1"
        yield endpoint


def _prompt(wire: ServerWire, path: str, body: bytes) -> ScriptPrompt:
    try:
        return wire.prompt(path, msgspec.json.decode(body))
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, IndexError):
        return ScriptPrompt(model="", said="", characters=0)


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} .\r\n{lines}\r\n".encode("latin-1")


def _plain(status: int, headers: dict[str, str], body: bytes) -> bytes:
    return _head(status, headers | {"content-length": str(len(body))}) + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _serve(script: ModelScript, ledger: RequestLedger, port: int) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with serving_model(script, ledger=ledger, port=port) as endpoint:
        print(endpoint.base_url, flush=True)
        await stopped.wait()


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; write a number from 0 to {PORT_MAX}")
    return int(text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m onward.testing.model_endpoint",
        description="Run a model for tests on 127.0.0.1 until Ctrl-C, and print its address: set "
        "OPENAI_BASE_URL, ANTHROPIC_BASE_URL or GOOGLE_GEMINI_BASE_URL to it. "
        "docs/testing.md describes the script.",
    )
    parser.add_argument(
        "script", nargs="?", help="a JSON file; without it, the model repeats the last message"
    )
    parser.add_argument(
        "--ledger", metavar="FILE", help="append every request to this file, one JSON object per line"
    )
    parser.add_argument("--port", type=_port, default=0, help="the port to listen on; default: a free one")
    return parser.parse_args()


def main() -> int:
    """Serve until SIGINT or SIGTERM."""
    given, script = _options(), ModelScript()
    try:
        if given.script is not None:
            with open(given.script, "rb") as file:
                script = read_script(file.read(), where=given.script)
        if given.ledger is not None:
            os.close(_open_ledger(given.ledger))  # what cannot be written is told now, not at a request
        asyncio.run(_serve(script, RequestLedger(given.ledger), given.port))
    except InvalidInput as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        what = f"cannot open {error.filename}" if error.filename else "cannot serve"
        print(f"{what}: {error.strerror}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
