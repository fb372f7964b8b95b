"""The tools for HTTP: they reach what is allowed, and what comes back is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from onward.agents.tools.port import AgentTool, CutOff, ToolAnswer
from onward.agents.tools.web import RequestFailed, Web, request, web_tools
from onward.agents.tools.web_addresses import read_allowed, target_of
from onward.errors import CallTimedOut
from onward.listener import listening
from tests.agents.asking import raw_server, response
from tests.agents.tools.in_workspace import step_in, using


class Names:
    """A resolver whose answers are scripted; the last one is repeated."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers, self.asked = list(answers), list[str]()

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Client:
    """Both tools, and the requests that came to the server behind api.test."""

    def __init__(self, root: Path, port: int, heads: list[bytes], *, names: Names, **settings: Any) -> None:
        entries = [f"http://{host}:{port}" for host in ("api.test", "other.test")]
        web = Web(tuple(read_allowed(entry, "allow") for entry in entries), resolve=names, **settings)
        tools: list[AgentTool] = [*web_tools(web)]
        self.get, self.send = tools
        self.url, self.heads, self.names, self.port = f"http://api.test:{port}", heads, names, port
        self._step = step_in(root)

    async def ask(self, path: str = "/", **more: Any) -> ToolAnswer:
        return await using(self.get, self._step, url=path if "://" in path else f"{self.url}{path}", **more)

    async def post(self, **more: Any) -> ToolAnswer:
        return await using(self.send, self._step, url=f"{self.url}/", **({"method": "POST"} | more))


@asynccontextmanager
async def serving(
    root: Path,
    answer: Callable[[bytes, int], bytes],
    *,
    names: Names | None = None,
    allows_private: bool = True,
    **settings: Any,
) -> AsyncIterator[Client]:
    ports: list[int] = []
    async with raw_server(lambda head: answer(head, ports[0])) as (base, heads):
        ports.append(int(base.rpartition(":")[2].partition("/")[0]))
        names = names or Names(["127.0.0.1"])
        yield Client(root, ports[0], heads, names=names, allows_private=allows_private, **settings)


def plain(head: bytes, port: int) -> bytes:
    return response(b"hello", kind="text/plain")


async def test_an_answer_has_the_status_some_headers_and_the_body(tmp_path: Path) -> None:
    async with serving(tmp_path, plain) as client:
        answer = await client.ask("/x?y=1", headers={"X-Team": "search"})
    assert answer.text == f"HTTP 200 OK\nfrom {client.url}/x?y=1\ncontent-type: text/plain\n\nhello"
    assert not answer.is_error
    (head,) = client.heads
    assert head.startswith(b"GET /x?y=1 HTTP/1.1\r\n")
    assert f"Host: api.test:{client.port}".encode() in head
    assert b"X-Team: search" in head


async def test_a_host_at_a_private_address_is_not_reached(tmp_path: Path) -> None:
    async with serving(tmp_path, plain, allows_private=False) as client:
        answer = await client.ask()
        assert answer.is_error
        assert "api.test is at 127.0.0.1, a private address, which is not allowed" in answer.text
        assert client.heads == []


async def test_a_name_is_resolved_once_and_what_was_checked_is_connected_to(tmp_path: Path) -> None:
    """A resolver that answers otherwise the second time, as in DNS rebinding, is not asked a second time."""
    names = Names(["127.0.0.1"], ["169.254.169.254"])
    async with serving(tmp_path, plain, names=names) as client:
        assert not (await client.ask()).is_error
        assert names.asked == ["api.test"]
        again = await client.ask()
    assert again.is_error
    assert "169.254.169.254, a special address" in again.text
    assert len(client.heads) == 1


async def test_no_connection_is_made_to_an_address_that_was_not_checked() -> None:
    """Whatever a library makes of a host: here it needs no resolver, because the host is an address."""
    async with raw_server(lambda head: response(b"secret")) as (base, heads):
        target = target_of(base)
        with pytest.raises(RequestFailed) as failed:
            await request("GET", target, addresses=["93.184.216.34"], headers={})
    assert not failed.value.is_sent
    assert heads == []


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:{port}/secret",
        "http://localhost:{port}/secret",
        "http://[::1]:{port}/",
        "http://169.254.169.254/latest/",
        "http://0/",
        "//127.0.0.1:{port}/secret",
        "http://api.test@127.0.0.1:{port}/",
        "file://localhost/etc/passwd",
        "http://api.test:1/",
    ],
)
async def test_a_redirect_is_checked_like_an_address(tmp_path: Path, location: str) -> None:
    def answer(head: bytes, port: int) -> bytes:
        return response(b"", status="302 Found", more=f"Location: {location.format(port=port)}\r\n")

    async with serving(tmp_path, answer) as client:
        refused = await client.ask()
        assert refused.is_error
        assert len(client.heads) == 1


