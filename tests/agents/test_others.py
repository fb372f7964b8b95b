"""Providers asked through pydantic-ai answer and fail as all others do; scripted models stand behind it."""

from __future__ import annotations

from contextlib import aclosing
from typing import NoReturn

import pytest
from msgspec.structs import replace

pytest.importorskip("pydantic_ai")

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    UserError,
)
from pydantic_ai.messages import ModelRequest as TheirRequest
from pydantic_ai.messages import ModelResponse, SystemPromptPart, ThinkingPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, FunctionModel
from pydantic_ai.models.test import TestModel as LibraryModel
from pydantic_ai.profiles import ModelProfile

from onward.agents.model import (
    AssistantMessage,
    Effort,
    FailureKind,
    Finished,
    JsonFormat,
    ModelRequest,
    Reasoning,
    ReasoningDelta,
    SchemaFormat,
    Text,
    TextDelta,
    TokenUsage,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolChoice,
    ToolMessage,
    ToolResult,
    user,
)
from onward.agents.models import Models
from onward.agents.others import OthersModel
from onward.agents.others_pydantic_ai import failure_of, sealed
from onward.agents.providers import Keys, read_providers
from onward.agents.refusal import AskedModel
from onward.clock import SystemClock
from onward.process import SystemSpawn
from onward.testing.clock import ManualClock
from onward.testing.script import ModelScript, ScriptedReply
from onward.testing.scripted_model import ScriptedModel
from tests.agents.asking import KEY, pieces_of, raw_server, request, response
from tests.agents.other_models import PlayedModel, client_of
from tests.agents.test_same_stream import ASKED, REPLIES

pytestmark = pytest.mark.anyio
ON_THE_WIRE = {"no DONE", "a page", "malformed at once", "malformed", "an error inside"}
"""What only bytes can say, or what the library says in its own words."""
SAME = {name: reply for name, reply in REPLIES.items() if name not in ON_THE_WIRE}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("reply", SAME.values(), ids=SAME)
async def test_the_library_gives_the_same_pieces_and_failures(
    reply: ScriptedReply, asked: ModelRequest
) -> None:
    script, clock = ModelScript(default=reply), ManualClock(autojump=False)
    model = PlayedModel(script, asked)
    told, failure = await pieces_of(client_of(model, clock=clock), asked)
    scripted, expected = await pieces_of(ScriptedModel(script, clock=clock), asked)
    if expected is not None and expected.kind is FailureKind.EMPTY:
        expected = replace(expected, status=None, request_id="")  # the library keeps them to itself
    assert (told, failure) == (scripted, expected)
    assert model.log.open == 0


@pytest.mark.parametrize("how", ["cut", "malformed"])
async def test_an_answer_that_breaks_off_is_cut(how: str) -> None:
    script = ModelScript(default=ScriptedReply(text="abcdef", chunk=2, break_after=1, break_with=how))  # type: ignore[arg-type]
    clock = ManualClock(autojump=False)
    told, failure = await pieces_of(client_of(PlayedModel(script, request()), clock=clock))
    scripted, expected = await pieces_of(ScriptedModel(script, clock=clock))
    assert expected is not None
    assert (told, failure) == (scripted, replace(expected, status=None, request_id=""))


async def test_an_error_inside_the_answer_may_have_cost() -> None:
    script = ModelScript(default=ScriptedReply(text="abcdef", chunk=2, break_after=1, break_with="error"))
    _, failure = await pieces_of(client_of(PlayedModel(script, request()), clock=ManualClock()))
    assert failure is not None
    assert (failure.kind, failure.may_have_cost) == (FailureKind.TRANSIENT, True)


async def test_an_answer_without_an_end_is_no_answer() -> None:
    script = ModelScript(default=ScriptedReply(text="half", has_done=False))
    told, failure = await pieces_of(client_of(PlayedModel(script, request()), clock=ManualClock()))
    assert told == [TextDelta("half")]
    assert failure is not None
    assert failure.kind is FailureKind.CUT


async def test_a_stalled_answer_fails_when_its_time_is_over() -> None:
    script = ModelScript(default=ScriptedReply(text="ab", break_after=1, break_with="stall"))
    model = PlayedModel(script, request())
    told, failure = await pieces_of(client_of(model, clock=SystemClock(), between_s=0.01))
    assert told == [TextDelta("ab")]
    assert failure is not None
    assert (failure.kind, failure.may_have_cost) == (FailureKind.CUT, True)
    assert "sent nothing for 0.01 s" in failure.message
    assert model.log.open == 0


