"""A POST to a real receiver: what it gets, what counts as delivered, and what is never done."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from onward.clock import SystemClock
from onward.listener import listening
from onward.notify.courier import SendResult
from onward.notify.senders import UrlSender, key_of
from onward.threads import in_thread
from tests.cli.shell import wait_until
from tests.notify.receiver import Receiver, receiving
from tests.notify.told import delivery


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def sender(url: str, *, secret: bytes | None = None, timeout_s: float = 30.0) -> UrlSender:
    return UrlSender(url, secret=secret, timeout_s=timeout_s, clock=SystemClock())


async def test_the_receiver_gets_the_facts_and_the_delivery_id(receiver: Receiver) -> None:
    told = delivery()
    assert await sender(receiver.url).send(told) == SendResult(204)
    assert receiver.bodies == [json.loads(told.body)]
    (headers,) = receiver.headers
    assert (headers["webhook-id"], headers["content-type"]) == ("abc", "application/json")
    assert "webhook-signature" not in headers


@pytest.mark.parametrize("secret", ["hunter2", "whsec_" + base64.b64encode(b"\xff key").decode()])
async def test_a_receiver_can_check_who_sent_it(receiver: Receiver, secret: str) -> None:
    await sender(receiver.url, secret=key_of(secret)).send(delivery())
    headers, key = receiver.headers[0], b"hunter2" if secret == "hunter2" else b"\xff key"
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{receiver.raw[0]}"
    expected = base64.b64encode(hmac.new(key, signed.encode(), hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


async def test_a_bad_status_is_not_delivered_and_says_what_came_back(receiver: Receiver) -> None:
    receiver.answer = lambda: (500, {}, b"out of\n  order" + b"." * 100_000)
    found = await sender(receiver.url).send(delivery())
    assert found.response == 500
    assert found.error.startswith("HTTP 500: out of\n  order...")
    assert len(found.error) < 20_000


async def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    with receiving() as elsewhere:
        receiver.answer = lambda: (307, {"location": elsewhere.url}, b"")
        found = await sender(receiver.url, secret=b"x").send(delivery())
        assert elsewhere.headers == []
    assert found.response == 307
    assert "not followed" in found.error


async def test_nobody_there_is_an_answer_and_not_an_error() -> None:
    with receiving() as gone:
        pass
    found = await sender(gone.url).send(delivery())
    assert found.response is None
    assert "refused" in found.error


async def test_a_receiver_that_never_answers_is_left_alone_when_the_time_is_over(receiver: Receiver) -> None:
    release = threading.Event()

    def late() -> tuple[int, dict[str, str], bytes]:
        release.wait()
        return 204, {}, b""

    receiver.answer = late
    found = await sender(receiver.url, timeout_s=0.2).send(delivery())
    release.set()
    assert found == SendResult(None, "no response within 0.2 s")


@asynccontextmanager
async def speaking(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """The address of a server that says what it likes to one client, and is done with it at the end."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            over.set()

    async with listening(serve) as port:
        yield f"http://127.0.0.1:{port}/"
        await over.wait()


async def test_the_thread_of_a_request_that_was_given_up_ends() -> None:
    """A receiver that drips its answer would hold it for ever: only all of it together has a limit."""
    before = threading.active_count()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with speaking(drip) as url:
        found = await sender(url, timeout_s=0.3).send(delivery())
        assert found.error == "no response within 0.3 s"
        await in_thread(wait_until, lambda: threading.active_count() <= before + 1, "the end of the thread")


CHUNKED = b"HTTP/1.1 500 no\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "answer", [b"nonsense\r\n\r\n", b"", b"HTTP/1.1 2", CHUNKED + b"-5\r\nabc\r\n", CHUNKED + b"zz\r\n"]
)
async def test_an_answer_that_is_none_is_not_delivered(answer: bytes) -> None:
    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(answer)

    async with speaking(answering) as url:
        found = await sender(url).send(delivery())
    assert found.error


@pytest.mark.parametrize("secret", ["", " \n", "whsec_not base64"])
def test_a_secret_that_is_none_is_refused(secret: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - its words are the caller's
        key_of(secret)
