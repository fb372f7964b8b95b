"""The small server: it answers what it should, and no client can harm the process that it is in."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from onward.errors import InvalidInput
from onward.observe import pages
from onward.observe.pages import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    NOT_FOUND,
    PLAIN,
    PageReply,
    address_of,
    serving,
)


class Page:
    """Answers one path; another is broken."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def answer(self, path: str) -> PageReply:
        self.asked.append(path)
        if path == "/broken":
            raise RuntimeError("oh")
        return PageReply(200, PLAIN, "hällo\n") if path == "/page" else NOT_FOUND


@pytest.fixture
async def page() -> AsyncIterator[tuple[Page, int]]:
    page = Page()
    async with serving(("127.0.0.1", 0), page.answer, "--metrics") as place:
        yield page, int(place.rpartition(":")[2])


async def sent(port: int, request: bytes) -> bytes:
    """What comes back for these bytes, until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        writer.write_eof()
        return await reader.read()
    except OSError:
        return b""
    finally:
        writer.close()


def head(method: str, path: str) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


async def test_a_page_is_sent_whole_and_a_head_without_its_body(page: tuple[Page, int]) -> None:
    whole, bare = await sent(page[1], head("GET", "/page?x=1")), await sent(page[1], head("HEAD", "/page"))
    assert whole.startswith(b"HTTP/1.1 200 OK\r\n")
    assert whole.endswith(b"\r\n\r\n" + "hällo\n".encode())
    assert b"Content-Length: 7\r\n" in whole
    assert bare == whole[: -len("hällo\n".encode())]
    assert page[0].asked == ["/page", "/page"]


class Slow:
    """A client that asks for a page of some size, and reads nothing of it until it is told to."""

    def __init__(self, size: int) -> None:
        self._size, self._serving = size, asyncio.Future[asyncio.Task[object]]()
        self._socket = socket.socket()
        self._socket.setblocking(False)

    async def answer(self, _path: str) -> PageReply:
        task = asyncio.current_task()
        assert task is not None
        self._serving.set_result(task)
        return PageReply(200, PLAIN, "x" * self._size)

    async def ask(self, place: str) -> asyncio.Task[object]:
        """The task that answers, when it has sent what it can."""
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, ("127.0.0.1", int(place.rpartition(":")[2])))
        await loop.sock_sendall(self._socket, head("GET", "/"))
        task = await self._serving
        for _ in range(10):
            await asyncio.sleep(0)
        return task

    async def read(self) -> bytes:
        """All that is there for it, until the server hangs up."""
        found = bytearray()
        with self._socket, contextlib.suppress(ConnectionError):
            while more := await asyncio.get_running_loop().sock_recv(self._socket, 1 << 20):
                found += more
        return bytes(found)


async def given_up(size: int) -> bytes:
    """What a client gets of a page if it reads nothing before the server has given it up."""
    client = Slow(size)
    async with serving(("127.0.0.1", 0), client.answer, "--metrics") as place:
        await asyncio.wait([await client.ask(place)])
        return await client.read()


async def test_a_slow_client_gets_the_whole_page_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the smaller page so little is left to send that asyncio's `drain` does not wait for it."""
    with monkeypatch.context() as patch:
        patch.setattr(pages, "REQUEST_S_MAX", 0.05)
        cut_off = await given_up(20_000_000)
        assert len(cut_off) < 20_000_000
        size = len(cut_off) + 30_000
        await given_up(size)
    client = Slow(size)
    async with serving(("127.0.0.1", 0), client.answer, "--metrics") as place:
        await client.ask(place)
        assert (await client.read()).endswith(b"\r\n\r\n" + b"x" * size)


async def test_an_error_while_a_page_is_sent_is_logged_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(_path: str) -> PageReply:
        return PageReply(200, PLAIN, "\ud800")  # which has no bytes

    async with serving(("127.0.0.1", 0), answer, "--metrics") as place:
        assert await sent(int(place.rpartition(":")[2]), head("GET", "/")) == b""
    assert "a page could not be sent" in caplog.text


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (head("GET", "/nothing"), 404),
        (head("POST", "/page"), 405),
        (head("DELETE", "/page"), 405),
        (b"GET\r\n\r\n", 400),
        (b"\x00\xff garbage\r\n\r\n", 400),
        (b"GET page HTTP/1.1\r\n\r\n", 400),
        (b"GET /page SPDY/9\r\n\r\n", 400),
        (b"GET /page HTTP/1.1\r\nX: " + b"x" * (2 * HEAD_BYTES_MAX) + b"\r\n\r\n", 431),
        (head("GET", "/broken"), 500),
    ],
)
async def test_what_is_not_a_request_for_a_page_is_refused(
    page: tuple[Page, int], request_: bytes, status: int
) -> None:
    answer = await sent(page[1], request_)
    assert not answer or answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert answer or status == 431  # what is left unread may take the answer with it
    assert b" 200 OK" in await sent(page[1], head("GET", "/page"))


async def test_a_client_that_hangs_up_early_is_forgotten(page: tuple[Page, int]) -> None:
    for request in (b"", b"GET /pa", b"\r\n"):
        assert await sent(page[1], request) == b""
    assert b" 200 OK" in await sent(page[1], head("GET", "/page"))


async def test_a_client_that_says_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "REQUEST_S_MAX", 0.05)
    async with serving(("127.0.0.1", 0), Page().answer, "--metrics") as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(place.rpartition(":")[2]))
        writer.write(b"GET /page HTTP/1.1\r\n")
        assert await reader.read() == b""
        writer.close()


async def test_too_many_at_once_are_turned_away_and_places_become_free_again(page: tuple[Page, int]) -> None:
    crowd = [await asyncio.open_connection("127.0.0.1", page[1]) for _ in range(CONNECTIONS_MAX)]
    for _, writer in crowd[:-1]:
        writer.write(b"GET")  # and no more
    reader, writer = crowd[-1]
    assert await sent(page[1], head("GET", "/page")) == b""
    writer.write(head("GET", "/page"))
    assert b" 200 OK" in await reader.read()
    assert b" 200 OK" in await sent(page[1], head("GET", "/page"))
    for _, writer in crowd:
        writer.close()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("localhost:1", ("localhost", 1)),
        ("[::1]:9464", ("::1", 9464)),
        ("::1:9464", ("::1", 9464)),
    ],
)
def test_an_address_is_a_port_or_a_host_with_a_port(text: str, address: tuple[str, int]) -> None:
    assert address_of(text, "--metrics") == address


@pytest.mark.parametrize("text", ["", "abc", ":1", "x:", "1:2:3", "65536", "-1", "http://x:1", "a b:1", "٣"])
def test_another_address_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^--metrics .* is not a port or HOST:PORT; write 9464"):
        address_of(text, "--metrics")


async def test_a_port_in_use_is_told_in_a_sentence(page: tuple[Page, int]) -> None:
    with pytest.raises(InvalidInput, match=rf"^--metrics: port {page[1]} of 127.0.0.1 is in use; choose"):
        async with serving(("127.0.0.1", page[1]), page[0].answer, "--metrics"):
            pass