async def test_whoever_stops_early_closes_the_stream() -> None:
    model = PlayedModel(ModelScript(default=ScriptedReply(text="abcdef", chunk=1)), request())
    async with aclosing(client_of(model, clock=ManualClock()).stream(request())) as pieces:
        assert await anext(pieces) == TextDelta("a")
        assert model.log.open == 1
    assert model.log.open == 0


async def test_every_kind_of_tokens_is_counted() -> None:
    usage = TokenUsage(input=90, output=20, cached_input=5, cache_write=30, cache_write_1h=10, reasoning=3)
    model = PlayedModel(ModelScript(default=ScriptedReply(text="Hi", usage=usage)), request())
    told, _ = await pieces_of(client_of(model, clock=ManualClock()))
    assert isinstance(told[-1], Finished)
    assert told[-1].usage == usage


async def test_the_request_is_told_in_the_words_of_the_library() -> None:
    asked = request(
        "Look.",
        system="Be brief.",
        max_tokens=9,
        temperature=0.5,
        effort=Effort.LOW,
        stop=("END",),
        tools=(Tool("look", "Looks.", {"type": "object"}), Tool("leap")),
        tool_choice=ToolChoice.REQUIRED,
    )
    profile = ModelProfile(supports_thinking=True)
    model = PlayedModel(ModelScript(), asked, profile=profile)
    await pieces_of(client_of(model, clock=ManualClock()), asked, key="run/1#a b")
    put = model.log.asked[0]
    assert put.settings["max_retries"] == 0
    assert put.settings["extra_headers"] == {"Idempotency-Key": "run/1#a%20b"}
    assert (put.settings["max_tokens"], put.settings["temperature"]) == (9, 0.5)
    assert (put.settings["stop_sequences"], put.settings["tool_choice"]) == (["END"], "required")
    assert put.parameters.thinking == "low"
    assert [tool.name for tool in put.parameters.function_tools] == ["look", "leap"]
    assert isinstance(put.messages[0], TheirRequest)
    assert [type(part).__name__ for part in put.messages[0].parts] == ["SystemPromptPart", "UserPromptPart"]


async def test_a_conversation_is_told_in_turns_with_what_this_model_signed() -> None:
    thought = ThinkingPart("hm", signature="s1", provider_name="played")
    called = ToolCallPart("look", {}, "a", provider_name="played", provider_details={"thought": "x"})
    asked = request(
        messages=(
            user("Look."),
            AssistantMessage(
                (
                    Reasoning("hm", sealed("acme:small", thought)),
                    Reasoning("of another", sealed("acme:large", thought)),
                    Text("I look."),
                    ToolCall("a", "look", "{", sealed("acme:small", called)),
                )
            ),
            ToolMessage((ToolResult("a", "no", is_error=True),)),
            user("And now?"),
        )
    )
    model = PlayedModel(ModelScript(), asked)
    await pieces_of(client_of(model, clock=ManualClock()), asked)
    first, answered, after = model.log.asked[0].messages
    assert isinstance(first, TheirRequest)
    assert not any(isinstance(part, SystemPromptPart) for part in first.parts)
    assert isinstance(answered, ModelResponse)
    signed, _, call = answered.parts
    assert signed == thought
    assert isinstance(call, ToolCallPart)
    assert (call.args, call.provider_details) == ({"invalid": "{"}, {"thought": "x"})
    result = after.parts[0]
    assert isinstance(result, ToolReturnPart)
    assert (result.tool_name, result.tool_call_id, result.outcome) == ("look", "a", "failed")
    assert len(after.parts) == 2


SCHEMA = SchemaFormat("city", {"type": "object", "properties": {"name": {"type": "string"}}})