async def test_a_redirect_to_another_host_carries_no_credentials(tmp_path: Path) -> None:
    def answer(head: bytes, port: int) -> bytes:
        if b"Host: api.test" in head and b"GET /here" not in head:
            return response(b"", status="307 Temporary Redirect", more="Location: /here\r\n")
        if b"Host: api.test" in head:
            return response(b"", status="302 Found", more=f"Location: http://other.test:{port}/there\r\n")
        return response(b"arrived", kind="text/plain")

    async with serving(tmp_path, answer) as client:
        arrived = await client.ask(headers={"Authorization": "Bearer canary", "Accept": "text/plain"})
    assert arrived.text.endswith("\n\narrived")
    assert f"from http://other.test:{client.port}/there" in arrived.text
    first, second, third = client.heads
    assert b"Bearer canary" in first
    assert b"Bearer canary" in second
    assert b"canary" not in third
    assert b"Accept: text/plain" in third


async def test_redirects_end(tmp_path: Path) -> None:
    def answer(head: bytes, port: int) -> bytes:
        return response(b"", status="302 Found", more="Location: /again\r\n")

    async with serving(tmp_path, answer) as client:
        refused = await client.ask()
    assert "there were more than 3 redirects" in refused.text
    assert len(client.heads) == 4


async def test_what_sends_follows_no_redirect(tmp_path: Path) -> None:
    def answer(head: bytes, port: int) -> bytes:
        return response(b"", status="307 Temporary Redirect", more="Location: /again\r\n")

    async with serving(tmp_path, answer) as client:
        answered = await client.post(body="{}")
    assert "HTTP 307 Temporary Redirect" in answered.text
    assert "location: /again" in answered.text
    assert len(client.heads) == 1


async def test_a_body_without_an_end_is_cut(tmp_path: Path) -> None:
    def answer(head: bytes, port: int) -> bytes:
        return response(b"x" * 300_000, kind="text/plain")

    async with serving(tmp_path, answer, body_bytes_max=1_000) as client:
        cut = await client.ask()
    assert cut.text.endswith("x\n[the body continues; only its first 1,000 bytes were read]")
    assert len(cut.text) < 1_300


@pytest.mark.parametrize(
    ("body", "more", "shown"),
    [
        (b"PNG\0\0", "", "[a body of 5 bytes that is not text]"),
        (b"x", "Content-Encoding: gzip\r\n", "the response is compressed"),
        (b"caf\xc3\xa9", "", "café"),
    ],
)
async def test_only_text_is_shown(tmp_path: Path, body: bytes, more: str, shown: str) -> None:
    async with serving(tmp_path, lambda head, port: response(body, kind="text/plain", more=more)) as client:
        assert shown in (await client.ask()).text


@pytest.mark.parametrize(
    "raw", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort"]
)
async def test_a_server_that_breaks_off_is_told_and_what_was_sent_to_it_is_in_doubt(
    tmp_path: Path, raw: bytes
) -> None:
    async with serving(tmp_path, lambda head, port: raw) as client:
        assert (await client.ask()).is_error
        with pytest.raises(CutOff, match="it is unknown whether call"):
            await client.post()


async def test_a_server_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    silent = asyncio.Event()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silent.wait()

    async with listening(connected) as port:
        client = Client(tmp_path, port, [], names=Names(["127.0.0.1"]), allows_private=True)
        late = await client.ask(rules={"time_limit_s": 0.5})
        assert late == ToolAnswer("no answer within 0.5 s.", is_error=True)
        with pytest.raises(CallTimedOut):  # nobody knows what the server did: a person decides
            await client.post(rules={"time_limit_s": 0.5})


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"content-length": "0"},
        {"Transfer-Encoding": "chunked"},
        {"Proxy-Authorization": "x"},
        {"X-Bad": "a\r\nHost: evil"},
        {"X Bad": "a"},
        {"X-Bad": "é"},
        {"": "x"},
        {"X-Long": "x" * 5_000},
        {f"X-{n}": "x" for n in range(60)},
    ],
)
async def test_a_header_that_decides_about_the_connection_is_refused(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with serving(tmp_path, plain) as client:
        assert (await client.ask(headers=headers)).is_error
        assert (await client.post(headers=headers)).is_error
        assert client.heads == []


async def test_an_error_of_the_server_is_an_answer(tmp_path: Path) -> None:
    async with serving(tmp_path, lambda head, port: response(b"no", status="404 Not Found")) as client:
        answer = await client.ask()
    assert answer.is_error
    assert answer.text.startswith("HTTP 404 Not Found\n")


def test_sending_needs_approval_and_is_not_repeated() -> None:
    get, send = web_tools(Web((read_allowed("h", "allow"),)))
    assert (get.rules.approval, get.rules.repeatable) == (False, True)
    assert (send.rules.approval, send.rules.repeatable) == (True, False)
    assert web_tools(Web()) == []
