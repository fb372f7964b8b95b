"""What comes over a socket before there is a request: how large it may be, and that it has one meaning."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from onward.server.life import bound, listener
from onward.server.protocol import AHEAD_MAX, HEAD_BYTES_MAX
from onward.server.settings import ServeSettings

HOST = b"Host: x\r\n"
ENOUGH = b"GET /a HTTP/1.1\r\n" + HOST


class Line:
    """One connection to a server that echoes what it understood."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def says(self, *parts: bytes) -> None:
        for part in parts:
            self._writer.write(part)
            await self._writer.drain()

    async def hears(self) -> tuple[int, dict[str, str], Any]:
        """One reply: its status, headers, and the JSON in it."""
        told = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in told[1:] if line)
        body = await self._reader.readexactly(int(headers["content-length"]))
        return int(told[0].split(" ")[1]), headers, msgspec.json.decode(body)

    async def is_over(self) -> bool:
        """Whether nothing more comes, once the server has closed the connection."""
        try:
            return not await self._reader.read(1)
        except ConnectionResetError:
            return True

    async def is_told(self, words: bytes) -> bool:
        """Whether these words come, before the server closes the connection."""
        try:
            await self._reader.readuntil(words)
        except asyncio.IncompleteReadError:
            return False
        return True

    async def gets(self) -> bytes:
        """What comes at once."""
        return await self._reader.read(2**16)

    @property
    def address(self) -> tuple[str, int]:
        """Where the server is."""
        host, port = self._writer.get_extra_info("peername")
        return host, port

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        """Hang up without a word."""
        self._writer.transport.abort()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Reply with the request; the body is read only where the path says so. A WebSocket is greeted."""
    if scope["type"] == "websocket" and scope["path"] == "/refused":
        await send({"type": "websocket.http.response.start", "status": 403, "headers": []})
        await send({"type": "websocket.http.response.body", "body": b"no"})
        return
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "hello"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    body = b""
    if scope["path"] == "/stream":
        await stream(receive, send)
        return
    if scope["path"] == "/late":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    if scope["path"] in ("/body", "/late"):
        while (part := await receive())["type"] == "http.request":
            body += part["body"]
            if not part["more_body"]:
                break
    if scope["path"] == "/late":
        await send({"type": "http.response.body", "body": body})
        return
    names = [name.decode() for name, _ in scope["headers"]]
    host = dict(scope["headers"]).get(b"host", b"").decode()
    said = msgspec.json.encode({"path": scope["path"], "headers": names, "host": host, "body": body.decode()})
    length = (b"content-length", str(len(said)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": said})


ended = asyncio.Event()
"""Set when a stream has noticed that its client is gone."""


async def stream(receive: Any, send: Any) -> None:
    """Begin a reply without an end, and wait for the client to hang up."""
    ended.clear()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b":", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass
    ended.set()


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    settings = ServeSettings(port=0)
    with bound(settings) as sock:
        server = listener(echo, settings)
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        line = Line(*await asyncio.open_connection(*sock.getsockname()))
        yield line
        line.close()
        server.should_exit = server.force_exit = True
        await serving


def padded(size: int) -> bytes:
    """A head of so many bytes, counted as the limit counts them."""
    counted = len(b"/a") + len(HOST) + len(b"P: \r\n")
    return ENOUGH + b"P: " + b"x" * (size - counted) + b"\r\n\r\n"


async def test_a_head_at_its_limit_is_read_and_one_byte_more_is_refused(line: Line) -> None:
    """S22."""
    await line.says(padded(HEAD_BYTES_MAX))
    assert (await line.hears())[0] == 200
    await line.says(padded(HEAD_BYTES_MAX + 1))
    status, headers, problem = await line.hears()
    assert (status, problem["code"], headers["connection"]) == (431, "head_too_large", "close")
    assert headers["x-content-type-options"] == "nosniff"
    assert await line.is_over()


async def test_many_headers_are_refused_as_one_large_one_is(line: Line) -> None:
    await line.says(ENOUGH + b"P: 1234567890\r\n" * 2_000 + b"\r\n")
    assert (await line.hears())[0] == 431
    assert await line.is_over()


async def test_a_header_without_an_end_is_refused_before_it_fills_the_memory(line: Line) -> None:
    await line.says(ENOUGH + b"P: ")
    for _ in range(HEAD_BYTES_MAX // 1_000):
        await line.says(b"x" * 1_000)
    await line.says(b"x" * 1_000)
    assert (await line.hears())[0] == 431
    assert await line.is_over()


async def test_a_head_in_many_pieces_is_counted_once(line: Line) -> None:
    head = padded(HEAD_BYTES_MAX)
    await line.says(*(head[at : at + 1_000] for at in range(0, len(head), 1_000)))
    assert (await line.hears())[0] == 200


async def test_a_large_body_is_no_head(line: Line) -> None:
    body = b"x" * 100_000
    await line.says(b"POST /body HTTP/1.1\r\n" + HOST + b"Content-Length: 100000\r\n\r\n", body)
    status, _, said = await line.hears()
    assert (status, len(said["body"])) == (200, 100_000)
    await line.says(padded(HEAD_BYTES_MAX))
    assert (await line.hears())[0] == 200


CHUNKED = b"POST /body HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("begun", [b"0\r\nP: ", b"0\r\nP", b"2;p=", b"0\r\n"])
async def test_what_comes_between_pieces_of_a_body_is_bounded_too(line: Line, begun: bytes) -> None:
    """A header behind a body was kept whole, however long it became, before anybody had signed in."""
    await line.says(CHUNKED.replace(HOST, HOST + b"Expect: 100-continue\r\n"))
    assert (await line.gets()).startswith(b"HTTP/1.1 100")
    fill = b"P: 12345\r\n" if begun == b"0\r\n" else b"p" * 10
    await line.says(begun, *[fill * 100] * (HEAD_BYTES_MAX // 1_000 + 1))
    assert (await line.hears())[0] == 431
    assert await line.is_over()


async def test_a_body_in_small_chunks_may_be_long(line: Line) -> None:
    piece = b"2;p=1\r\nab\r\n"
    await line.says(CHUNKED, *[piece * 1_000] * 10, b"0\r\n\r\n")
    assert len((await line.hears())[2]["body"]) == 20_000


async def test_a_stream_with_a_request_behind_it_hears_that_its_client_is_gone(line: Line) -> None:
    """Else each of them would hold one of the few streams of a credential for as long as the server lives."""
    await line.says(b"GET /stream HTTP/1.1\r\n" + HOST + b"\r\n" + ENOUGH + b"\r\n")
    assert b"200 OK" in await line.gets()
    line.abort()
    async with asyncio.timeout(10):
        await ended.wait()


@pytest.mark.parametrize(
    "request_",
    [
        ENOUGH + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ENOUGH + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
        ENOUGH + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        ENOUGH + b"Content-Length: 2, 3\r\n\r\nabc",
        ENOUGH + b"Content-Length: +2\r\n\r\nab",
        ENOUGH + b"Content-Length : 2\r\n\r\nab",
        ENOUGH + b"Transfer-Encoding: gzip\r\n\r\n",
        ENOUGH + b"Transfer-Encoding: chunked, gzip\r\n\r\n",
        ENOUGH + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ENOUGH + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ENOUGH + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        ENOUGH + b"P: a\r\n b\r\n\r\n",
        ENOUGH + b"P: a\x00b\r\n\r\n",
        ENOUGH + b"P: a\rb\r\n\r\n",
        b"GET /a HTTP/1.1\nHost: x\n\n",
        b"GET http://evil/a HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /a#b HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET a HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
        b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
        b"CONNECT evil:80 HTTP/1.1\r\n" + HOST + b"\r\n",
        b"CONNECT /a HTTP/1.1\r\n" + HOST + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_what_could_be_read_in_two_ways_is_refused_and_nothing_behind_it_read(
    line: Line, request_: bytes
) -> None:
    await line.says(request_ + ENOUGH + b"\r\n")
    status, headers, problem = await line.hears()
    assert (status, problem["code"], headers["connection"]) == (400, "bad_request", "close")
    assert await line.is_over()


async def test_a_header_behind_the_body_is_none(line: Line) -> None:
    """The door has looked at the others, and a proxy may let these through."""
    head = b"POST /body HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    await line.says(head + b"2\r\nab\r\n0\r\nAuthorization: Bearer x\r\n\r\n")
    status, _, said = await line.hears()
    assert (status, said["body"], said["headers"]) == (200, "ab", ["host", "transfer-encoding"])


async def test_a_body_that_nobody_reads_ends_the_connection(line: Line) -> None:
    """Else it could be sent for ever, byte by byte."""
    await line.says(b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 100\r\n\r\nx")
    assert (await line.hears())[0] == 200
    assert await line.is_over()


@pytest.mark.parametrize("ending", [b"", b"Connection: close\r\n"])
async def test_a_client_that_sends_all_before_it_reads_gets_the_reply(line: Line, ending: bytes) -> None:
    """A reset would take the reply away: the client would not know what it was refused for."""
    body = b"x" * 4_000_000
    head = b"POST /a HTTP/1.1\r\n" + HOST + ending + b"Content-Length: %d\r\n\r\n" % len(body)

    def sends_then_reads() -> bytes:
        with socket.create_connection(line.address) as plain:
            plain.sendall(head + body)
            return plain.recv(2**16)

    assert (await asyncio.to_thread(sends_then_reads)).startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_never_ends_its_body_is_cut_off(line: Line) -> None:
    async def sends_for_ever() -> None:
        while True:
            await line.says(b"100000\r\n" + b"x" * 2**20 + b"\r\n")

    await line.says(b"POST /a HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
    with pytest.raises(ConnectionError):
        await sends_for_ever()


async def test_spaces_around_the_value_of_a_header_do_not_belong_to_it(line: Line) -> None:
    await line.says(b"GET /a HTTP/1.1\r\nHost: \t x \t\r\n\r\n")
    assert (await line.hears())[2]["host"] == "x"


async def test_another_protocol_that_is_offered_is_not_taken(line: Line) -> None:
    """Java offers HTTP/2 with its first request, whatever that is; it is answered as if it had not."""
    offer = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
    await line.says(b"POST /body HTTP/1.1\r\n" + HOST + offer + b"Content-Length: 2\r\n\r\nab")
    status, _, said = await line.hears()
    assert (status, said["body"]) == (200, "ab")
    await line.says(ENOUGH + offer + b"\r\n" + ENOUGH + b"\r\n")
    assert [(await line.hears())[0], (await line.hears())[0]] == [200, 200]


async def test_an_offer_changes_neither_the_version_nor_whether_the_connection_ends(line: Line) -> None:
    offer = b"Connection: Upgrade, close\r\nUpgrade: h2c\r\n"
    await line.says(ENOUGH + offer + b"\r\n" + ENOUGH + b"\r\n")
    status, headers, _ = await line.hears()
    assert (status, headers["connection"]) == (200, "close")
    assert await line.is_over()


async def test_an_old_client_that_offers_another_protocol_gets_the_end_of_the_connection(line: Line) -> None:
    await line.says(b"GET /a HTTP/1.0\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
    assert (await line.hears())[1]["connection"] == "close"
    assert await line.is_over()


SHAKE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.mark.parametrize("before", [0, 1])
async def test_a_connection_may_become_a_web_socket_at_once_or_later(line: Line, before: int) -> None:
    """Those of browsers do with their first request."""
    for _ in range(before):
        await line.says(ENOUGH + b"\r\n")
        await line.hears()
    await line.says(ENOUGH + SHAKE)
    assert (await line.gets()).startswith(b"HTTP/1.1 101 ")


async def test_a_connection_becomes_no_web_socket_before_its_replies_are_sent(line: Line) -> None:
    await line.says(b"GET /stream HTTP/1.1\r\n" + HOST + b"\r\n" + ENOUGH + SHAKE)
    assert await line.is_over()


async def test_what_a_client_says_on_a_websocket_is_not_even_decoded(
    line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    """What is no UTF-8 was a traceback in the log, as often as somebody sent it."""
    await line.says(ENOUGH + SHAKE)
    assert await line.is_told(b"hello")
    await line.says(b"\x81\x81\0\0\0\0\xff", b"\x89\x82\0\0\0\0hi")
    assert await line.is_told(b"\x8a\x02hi")
    assert not caplog.records


async def test_a_websocket_that_is_refused_leaves_nothing_in_the_log(
    line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever is no user of the server could fill it."""
    await line.says(ENOUGH.replace(b"/a", b"/refused") + SHAKE)
    assert (await line.gets()).startswith(b"HTTP/1.1 403 ")
    assert await line.is_over()
    assert [one.levelname for one in caplog.records if one.levelno >= logging.WARNING] == []


