"""Streams and errors as the documentation of each provider shows them, played on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.agents.model import (
    AnswerCollector,
    Failure,
    FailureKind,
    FinishReason,
    ModelAnswer,
    Reasoning,
    Text,
    TokenUsage,
    ToolCall,
)
from onward.testing.clock import ManualClock
from tests.agents.asking import KEY, models_at, pieces_of, raw_server, request, response

pytestmark = pytest.mark.anyio
EXCHANGES = Path(__file__).parent / "exchanges"
WEATHER = ('{"location": "San Francisco"}', '{"location": "Lima"}')


async def played(name: str) -> tuple[ModelAnswer | None, Failure | None]:
    """What comes of a stream, and the head of the request is that of its format."""
    format = name.partition("-")[0]
    body = (EXCHANGES / f"{name}.sse").read_bytes()
    async with raw_server(lambda _: response(body, more="request-id: req_1\r\n")) as (url, heads):
        models = models_at(url, format=format)
        came, failure = await pieces_of(models)
        await models.close()
    assert KEY.encode() in heads[0]
    assert KEY.encode() not in heads[0].split(b"\r\n")[0], "a key in an address ends up in logs"
    collecting = AnswerCollector()
    for piece in came:
        collecting.add(piece)
    if failure is not None:
        return None, failure
    assert collecting.finished is not None
    return ModelAnswer(message=collecting.message(), finished=collecting.finished), None


@pytest.mark.parametrize(
    ("name", "usage", "model"),
    [
        (
            "openai-tools",
            TokenUsage(input=70, output=89, cached_input=32, reasoning=40),
            "gpt-5.4-2026-03-05",
        ),
        (
            "anthropic-tools",
            TokenUsage(
                input=2312,
                output=89,
                cached_input=2000,
                cache_write=300,
                cache_write_1h=100,
                reasoning=40,
            ),
            "claude-sonnet-4-6",
        ),
        (
            "google-tools",
            TokenUsage(input=70, output=89, cached_input=32, reasoning=40),
            "gemini-3.1-pro-preview",
        ),
    ],
)
async def test_text_parallel_calls_and_usage_of_every_kind_are_read(
    name: str, usage: TokenUsage, model: str
) -> None:
    answer, failure = await played(name)
    assert failure is None
    assert answer is not None
    assert answer.text == "I look at both."
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        ("get_weather", arguments) for arguments in WEATHER
    ]
    assert len({call.id for call in answer.tool_calls}) == 2
    assert answer.finished.usage == usage
    assert (answer.finished.finish_reason, answer.finished.model) == (FinishReason.TOOL_CALLS, model)
    assert answer.finished.request_id == "req_1"


async def test_thoughts_of_anthropic_keep_their_proofs() -> None:
    answer, _ = await played("anthropic-tools")
    assert answer is not None
    assert answer.message.parts[:3] == (
        Reasoning("Two cities, two calls.", "acme:small plain EqQBCgIYAhIM+/="),
        Reasoning("", "acme:small redacted EmwKAhgBEgy3va3"),
        Text("I look at both."),
    )


async def test_a_proof_alone_is_kept_where_a_model_does_not_show_its_thoughts() -> None:
    answer, _ = await played("anthropic-omitted")
    assert answer is not None
    assert answer.message.parts == (
        Reasoning("", "acme:small plain EosnCkYICxIM"),
        Text("The answer is 21."),
    )


async def test_an_overloaded_provider_inside_an_answer_is_transient() -> None:
    _, failure = await played("anthropic-overloaded")
    assert failure is not None
    assert (failure.kind, failure.may_have_cost) == (FailureKind.TRANSIENT, True)
    assert "Overloaded" in failure.message


async def test_the_proof_of_a_call_stays_with_the_call() -> None:
    answer, _ = await played("google-tools")
    assert answer is not None
    assert answer.message.parts[0] == Reasoning("Two cities, two calls.")
    assert answer.tool_calls == (
        ToolCall("gp737npz", "get_weather", WEATHER[0], "acme:small plain Es8CCswCAb4+/="),
        ToolCall("call_1", "get_weather", WEATHER[1]),
    )


async def test_a_proof_after_the_text_is_kept_after_it() -> None:
    answer, _ = await played("google-text")
    assert answer is not None
    assert answer.message.parts == (
        Text("Hello! How are you?"),
        Reasoning("", "acme:small plain AY89a18i"),
    )


async def test_a_prompt_that_is_blocked_is_a_refusal_with_its_usage() -> None:
    answer, failure = await played("google-blocked")
    assert failure is None
    assert answer is not None
    assert (answer.text, answer.finished.finish_reason) == ("", FinishReason.REFUSAL)
    assert answer.finished.usage == TokenUsage(input=12)


async def refused(format: str, status: int, body: str, more: str = "") -> Failure:
    """What comes of an error of a format."""
    sent = response(body.encode(), status=f"{status} No", kind="application/json", more=more)
    async with raw_server(lambda _: sent) as (url, _):
        models = models_at(url, clock=ManualClock(autojump=False), format=format)
        _, failure = await pieces_of(models, request())
        await models.close()
    assert failure is not None
    assert not failure.may_have_cost
    return failure


def anthropic(kind: str, message: str = "No.", details: str = "null") -> str:
    error = f'{{"type": "{kind}", "message": "{message}", "details": {details}}}'
    return f'{{"type": "error", "error": {error}, "request_id": "req_011"}}'


def google(code: int, status: str, message: str = "No.", details: str = "[]") -> str:
    error = f'"code": {code}, "message": "{message}", "status": "{status}", "details": {details}'
    return f'[{{"error": {{{error}}}}}]'


KEY_INVALID = '[{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]'
QUOTA = "You exceeded your current quota, please check your plan and billing details."
LOW = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."
REACHED = "You have reached your specified API usage limits."
LONG = "The input token count (1300000) exceeds the maximum number of tokens allowed (1048576)."
SPENT = '{"error_code": "enforced_spend_limit_reached"}'


@pytest.mark.parametrize(
    ("format", "status", "body", "kind"),
    [
        ("anthropic", 529, anthropic("overloaded_error", "Overloaded"), FailureKind.TRANSIENT),
        ("anthropic", 500, anthropic("api_error"), FailureKind.TRANSIENT),
        ("anthropic", 504, anthropic("timeout_error"), FailureKind.TRANSIENT),
        ("anthropic", 429, anthropic("rate_limit_error"), FailureKind.RATE_LIMIT),
        ("anthropic", 429, anthropic("rate_limit_error", details=SPENT), FailureKind.CREDIT),
        ("anthropic", 402, anthropic("billing_error"), FailureKind.CREDIT),
        ("anthropic", 400, anthropic("invalid_request_error", LOW), FailureKind.CREDIT),
        ("anthropic", 400, anthropic("invalid_request_error", REACHED), FailureKind.CREDIT),
        ("anthropic", 401, anthropic("authentication_error"), FailureKind.AUTH),
        ("anthropic", 403, anthropic("permission_error"), FailureKind.FORBIDDEN),
        ("anthropic", 404, anthropic("not_found_error", "model: claude-0"), FailureKind.REQUEST),
        ("anthropic", 400, anthropic("invalid_request_error", "max_tokens: too high"), FailureKind.REQUEST),
        ("anthropic", 413, anthropic("request_too_large"), FailureKind.TOO_LONG),
        (
            "anthropic",
            400,
            anthropic("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"),
            FailureKind.TOO_LONG,
        ),
        (
            "anthropic",
            400,
            anthropic("invalid_request_error", "input length and `max_tokens` exceed context limit"),
            FailureKind.TOO_LONG,
        ),
        ("google", 400, google(400, "INVALID_ARGUMENT", details=KEY_INVALID), FailureKind.AUTH),
        ("google", 401, google(401, "UNAUTHENTICATED"), FailureKind.AUTH),
        ("google", 403, google(403, "PERMISSION_DENIED"), FailureKind.FORBIDDEN),
        ("google", 404, google(404, "NOT_FOUND"), FailureKind.REQUEST),
        ("google", 400, google(400, "INVALID_ARGUMENT", "Invalid JSON payload"), FailureKind.REQUEST),
        ("google", 400, google(400, "INVALID_ARGUMENT", LONG), FailureKind.TOO_LONG),
        (
            "google",
            400,
            google(400, "FAILED_PRECONDITION", "Please enable billing on your project"),
            FailureKind.CREDIT,
        ),
        ("google", 429, google(429, "RESOURCE_EXHAUSTED", QUOTA), FailureKind.RATE_LIMIT),
        ("google", 429, google(429, "RESOURCE_EXHAUSTED", QUOTA + " limit: 0, model: x"), FailureKind.CREDIT),
        ("google", 500, google(500, "INTERNAL"), FailureKind.TRANSIENT),
        ("google", 503, google(503, "UNAVAILABLE", "The model is overloaded."), FailureKind.TRANSIENT),
        ("google", 504, google(504, "DEADLINE_EXCEEDED"), FailureKind.TRANSIENT),
    ],
)
async def test_an_error_is_of_the_kind_that_decides_what_follows(
    format: str, status: int, body: str, kind: FailureKind
) -> None:
    failure = await refused(format, status, body)
    assert (failure.kind, failure.status) == (kind, status)


async def test_the_time_to_come_back_is_in_a_header_or_in_the_error() -> None:
    now_us = ManualClock(autojump=False).now_us()
    told = '[{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "26.5s"}]'
    body = google(429, "RESOURCE_EXHAUSTED", QUOTA, details=told)
    assert (await refused("google", 429, body)).retry_at_us == now_us + 26_500_000
    asked = await refused("anthropic", 429, anthropic("rate_limit_error"), "retry-after: 7\r\n")
    assert asked.retry_at_us == now_us + 7_000_000


async def test_the_id_of_a_request_is_kept_wherever_it_stands() -> None:
    body = (EXCHANGES / "google-text.sse").read_bytes()
    async with raw_server(lambda _: response(body)) as (url, _):
        models = models_at(url, format="google")
        came, _ = await pieces_of(models)
        await models.close()
    assert getattr(came[-1], "request_id", "") == "tTCwacuE"
    sent = await refused("anthropic", 500, anthropic("api_error"), "request-id: req_018\r\n")
    assert sent.request_id == "req_018"


async def test_a_header_of_the_settings_replaces_that_of_the_format() -> None:
    body = (EXCHANGES / "anthropic-omitted.sse").read_bytes()
    async with raw_server(lambda _: response(body)) as (url, heads):
        models = models_at(url, format="anthropic", headers={"Anthropic-Version": "2024-01-01"})
        _, failure = await pieces_of(models)
        await models.close()
    assert failure is None
    sent = [line for line in heads[0].split(b"\r\n") if line.lower().startswith(b"anthropic-version")]
    assert sent == [b"Anthropic-Version: 2024-01-01"]
