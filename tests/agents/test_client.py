"""The client against a real HTTP endpoint: answers, refusals, and streams that break."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from onward.agents.model import (
    Failure,
    FailureKind,
    Finished,
    FinishReason,
    Model,
    ModelFailed,
    Streamed,
    TextDelta,
    TokenUsage,
    ToolCall,
    collect,
)
from onward.model.values import WIRE_FORMATS
from onward.testing.clock import ManualClock
from onward.testing.model_endpoint import LedgerEntry, RequestLedger, serving_model
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.agents.asking import (
    KEY,
    always,
    at_endpoint,
    events,
    failure_of,
    models_at,
    pieces_of,
    raw_server,
    request,
    response,
)

pytestmark = pytest.mark.anyio
CALLS = (ToolCall("call_a", "look", '{"at": "the sky"}'), ToolCall("call_b", "leap", "{}"))
HELLO = '{"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}'
STOP = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'


@pytest.fixture(params=WIRE_FORMATS)
def wire(request: pytest.FixtureRequest) -> str:
    """Every format gives the same answers and failures."""
    return str(request.param)


async def test_an_answer_streams_in_its_pieces_and_ends_with_its_usage(wire: str) -> None:
    async with at_endpoint(always(text="Hi there", reasoning="hmm", chunk=3), format=wire) as (models, _):
        came, failure = await pieces_of(models)
    assert failure is None
    assert [piece.text for piece in came if isinstance(piece, TextDelta)] == ["Hi ", "the", "re"]
    assert came[-1] == Finished(
        usage=TokenUsage(input=2, output=3, reasoning=1),
        finish_reason=FinishReason.STOP,
        model="small",
        request_id="req_1",
    )


async def test_tool_calls_come_whole_after_their_pieces(wire: str) -> None:
    async with at_endpoint(always(tool_calls=CALLS), format=wire) as (models, _):
        answer = await collect(models.stream(request()))
    assert answer.tool_calls == CALLS
    assert answer.finished.finish_reason is FinishReason.TOOL_CALLS


async def test_the_ledger_of_the_endpoint_has_the_idempotency_key_and_not_the_key(wire: str) -> None:
    async with at_endpoint(format=wire) as (models, endpoint):
        await pieces_of(models, key="run/step/m1")
        await pieces_of(models, key="run/step/m1")
    first, second = endpoint.ledger.entries
    assert (first.idempotency_key, first.has_key, first.is_whole) == ("run/step/m1", True, True)
    assert first.body_hash == second.body_hash
    assert KEY not in repr(endpoint.ledger.entries)


async def test_an_idempotency_key_of_any_characters_can_be_sent(wire: str) -> None:
    async with at_endpoint(format=wire) as (models, endpoint):
        await pieces_of(models, key="run/prüfen#1/a b\r\nX: y")
    assert endpoint.ledger.entries[0].idempotency_key == "run/pr%C3%BCfen#1/a%20b%0D%0AX:%20y"


async def test_half_a_character_is_a_bad_request_and_is_not_sent(wire: str) -> None:
    async with at_endpoint(format=wire) as (models, endpoint):
        failure = await failure_of(models, request("\ud800"))
    assert (failure.kind, failure.may_have_cost) == (FailureKind.REQUEST, False)
    assert endpoint.ledger.entries == []


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (ScriptedReply(status=401), FailureKind.AUTH),
        (ScriptedReply(status=402), FailureKind.CREDIT),
        (ScriptedReply(status=403), FailureKind.FORBIDDEN),
        (ScriptedReply(status=404), FailureKind.REQUEST),
        (ScriptedReply(status=302), FailureKind.REQUEST),
        (ScriptedReply(status=429), FailureKind.RATE_LIMIT),
        (ScriptedReply(status=429, body='{"error":{"code":"insufficient_quota"}}'), FailureKind.CREDIT),
        (
            ScriptedReply(status=400, body='{"error":{"code":"context_length_exceeded"}}'),
            FailureKind.TOO_LONG,
        ),
        (ScriptedReply(status=500), FailureKind.TRANSIENT),
        (ScriptedReply(status=503), FailureKind.TRANSIENT),
        (
            ScriptedReply(status=502, body="<html><title>Bad gateway</title>", content_type="text/html"),
            FailureKind.TRANSIENT,
        ),
    ],
)
async def test_a_refusal_is_classified_and_costs_nothing(
    reply: ScriptedReply, kind: FailureKind, wire: str
) -> None:
    async with at_endpoint(ModelScript(default=reply), format=wire) as (models, _):
        failure = await failure_of(models)
    assert (failure.kind, failure.status, failure.request_id) == (kind, reply.status, "req_1")
    assert (failure.provider, failure.model, failure.may_have_cost) == ("acme", "small", False)
    assert failure.message.startswith("acme:small ")


async def test_the_time_to_come_back_is_kept(wire: str) -> None:
    clock = ManualClock(autojump=False)
    rules = (
        ScriptRule(nth=1, reply=ScriptedReply(status=429, retry_after="7")),
        ScriptRule(nth=2, reply=ScriptedReply(status=503, retry_after="Tue, 14 Nov 2023 22:14:20 GMT")),
        ScriptRule(nth=3, reply=ScriptedReply(status=429)),
    )
    async with at_endpoint(ModelScript(rules=rules), clock=clock, format=wire) as (models, _):
        told = [(await failure_of(models)).retry_at_us for _ in rules]
    assert told == [clock.now_us() + 7_000_000, clock.now_us() + 60_000_000, None]


async def test_an_html_page_instead_of_an_answer_is_a_wrong_address(wire: str) -> None:
    async with at_endpoint(always(break_after=0, break_with="html"), format=wire) as (models, _):
        failure = await failure_of(models)
    assert failure.kind is FailureKind.REQUEST
    assert "base_url" in failure.message


@pytest.mark.parametrize("how", ["cut", "malformed", "error"])
async def test_a_broken_stream_gives_what_came_and_then_fails(how: str, wire: str) -> None:
    async with at_endpoint(always(text="abcdefgh", chunk=2, break_after=2, break_with=how), format=wire) as (
        models,
        endpoint,
    ):
        came, failure = await pieces_of(models)
    assert failure is not None
    assert failure.kind is (FailureKind.TRANSIENT if how == "error" else FailureKind.CUT)
    assert failure.may_have_cost
    assert not any(isinstance(piece, Finished) for piece in came)
    # The end of a connection may overtake the last pieces, but nothing else may come.
    assert came == [TextDelta("ab"), TextDelta("cd")][: len(came)]
    assert not endpoint.ledger.entries[0].is_whole


async def test_a_stalled_stream_is_cut_when_its_time_is_over(wire: str) -> None:
    clock = ManualClock(autojump=False)
    script = always(text="abcdefgh", chunk=2, break_after=2, break_with="stall")
    async with (
        at_endpoint(script, clock=clock, between_s=40, format=wire) as (models, _),
        aclosing(models.stream(request())) as pieces,
    ):
        assert [await anext(pieces), await anext(pieces)] == [TextDelta("ab"), TextDelta("cd")]
        failure = await _fails_as_time_passes(asyncio.ensure_future(_failure(pieces)), clock, 5)
    assert failure.kind is FailureKind.CUT
    assert "sent nothing for 40 s" in failure.message


async def test_a_stream_that_never_ends_is_cut_when_its_whole_time_is_over(wire: str) -> None:
    clock = ManualClock(autojump=False)
    script = always(text="abcdefgh", chunk=2, break_after=2, break_with="stall")
    async with (
        at_endpoint(script, clock=clock, total_s=90, format=wire) as (models, _),
        aclosing(models.stream(request())) as pieces,
    ):
        assert await anext(pieces) == TextDelta("ab")
        failure = await _fails_as_time_passes(asyncio.ensure_future(_failure(pieces)), clock, 5)
    assert "took longer than 90 s" in failure.message


async def test_no_answer_at_all_is_transient_and_may_have_cost() -> None:
    clock, came = ManualClock(autojump=False), asyncio.Event()
    ledger = RequestLedger(told=lambda _: came.set())
    async with serving_model(always(first_delay_s=3600), ledger=ledger) as endpoint:
        models = models_at(endpoint.base_url, clock=clock, first_byte_s=60)
        failing = asyncio.ensure_future(failure_of(models))
        await came.wait()
        failure = await _fails_as_time_passes(failing, clock, 5)
        await models.close()
    assert failure.kind is FailureKind.TRANSIENT
    assert failure.may_have_cost


async def test_an_endpoint_that_is_not_there_costs_nothing() -> None:
    async with raw_server(lambda _: b"") as (url, _):
        pass  # its port is free again
    models = models_at(url)
    failure = await failure_of(models)
    await models.close()
    assert (failure.kind, failure.status, failure.may_have_cost) == (FailureKind.TRANSIENT, None, False)
    assert "could not be reached" in failure.message


async def test_a_connection_that_closes_without_an_answer_may_have_cost() -> None:
    failure = await _failure_at(b"")
    assert failure.kind is FailureKind.TRANSIENT
    assert failure.may_have_cost


async def test_what_is_not_http_is_transient() -> None:
    assert (await _failure_at(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")).kind is FailureKind.TRANSIENT


async def test_a_stream_without_done_is_whole_if_it_says_why_it_ended(wire: str) -> None:
    async with at_endpoint(always(text="Hi", has_done=False), format=wire) as (models, _):
        assert (await collect(models.stream(request()))).text == "Hi"


async def test_a_stream_that_ends_without_an_end_is_cut() -> None:
    assert (await _failure_at(response(events(HELLO)))).kind is FailureKind.CUT


async def test_done_alone_is_an_end() -> None:
    came, failure = await _pieces_at(response(events(HELLO, "[DONE]")))
    assert failure is None
    assert came[0] == TextDelta("Hello")


async def test_comments_empty_choices_other_fields_and_other_line_ends_are_passed_over() -> None:
    body = b": waiting\r\n\r\nevent: x\r\nid: 1\r\n" + events('{"choices":[],"odd":{"a":[1]}}', HELLO, STOP)
    came, failure = await _pieces_at(response(body.replace(b"\n\n", b"\r\n\r\n") + b"data: [DONE]"))
    assert failure is None
    assert came[0] == TextDelta("Hello")


async def test_a_server_that_does_not_stream_is_understood(wire: str) -> None:
    script = always(text="Hi", reasoning="hm", tool_calls=CALLS, is_whole_json=True)
    async with at_endpoint(script, format=wire) as (models, _):
        answer = await collect(models.stream(request()))
    assert (answer.text, answer.tool_calls) == ("Hi", CALLS)


async def test_an_error_in_a_successful_response_is_an_error() -> None:
    body = b'{"error": {"code": 402, "message": "Insufficient credits"}}'
    assert (await _failure_at(response(body, kind="application/json"))).kind is FailureKind.CREDIT


@pytest.mark.parametrize(
    "reply", [ScriptedReply(text=""), ScriptedReply(text="", reasoning="I think, therefore")]
)
async def test_nothing_but_thoughts_is_an_empty_answer_with_its_usage(
    reply: ScriptedReply, wire: str
) -> None:
    async with at_endpoint(ModelScript(default=reply), format=wire) as (models, _):
        failure = await failure_of(models)
    assert failure.kind is FailureKind.EMPTY
    assert failure.usage is not None
    assert failure.may_have_cost


async def test_an_answer_at_its_ceiling_says_so(wire: str) -> None:
    async with at_endpoint(always(text="x" * 100), format=wire) as (models, _):
        answer = await collect(models.stream(request(max_tokens=5)))
    assert answer.finished.finish_reason is FinishReason.LENGTH
    assert answer.finished.usage.output == 5


async def test_an_answer_over_its_ceiling_is_told_as_it_was_counted(wire: str) -> None:
    async with at_endpoint(always(text="x" * 100, is_over_ceiling=True), format=wire) as (models, _):
        answer = await collect(models.stream(request(max_tokens=5)))
    assert answer.finished.usage == TokenUsage(input=2, output=25)


async def test_a_refusal_of_the_model_is_an_answer(wire: str) -> None:
    async with at_endpoint(always(refusal="I cannot."), format=wire) as (models, _):
        answer = await collect(models.stream(request()))
    assert (answer.text, answer.finished.finish_reason) == ("I cannot.", FinishReason.REFUSAL)


async def test_usage_that_nobody_counted_is_estimated_and_marked(wire: str) -> None:
    async with at_endpoint(always(text="abcdefgh", counts=False), format=wire) as (models, _):
        answer = await collect(models.stream(request()))
    assert answer.finished.usage.is_estimated
    assert answer.finished.usage.output >= 2


async def test_a_closed_stream_drops_its_connection() -> None:
    ended = asyncio.Event()

    def told(entry: LedgerEntry) -> None:
        if entry.sent:
            ended.set()

    async with serving_model(
        always(text="x" * 10_000_000, chunk=1000), ledger=RequestLedger(told=told)
    ) as endpoint:
        models = models_at(endpoint.base_url)
        async with aclosing(models.stream(request())) as pieces:
            await anext(pieces)
        await ended.wait()
        await models.close()
    assert not endpoint.ledger.entries[0].is_whole


async def test_the_ledger_tells_an_answer_whose_client_left() -> None:
    """Even one so short that the system would take it without an error."""
    clock, ended = ManualClock(autojump=False), asyncio.Event()
    ledger = RequestLedger(told=lambda entry: ended.set() if entry.sent else None)
    script = always(text="ab" * 500, chunk=2, delay_s=60)
    async with serving_model(script, ledger=ledger, clock=clock) as endpoint:
        models = models_at(endpoint.base_url)
        async with aclosing(models.stream(request())) as pieces:
            await anext(pieces)
        await clock.until_waiting()
        while not ended.is_set():
            clock.advance(60)
            await asyncio.sleep(0)
        await models.close()
    assert not ledger.entries[0].is_whole


async def test_a_cancelled_request_drops_its_connection(wire: str) -> None:
    came = asyncio.Event()
    script = always(text="abcdef", chunk=2, break_after=1, break_with="stall")
    async with at_endpoint(script, format=wire) as (models, endpoint):
        waiting = asyncio.ensure_future(collect(_noticed(models, came)))
        await came.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await endpoint.until_idle()


async def _noticed(models: Model, came: asyncio.Event) -> AsyncIterator[Streamed]:
    async with aclosing(models.stream(request())) as pieces:
        async for piece in pieces:
            came.set()
            yield piece


async def test_a_server_that_accepts_no_connection_is_given_up_and_costs_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as waiting:
        for _ in range(4):  # its queue is full after one or two, and the system drops what comes then
            queued = waiting.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(full.getsockname())
        models = models_at(f"http://127.0.0.1:{full.getsockname()[1]}/v1", connect_s=0.05)
        failure = await failure_of(models)
        await models.close()
    assert (failure.kind, failure.may_have_cost) == (FailureKind.TRANSIENT, False)
    assert "within 0.05 s" in failure.message


async def test_every_request_has_a_connection_of_its_own(wire: str) -> None:
    """A server may close an idle one at the moment it is used again, and the request would seem to fail."""
    async with at_endpoint(format=wire) as (models, endpoint):
        for _ in range(3):
            await pieces_of(models)
        assert endpoint.connections == 3


async def test_a_client_can_be_used_again_after_it_was_closed(wire: str) -> None:
    async with at_endpoint(format=wire) as (models, _):
        await pieces_of(models)
        await models.close()
        _, failure = await pieces_of(models)
    assert failure is None


async def _failure(pieces: AsyncIterator[Streamed]) -> Failure:
    with pytest.raises(ModelFailed) as caught:
        await collect(pieces)
    return caught.value.failure


async def _fails_as_time_passes(
    failing: asyncio.Future[Failure], clock: ManualClock, seconds: float
) -> Failure:
    while not failing.done():
        clock.advance(seconds)
        await asyncio.sleep(0)
    return await failing


async def _pieces_at(sent: bytes) -> tuple[list[Streamed], Failure | None]:
    async with raw_server(lambda _: sent) as (url, _):
        models = models_at(url)
        came, failure = await pieces_of(models)
        await models.close()
    return came, failure


async def _failure_at(sent: bytes) -> Failure:
    _, failure = await _pieces_at(sent)
    assert failure is not None
    return failure