async def test_a_few_requests_may_be_sent_ahead_and_not_any_number(line: Line) -> None:
    await line.says((ENOUGH + b"\r\n") * AHEAD_MAX)
    for _ in range(AHEAD_MAX):
        assert (await line.hears())[2]["path"] == "/a"
    await line.says((ENOUGH + b"\r\n") * 1_000)
    assert await line.is_over()


async def test_a_reply_comes_in_one_piece(line: Line) -> None:
    """Its client is woken once."""
    await line.says(ENOUGH + b"\r\n")
    assert (await line.gets()).endswith(b"}")


async def test_a_head_does_not_wait_for_a_body_that_comes_later(line: Line) -> None:
    await line.says(b"POST /late HTTP/1.1\r\nContent-Length: 2\r\n" + HOST + b"\r\n")
    assert (await line.gets()).endswith(b"\r\n\r\n")
    await line.says(b"ok")
    assert await line.gets() == b"ok"


async def test_a_reply_without_a_body_is_sent(line: Line) -> None:
    await line.says(b"HEAD /a HTTP/1.1\r\n" + HOST + b"\r\n")
    assert (await line.gets()).endswith(b"\r\n\r\n")


async def test_nobody_is_told_to_go_on_with_a_body_that_was_refused(
    line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    """That was written after the end of our side, and each time a traceback to the log."""
    await line.says(CHUNKED.replace(HOST, HOST + b"Expect: 100-continue\r\n") + b"zz\r\n")
    assert (await line.hears())[0] == 400
    assert await line.is_over()
    assert not caplog.records


async def test_whoever_asks_whether_to_send_a_body_is_told_at_once(line: Line) -> None:
    await line.says(b"POST /body HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n" + HOST + b"\r\n")
    assert await line.gets() == b"HTTP/1.1 100 Continue\r\n\r\n"
    await line.says(b"ok")
    assert (await line.hears())[2]["body"] == "ok"
