"""An endpoint that means harm: it gets no key that is not its own, and no memory without end."""

from __future__ import annotations

import gzip
import logging
import traceback
from collections.abc import Callable

import pytest

from onward.agents.http import Http, Outgoing, WireModel
from onward.agents.model import FailureKind, ModelFailed, collect
from onward.agents.models import Models
from onward.agents.openai import OpenAIFormat
from onward.agents.providers import TimeLimits
from onward.agents.wire import SseReader, TooLarge
from onward.clock import SystemClock
from onward.model.values import WIRE_FORMATS
from onward.testing.model_endpoint import serving_model
from onward.testing.script import ModelScript, ScriptedReply
from tests.agents.asking import KEY, failure_of, models_at, raw_server, request, response

pytestmark = pytest.mark.anyio
ECHOES: list[Callable[[bytes], bytes]] = [
    lambda head: response(b'{"error":{"message":"bad key ' + KEY.encode() + b'"}}', status="401 No"),
    lambda head: response(head, status="400 Bad"),
    lambda head: response(head, status="500 Oops", kind="text/html"),
    lambda head: response(b"data: " + head.replace(b"\r\n", b" ") + b"\n\n"),
    lambda head: response(b'data: {"error":{"message":"' + KEY.encode() + b'"}}\n\n'),
    lambda head: response(b'data: {"type":"error","error":{"message":"' + KEY.encode() + b'"}}\n\n'),
    lambda head: response(b"", status="429 Slow", more=f"x-request-id: {KEY}\r\n"),
]


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("format", WIRE_FORMATS)
async def test_a_key_that_is_sent_back_is_in_no_error_and_no_log(
    echo: Callable[[bytes], bytes], format: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with raw_server(echo) as (url, heads):
        models = models_at(url, format=format)
        with pytest.raises(ModelFailed) as caught:
            await collect(models.stream(request()))
        await models.close()
    assert KEY.encode() in heads[0], "the key was sent, so it could have leaked"
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value.failure) + caplog.text
    assert KEY not in told


@pytest.mark.parametrize(
    "key", ["sk-proj-abc***************xyz", "sk-1234567890", "gsk_abcdefghij", "AIzaSyA1234567890abc"]
)
async def test_what_looks_like_a_key_is_hidden_even_if_it_is_not_ours(key: str) -> None:
    told = f'{{"error":{{"message":"Incorrect API key provided: {key}."}}}}'.encode()
    async with raw_server(lambda _: response(told, status="401 No")) as (url, _):
        models = models_at(url)
        failure = await failure_of(models)
        await models.close()
    assert "[key]" in failure.message
    assert key not in failure.message


def test_nothing_that_holds_a_key_shows_it() -> None:
    outgoing = Outgoing(
        url="http://127.0.0.1/v1", headers={"Authorization": KEY}, body=b"", limits=TimeLimits()
    )
    assert KEY not in f"{outgoing!r} {outgoing}"


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_not_followed(status: str) -> None:
    async with serving_model() as elsewhere:
        more = f"Location: {elsewhere.base_url}/chat/completions\r\n"
        async with raw_server(lambda _: response(b"", status=status, more=more)) as (url, _):
            models = models_at(url)
            failure = await failure_of(models)
            await models.close()
        assert failure.kind is FailureKind.REQUEST
        assert elsewhere.ledger.entries == []


async def test_an_event_without_end_is_cut() -> None:
    endless = response(b"data: " + b"x" * (6 * 1024 * 1024))
    assert "an event that never ends" in await _message_of(models_at, endless)


async def test_an_answer_without_end_is_cut() -> None:
    def small(url: str) -> Models:
        models = models_at(url)
        provider = models.providers["acme"]
        http = Http(SystemClock(), body_bytes_max=1024 * 1024)
        wire = OpenAIFormat(provider)
        models._clients["acme"] = WireModel(provider, wire, http=http, keys=models._keys, clock=SystemClock())
        return models

    assert "a response that is too large" in await _message_of(small, response(b": hello\n" * 1024 * 1024))


async def test_a_compressed_body_is_not_unpacked() -> None:
    bomb = response(gzip.compress(b"data: " + b"0" * 10_000_000), more="Content-Encoding: gzip\r\n")
    assert "compressed" in await _message_of(models_at, bomb)


async def test_a_deeply_nested_event_is_no_answer() -> None:
    nested = response(b'data: {"choices":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n")
    assert "sent an invalid response" in await _message_of(models_at, nested)


async def test_an_error_of_any_size_is_one_short_sentence() -> None:
    body = "\x1b[31m\u202e\x00" + "very " * 1_000_000
    async with serving_model(ModelScript(default=ScriptedReply(status=400, body=body))) as endpoint:
        models = models_at(endpoint.base_url)
        message = (await failure_of(models)).message
        await models.close()
    assert len(message) < 600
    assert message.isprintable()


def test_a_line_that_comes_byte_by_byte_is_bounded_too() -> None:
    reader = SseReader(1000)
    for _ in range(1000):
        reader.feed(b"x")
    with pytest.raises(TooLarge):
        reader.feed(b"x")


def test_an_event_of_many_lines_is_bounded_too() -> None:
    reader = SseReader(1000)
    for _ in range(1000):
        reader.feed(b"data: x\n")
    with pytest.raises(TooLarge):
        reader.feed(b"data: x\n")


async def _message_of(open_models: Callable[[str], Models], sent: bytes) -> str:
    async with raw_server(lambda _: sent) as (url, _):
        models = open_models(url)
        failure = await failure_of(models)
        await models.close()
    return failure.message
