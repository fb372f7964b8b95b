"""A whole answer counts, whatever follows it: one request, however odd the rest of its stream is.

Every format, every oddity, against a real server that counts its requests.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import pytest

from onward.agents.http import LATE_S
from onward.agents.model import Finished, TextDelta, TokenUsage, ToolCall
from onward.agents.models import Models
from onward.agents.prices import read_prices
from onward.agents.refusal import error_in
from onward.agents.step.handler import AgentHandler
from onward.agents.wire import NOT_COUNTED, UNREADABLE
from onward.listener import listening
from onward.model.call import CallFinished, CallStarted, CallStatus, Usage
from onward.model.run import RunStatus
from onward.model.values import WIRE_FORMATS
from onward.read.step import read_calls
from onward.testing.clock import ManualClock, SeededDice
from tests.agents.asking import NAME, events, failure_of, models_at, pieces_of
from tests.world import World, line

pytestmark = pytest.mark.anyio
KNOWN = Usage(input=20, output=7)
Answer = Callable[[str, Any, Any], list[str]]
"""The events of an answer up to its tokens: its text, and both counts as the server writes them."""


def openai(text: str, given: Any, made: Any, **more: Any) -> list[str]:
    return [
        json.dumps({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}),
        json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        json.dumps({"choices": [], "usage": {"prompt_tokens": given, "completion_tokens": made} | more}),
    ]


def anthropic(text: str, given: Any, made: Any, **more: Any) -> list[str]:
    block = {"type": "text", "text": ""}
    counted = {"input_tokens": given, "output_tokens": made} | more
    return [
        json.dumps({"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}}),
        json.dumps({"type": "content_block_start", "index": 0, "content_block": block}),
        json.dumps(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        ),
        json.dumps({"type": "content_block_stop", "index": 0}),
        json.dumps({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": counted}),
    ]


def google(text: str, given: Any, made: Any, **more: Any) -> list[str]:
    counted = {"promptTokenCount": given, "candidatesTokenCount": made} | more
    return [
        json.dumps({"candidates": [{"content": {"parts": [{"text": text}]}}]}),
        json.dumps({"candidates": [{"finishReason": "STOP"}], "usageMetadata": counted}),
    ]


ANSWERS: dict[str, Callable[..., list[str]]] = {"openai": openai, "anthropic": anthropic, "google": google}
DETAILS = {
    "openai": ("prompt_tokens_details", "completion_tokens_details"),
    "anthropic": ("cache_creation", "output_tokens_details"),
    "google": ("promptTokensDetails", "candidatesTokensDetails"),
}
WITH_FINISH = ("anthropic", "google")
"""Formats that count tokens in the event that says why the answer ended."""
MORE_TEXT = {
    "openai": json.dumps({"choices": [{"index": 0, "delta": {"content": "more"}}]}),
    "anthropic": json.dumps(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "more"}}
    ),
    "google": json.dumps({"candidates": [{"content": {"parts": [{"text": "more"}]}}]}),
}


class Server:
    """Answers every request with the same bytes, chunk by chunk, and then does what `then` says."""

    def __init__(self, sent: list[bytes], then: str, clock: ManualClock) -> None:
        self.requests, self._sent, self._then, self._clock = 0, sent, then, clock

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for piece in self._sent:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        await writer.drain()
        await self._end(writer)

    async def _end(self, writer: asyncio.StreamWriter) -> None:
        match self._then:
            case "end":
                writer.write(b"0\r\n\r\n")
            case "cut":
                writer.write(b"400\r\nda")
            case "reset":
                await asyncio.sleep(0.05)  # what was sent must arrive
                writer.transport.abort()
            case "silence" | "pings":
                with suppress(OSError):
                    await self._linger(writer)

    async def _linger(self, writer: asyncio.StreamWriter) -> None:
        """Keep the connection open, while a second passes every hundredth of one."""
        while not writer.is_closing():
            await asyncio.sleep(0.01)
            self._clock.advance(1)
            if self._then == "pings":
                writer.write(b"8\r\n: ping\n\n\r\n")
                await writer.drain()
            elif self._clock.awake_s() > 60:
                return


@asynccontextmanager
async def serving(
    wire: str, sent: list[bytes], then: str
) -> AsyncIterator[tuple[Models, Server, ManualClock]]:
    clock = ManualClock(autojump=False)
    server = Server(sent, then, clock)
    async with listening(server.serve) as port:
        models = models_at(f"http://127.0.0.1:{port}/v1", format=wire, clock=clock)
        try:
            yield models, server, clock
        finally:
            await models.close()


NO_TEXT = "¤"
"""Stands for a byte that no UTF-8 has."""


class Odd(NamedTuple):
    """An oddity: how both counts are written, what follows the answer, and how the connection ends.

    `is_known`: whether its tokens can be read all the same.
    """

    given: Any = 20
    made: Any = 7
    late: tuple[str, ...] = ()
    then: str = "end"
    is_known: bool = True
    has_counts: bool = True
    details: Any = None


ODDITIES = {
    "nothing odd": Odd(),
    "whole numbers with a point": Odd(20.0, 7.0),
    "details as an empty list": Odd(details=[]),
    "half a token": Odd(20.5, is_known=False),
    "a count as text": Odd("20", is_known=False),
    "a count as truth": Odd(True, is_known=False),
    "a count as a list": Odd([20], is_known=False),
    "fewer than none": Odd(20, -1, is_known=False),
    "2⁶⁴ - 1 tokens": Odd(18446744073709551615, is_known=False),
    "two counts of 2⁶²": Odd(2**62, 2**62, is_known=False),
    "a number of 300 digits": Odd(10**300, is_known=False),
    "just above what any model has": Odd(10_000_001, is_known=False),
    "null": Odd(late=("null",)),
    "no JSON": Odd(late=("hello",)),
    "a list": Odd(late=("[]",)),
    "nested without end": Odd(late=("[" * 100_000,)),
    "bytes that are no text": Odd(late=(f'{{"type": "{NO_TEXT}"}}',)),
    "a late error": Odd(late=('{"type": "error", "error": {"message": "overloaded", "code": 500}}',)),
    "a body that is cut": Odd(then="cut"),
    "a connection that breaks": Odd(then="reset"),
    "silence": Odd(then="silence"),
    "pings": Odd(then="pings"),
    "no counts": Odd(has_counts=False),
    "no counts, then cut": Odd(has_counts=False, then="cut", is_known=False),
    "no counts, then silence": Odd(has_counts=False, then="silence", is_known=False),
    "no counts, then pings": Odd(has_counts=False, then="pings", is_known=False),
}


def sent_by(wire: str, odd: Odd) -> list[bytes]:
    """The events of an answer with this oddity."""
    more = {} if odd.details is None else dict.fromkeys(DETAILS[wire], odd.details)
    told = ANSWERS[wire]("Hello", odd.given, odd.made, **more)
    if not odd.has_counts:
        told = [*told[:-1], without_counts(told[-1])]
    if odd.late and wire not in WITH_FINISH:
        told[-1:] = [*odd.late, told[-1]]  # the counts come after it
    return [as_sent(one) for one in (*told, *odd.late)]


def as_sent(event: str) -> bytes:
    return events(event).replace(NO_TEXT.encode(), b"\xff")


def without_counts(event: str) -> str:
    found = json.loads(event)
    return json.dumps({key: value for key, value in found.items() if key not in ("usage", "usageMetadata")})


@pytest.mark.parametrize("odd", ODDITIES.values(), ids=ODDITIES.keys())
@pytest.mark.parametrize("wire", WIRE_FORMATS)
async def test_an_answer_that_is_whole_is_asked_for_once(memory: World, wire: str, odd: Odd) -> None:
    async with serving(wire, sent_by(wire, odd), odd.then) as (models, server, network):
        clock = ManualClock()
        prices = read_prices({NAME: {"input": 1, "output": 2}})
        agent = AgentHandler(models, prices, clock, SeededDice(1))
        process = await memory.process(handlers={"codergen": agent}, clock=clock)
        run = await process.start(line("tell", tell=f'llm_model="{NAME}"'))
    assert (run.status, run.context["last_response"]) == (RunStatus.COMPLETED, "Hello")
    assert server.requests == 1
    assert network.awake_s() < LATE_S + 30
    written = await process.events()
    (started,) = [event for event in written if isinstance(event, CallStarted)]
    (finished,) = [event for event in written if isinstance(event, CallFinished)]
    assert finished.status is CallStatus.OK
    (seen,) = await read_calls(process.store.log, "run")
    if odd.is_known:
        assert finished.usage == KNOWN or not odd.has_counts
        assert (finished.is_cost_unknown, finished.note, seen.estimated) == (False, "", None)
    else:
        assert (finished.usage, finished.cost_micro, finished.is_cost_unknown) == (None, None, True)
        assert finished.note == seen.note == (UNREADABLE if odd.has_counts else NOT_COUNTED)
        assert seen.estimated == started.reserved
    (day,) = [one for one in (started.reserved.scopes if started.reserved else ()) if one.startswith("day/")]
    (scope,) = await process.store.limits.read([day])
    reserved = started.reserved.tokens if started.reserved else 0
    if odd.has_counts or not odd.is_known:
        assert scope.spent.tokens == (27 if odd.is_known else reserved)
    assert scope.reserved.tokens == 0
    assert await process.is_sound()


@pytest.mark.parametrize("wire", WIRE_FORMATS)
async def test_an_answer_with_bytes_that_are_no_text_is_none(wire: str) -> None:
    """It can be asked for again, as anything that is no answer."""
    sent = [as_sent(one) for one in ANSWERS[wire](NO_TEXT, 20, 7)]
    sent = [one.replace(b"\\u00a4", b"\xff") for one in sent]
    async with serving(wire, sent, "end") as (models, _, _):
        failure = await failure_of(models)
    assert "sent an invalid response" in failure.message


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ([r"a\ud83d", r"\ude00 b"], "a😀 b"),
        ([r"\uD83D", r"\uDE00\ud83d", r"\ude00"], "😀😀"),
        ([r"a\ud83d b"], "a� b"),
        ([r"a\ude00"], "a�"),
        ([r"a\ud83d", "b"], "ab"),
        ([r"\\\ud83d\ude00\"\ud83d", r"\ude00\n"], '\\😀"😀\n'),
    ],
)
@pytest.mark.parametrize("wire", WIRE_FORMATS)
async def test_an_answer_whose_characters_are_cut_in_two_is_whole(
    wire: str, written: list[str], said: str
) -> None:
    """As servers do that cut UTF-16 into pieces."""
    told: list[str] = []
    for event in ANSWERS[wire]("Hello", 20, 7):
        told += [event.replace("Hello", one) for one in written] if "Hello" in event else [event]
    async with serving(wire, [events(*told)], "end") as (models, server, _):
        came, failure = await pieces_of(models)
    assert failure is None
    assert "".join(piece.text for piece in came if isinstance(piece, TextDelta)) == said
    assert server.requests == 1


def test_an_error_is_read_in_whatever_encoding_it_comes() -> None:
    assert error_in(b'{"error": {"message": "d\xe9bit"}}') == {"message": "d\N{REPLACEMENT CHARACTER}bit"}


@pytest.mark.parametrize("wire", WIRE_FORMATS)
async def test_what_follows_a_whole_answer_adds_nothing_to_it(wire: str) -> None:
    told = ANSWERS[wire]("Hello", 20, 7)
    async with serving(wire, [events(*told, MORE_TEXT[wire])], "end") as (models, _, _):
        came, failure = await pieces_of(models)
    assert failure is None
    assert [piece.text for piece in came if isinstance(piece, TextDelta)] == ["Hello"]
    assert isinstance(came[-1], Finished)
    assert came[-1].usage == TokenUsage(input=20, output=7)


@pytest.mark.parametrize("then", ["end", "cut", "silence"])
@pytest.mark.parametrize("wire", WIRE_FORMATS)
async def test_an_answer_without_an_end_does_not_count(wire: str, then: str) -> None:
    told = ANSWERS[wire]("Hello", 20, 7)[: 1 if wire != "anthropic" else -1]
    async with serving(wire, [events(*told)], then) as (models, server, _):
        _, failure = await pieces_of(models)
    assert failure is not None
    assert (failure.kind, failure.may_have_cost, server.requests) == ("cut", True, 1)


async def test_an_answer_with_an_open_block_is_not_whole_until_the_block_or_the_message_ends() -> None:
    block = {"type": "tool_use", "id": "call_a", "name": "look", "input": {}}
    piece = {"type": "input_json_delta", "partial_json": '{"at": "the sky"}'}
    begun = [
        json.dumps({"type": "content_block_start", "index": 0, "content_block": block}),
        json.dumps({"type": "content_block_delta", "index": 0, "delta": piece}),
        json.dumps({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}),
    ]
    for last in ("content_block_stop", "message_stop"):
        told = [*begun, json.dumps({"type": last, "index": 0})]
        async with serving("anthropic", [events(*told)], "cut") as (models, _, _):
            came, failure = await pieces_of(models)
        assert failure is None
        assert ToolCall("call_a", "look", '{"at": "the sky"}') in came
    async with serving("anthropic", [events(*begun)], "cut") as (models, _, _):
        _, failure = await pieces_of(models)
    assert failure is not None, "nobody knows whether its arguments are whole"


async def test_parts_whose_sum_no_model_has_are_a_note() -> None:
    """Each of the counts is possible; together they are not."""
    told = anthropic("Hello", 6_000_000, 7, cache_read_input_tokens=6_000_000)
    async with serving("anthropic", [events(*told)], "end") as (models, _, _):
        came, _ = await pieces_of(models)
    assert isinstance(came[-1], Finished)
    assert came[-1].note == UNREADABLE


@pytest.mark.parametrize("nothing", [0, None, 0.0])
@pytest.mark.parametrize("wire", WIRE_FORMATS)
async def test_a_server_that_counts_no_tokens_has_not_counted(wire: str, nothing: Any) -> None:
    """Else an answer would cost nothing, and no limit would ever be reached."""
    told = ANSWERS[wire]("Hello", nothing, nothing)
    if wire == "anthropic":
        told[0] = told[0].replace("1", "0")
    async with serving(wire, [events(*told)], "end") as (models, _, _):
        came, _ = await pieces_of(models)
    assert isinstance(came[-1], Finished)
    assert came[-1].usage.is_estimated
    assert came[-1].usage.input > 0
    assert came[-1].usage.output > 0