@pytest.mark.parametrize(
    ("format", "tools", "knows", "mode"),
    [
        (SCHEMA, (), True, "native"),
        (SCHEMA, (), False, "prompted"),
        (SCHEMA, (Tool("look"),), True, "prompted"),
        (JsonFormat(), (), True, "prompted"),
        (None, (), True, "text"),
    ],
)
async def test_a_structured_answer_is_asked_for_as_the_model_can(
    format: SchemaFormat | JsonFormat | None, tools: tuple[Tool, ...], knows: bool, mode: str
) -> None:
    asked = request(format=format, tools=tools)
    model = PlayedModel(ModelScript(), asked, profile=ModelProfile(supports_json_schema_output=knows))
    _, failure = await pieces_of(client_of(model, clock=ManualClock()), asked)
    assert failure is None
    put = model.log.asked[0].parameters
    assert put.output_mode == mode
    told = "".join(part.content for part in put.instruction_parts or [])
    assert ("JSON" in told) == (mode == "prompted")


async def test_half_a_character_is_refused_before_anything_is_sent() -> None:
    asked = request("\ud800")
    model = PlayedModel(ModelScript(), asked)
    _, failure = await pieces_of(client_of(model, clock=ManualClock()), asked)
    assert failure is not None
    assert failure.kind is FailureKind.REQUEST
    assert "a lone surrogate" in failure.message
    assert model.log.asked == []


async def test_a_thought_comes_with_its_signature() -> None:
    async def thinking(_: object, __: AgentInfo):  # type: ignore[no-untyped-def] # noqa: ANN202
        yield {0: DeltaThinkingPart(content="hm")}
        yield {0: DeltaThinkingPart(signature="s1")}
        yield "Yes."

    told, _ = await pieces_of(client_of(FunctionModel(stream_function=thinking), clock=ManualClock()))
    signature = sealed("acme:small", ThinkingPart("hm", signature="s1", provider_name="function"))
    assert told[:2] == [ReasoningDelta("hm"), ReasoningDelta("", signature)]


async def test_the_tools_of_the_librarys_own_model_are_called() -> None:
    asked = request(tools=(Tool("look", "Looks.", {"type": "object", "properties": {}}),))
    told, _ = await pieces_of(client_of(LibraryModel(), clock=ManualClock()), asked)
    assert [piece.name for piece in told if isinstance(piece, ToolCallDelta)] == ["look"]


SMALL = AskedModel("acme", "small")


@pytest.mark.parametrize(
    ("error", "kind", "may_have_cost"),
    [
        (ModelHTTPError(401, "small"), FailureKind.AUTH, False),
        (ModelHTTPError(403, "small"), FailureKind.FORBIDDEN, False),
        (ModelHTTPError(404, "small"), FailureKind.REQUEST, False),
        (ModelHTTPError(418, "small"), FailureKind.REQUEST, False),
        (ModelHTTPError(599, "small"), FailureKind.TRANSIENT, False),
        (ModelHTTPError(429, "small"), FailureKind.RATE_LIMIT, False),
        (
            ModelHTTPError.for_category(ModelQuotaExceededError, status_code=429, model_name="small"),
            FailureKind.CREDIT,
            False,
        ),
        (ModelContextWindowExceededError("small", "too much"), FailureKind.TOO_LONG, False),
        (ModelRateLimitError("small", "slower", in_stream=True), FailureKind.RATE_LIMIT, True),
        (ModelAPIError("small", "odd"), FailureKind.TRANSIENT, True),
        (ModelConnectionError("small", "refused", phase="connect"), FailureKind.TRANSIENT, False),
        (ModelConnectionError("small", "reset", phase="read"), FailureKind.TRANSIENT, True),
        (UserError("Native structured output is not supported"), FailureKind.REQUEST, False),
        (OSError("no route"), FailureKind.TRANSIENT, True),
    ],
)
async def test_an_error_of_the_library_has_one_of_our_kinds(
    error: Exception, kind: FailureKind, may_have_cost: bool
) -> None:
    failure = failure_of(error, SMALL, has_begun=False, now_us=0, secrets=())
    assert (failure.kind, failure.may_have_cost) == (kind, may_have_cost)
    assert failure.message.startswith("acme:small ")


async def test_an_error_after_the_first_piece_may_have_cost() -> None:
    error = ModelHTTPError(400, "small")
    assert failure_of(error, SMALL, has_begun=True, now_us=0, secrets=()).may_have_cost


async def test_an_error_in_json_is_told_by_its_message() -> None:
    error = ModelHTTPError.for_category(
        ModelRateLimitError, status_code=429, model_name="small", body='{"error":{"message":"slower"}}'
    )
    failure = failure_of(error, SMALL, has_begun=False, now_us=0, secrets=())
    assert "(429: slower)" in failure.message


