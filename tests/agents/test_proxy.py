"""Requests to providers through the proxy that the environment names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from unittest import mock

import pytest

from onward.agents.http import Http, Outgoing
from onward.agents.providers import TimeLimits
from onward.agents.wire import ExchangeFailed
from onward.clock import SystemClock
from onward.config import load_settings, own_redactor, proxy_for

PASSWORD = "canary-0123456789"


@pytest.fixture(autouse=True)
def environment() -> Iterator[dict[str, str]]:
    """The variables of this process, without proxies."""
    variables: dict[str, str] = {}
    with mock.patch("onward.config.VARIABLES", variables):
        yield variables


@asynccontextmanager
async def proxy() -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that answers every request itself, and the first line of each."""
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(head)
        body = b"hello" if not head.startswith("CONNECT") else b""
        status = "200 OK" if body else "407 Proxy Authentication Required"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def answer_of(url: str) -> int:
    http = Http(SystemClock(), proxy=proxy_for)
    try:
        async with http.post(Outgoing(url=url, headers={}, body=b"{}", limits=TimeLimits())) as incoming:
            return incoming.status
    finally:
        await http.close()


async def test_a_provider_is_asked_through_the_proxy(environment: dict[str, str]) -> None:
    async with proxy() as (place, asked):
        environment["HTTP_PROXY"] = f"http://ann:{PASSWORD}@{place}"
        assert await answer_of("http://models.example.com/v1") == 200
    assert asked[0].startswith("POST http://models.example.com/v1 HTTP/1.1")
    assert "Proxy-Authorization: Basic" in asked[0]


async def test_a_proxy_that_refuses_says_so_and_nothing_was_sent(environment: dict[str, str]) -> None:
    async with proxy() as (place, _):
        environment["https_proxy"] = f"http://ann:{PASSWORD}@{place}"
        with pytest.raises(ExchangeFailed) as refused:
            await answer_of("https://models.example.com/v1")
    assert not refused.value.is_sent
    assert "407 (models.example.com through the proxy 127.0.0.1)" in str(refused.value)
    assert PASSWORD not in str(refused.value)


async def test_another_kind_of_proxy_is_refused(environment: dict[str, str]) -> None:
    environment["HTTPS_PROXY"] = "socks5://127.0.0.1:1"
    with pytest.raises(ExchangeFailed, match="such as http://proxy:3128"):
        await answer_of("https://models.example.com/v1")


def test_this_machine_and_what_is_excepted_have_no_proxy(environment: dict[str, str]) -> None:
    environment |= {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "example.com, .inner, other:81"}
    assert proxy_for("http://models.acme.dev/v1") == "http://proxy:3128"
    assert proxy_for("https://models.acme.dev/v1") is None
    here = ("localhost:8000", "127.0.0.2", "[::1]:80")
    for host in (*here, "example.com", "a.example.com", "x.inner", "other:81"):
        assert proxy_for(f"http://{host}/v1") is None, host
    for host in ("notexample.com", "other:82"):
        assert proxy_for(f"http://{host}/v1") is not None, host
    environment["NO_PROXY"] = "*"
    assert proxy_for("http://models.acme.dev/v1") is None


def test_the_password_of_a_proxy_is_a_secret(environment: dict[str, str]) -> None:
    environment["HTTPS_PROXY"] = f"http://ann:{PASSWORD}@proxy:3128"
    assert PASSWORD not in own_redactor().redact(f"it is {PASSWORD}")
    assert load_settings().db