async def test_when_the_provider_can_be_asked_again_is_kept() -> None:
    error = ModelRateLimitError("small", "slower", retry_after=2.5)
    assert failure_of(error, SMALL, has_begun=False, now_us=7, secrets=()).retry_at_us == 2_500_007


@pytest.mark.parametrize(
    "error",
    [
        ModelHTTPError(400, "small", {"error": {"message": f"bad {KEY}"}}, headers={"x-request-id": KEY}),
        ModelHTTPError(400, "small", f"bad {KEY}"),
        ModelAPIError("small", f"bad {KEY}"),
        UserError(f"bad {KEY}"),
        OSError(f"bad {KEY}"),
    ],
)
@pytest.mark.parametrize("has_begun", [False, True])
async def test_no_failure_holds_the_key(error: Exception, has_begun: bool) -> None:
    failure = failure_of(error, SMALL, has_begun=has_begun, now_us=0, secrets=[KEY])
    assert KEY not in repr(failure)


async def test_a_key_that_is_not_there_is_an_auth_failure() -> None:
    client = client_of(PlayedModel(ModelScript(), request()), clock=ManualClock(), key="")
    _, failure = await pieces_of(client)
    assert failure is not None
    assert failure.kind is FailureKind.AUTH
    assert "env:ACME_KEY is empty" in failure.message


BUSY = b'{"message": "busy", "error": {"message": "busy"}}'
CLIENTS: dict[str, dict[str, object]] = {
    "groq": {"key": "env:ACME_KEY"},
    "mistral": {"key": "env:ACME_KEY"},
    "bedrock": {
        "options": {
            "region_name": "eu-west-1",
            "aws_access_key_id": "env:ACME_KEY",
            "aws_secret_access_key": "env:ACME_KEY",
        }
    },
}


@pytest.mark.parametrize(
    ("name", "package"), [("groq", "groq"), ("mistral", "mistralai"), ("bedrock", "boto3")]
)
async def test_the_client_of_a_provider_asks_once(name: str, package: str) -> None:
    pytest.importorskip(package)
    refused = response(BUSY, status="503 Service Unavailable", kind="application/json")
    async with raw_server(lambda _: refused) as (url, heads):
        table = {"format": "pydantic-ai", "provider": name, "base_url": url, **CLIENTS[name]}
        keys = Keys(variables=lambda: {"ACME_KEY": KEY}, spawn=SystemSpawn())
        models = Models(read_providers({"acme": table}), keys=keys, clock=SystemClock())
        _, failure = await pieces_of(models)
        await models.close()
    assert failure is not None
    assert (failure.kind, failure.status) == (FailureKind.TRANSIENT, 503)
    assert len(heads) == 1


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"provider": "nobody"}, "knows no provider 'nobody'"),
        ({"provider": "xai"}, 'write base_url = "https://api.x.ai/v1"'),
        ({"provider": "voyageai"}, "not installed; pip install 'pydantic-ai-slim[voyageai]'"),
        ({"provider": "groq", "options": {"region": "x"}}, "takes no region; it takes api_key"),
    ],
)
async def test_a_provider_that_cannot_be_asked_is_one_clear_sentence(
    table: dict[str, object], said: str
) -> None:
    pytest.importorskip("groq")
    keys = Keys(variables=lambda: {"ACME_KEY": KEY}, spawn=SystemSpawn())
    settings = {"format": "pydantic-ai", "key": "env:ACME_KEY", **table}
    _, failure = await pieces_of(Models(read_providers({"acme": settings}), keys=keys, clock=SystemClock()))
    assert failure is not None
    assert failure.kind is FailureKind.REQUEST
    assert said in failure.message


async def test_a_missing_extra_is_one_sentence_that_says_how_to_install_it() -> None:
    def build(*_: object) -> NoReturn:
        raise ModuleNotFoundError("No module named 'groq'; install pydantic-ai-slim[groq]")

    keys = Keys(variables=dict, spawn=SystemSpawn())
    provider = read_providers({"acme": {"format": "pydantic-ai"}})["acme"]
    _, failure = await pieces_of(OthersModel(provider, keys=keys, clock=ManualClock(), build=build))
    assert failure is not None
    assert failure.message == (
        "acme:small cannot be used: the client of this provider is not installed; pip install "
        "'pydantic-ai-slim[groq]', then resume the run."
    )
