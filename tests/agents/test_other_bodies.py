"""What a request looks like in Anthropic's and in Google's format."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onward.agents.anthropic import AnthropicAnswer, takes_effort, thinks_adaptively, thinks_anyway
from onward.agents.google import takes_budget, takes_level
from onward.agents.http import WIRES, wire_format
from onward.agents.model import (
    OUTPUT_TOKENS,
    AssistantMessage,
    Effort,
    FailureKind,
    JsonFormat,
    ModelFailed,
    ModelRequest,
    Reasoning,
    SchemaFormat,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMessage,
    ToolResult,
    UserMessage,
    user,
)
from onward.agents.prices import estimate_tokens
from onward.agents.providers import KEY_HEADERS, Provider
from onward.agents.refusal import AskedModel, ProviderResponse
from onward.agents.step.conversation import Thread
from onward.agents.wire import ExchangeFailed, ResponseReader, seal, unseal
from onward.model.values import WIRE_FORMATS
from onward.redact.redactor import Redactor

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
LOOK = Tool("look", "Looks.", SCHEMA)
OPUS, GEMINI = "claude-opus-4-6", "gemini-3.1-pro-preview"


def body(wire: str, model: str, /, *, settings: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    provider = Provider(name=wire, base_url="http://127.0.0.1:1", format=wire, **(settings or {}))
    asked = ModelRequest(**({"model": f"{wire}:{model}", "messages": (user("Hi"),)} | more))
    found: dict[str, Any] = msgspec.json.decode(wire_format(provider).body(asked, model))
    return found


def conversation(maker: str) -> tuple[Any, ...]:
    """Thoughts with and without a proof, two calls, one of which is not valid JSON, and their results."""
    return (
        UserMessage((Text("Look"), Text("at it"))),
        AssistantMessage(
            (
                Reasoning("no proof"),
                Reasoning("of another", seal("acme:small", "foreign")),
                Reasoning("mine", seal(maker, "proof")),
                Reasoning("", seal(maker, "alone")),
                Text("I look."),
                ToolCall("a", "look", '{"at":1}', seal(maker, "call")),
                ToolCall("call_1", "leap", "{oops"),
            )
        ),
        ToolMessage((ToolResult("a", "clouds"), ToolResult("call_1", "no", is_error=True))),
        user("Go on."),
    )


def test_a_plain_request_to_anthropic_says_no_more_than_it_must() -> None:
    assert body("anthropic", OPUS) == {
        "model": OPUS,
        "max_tokens": OUTPUT_TOKENS,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "stream": True,
    }


def test_a_plain_request_to_google_says_no_more_than_it_must() -> None:
    assert body("google", GEMINI) == {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}


def test_anthropic_gets_back_what_it_signed_and_the_results_in_one_turn() -> None:
    sent = body("anthropic", OPUS, messages=conversation(f"anthropic:{OPUS}"))
    assert sent["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "text", "text": "at it"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "mine", "signature": "proof"},
                {"type": "thinking", "thinking": "", "signature": "alone"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "a", "name": "look", "input": {"at": 1}},
                {"type": "tool_use", "id": "call_1", "name": "leap", "input": {"invalid": "{oops"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "clouds"},
                {"type": "tool_result", "tool_use_id": "call_1", "content": "no", "is_error": True},
                {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}},
            ],
        },
    ]


def test_what_anthropic_kept_to_itself_goes_back_as_it_came() -> None:
    maker = f"anthropic:{OPUS}"
    said = AssistantMessage((Reasoning("", seal(maker, "secret", kind="redacted")), Text("42")))
    sent = body("anthropic", OPUS, messages=(user("?"), said, user("Why?")))
    assert sent["messages"][1]["content"][0] == {"type": "redacted_thinking", "data": "secret"}


def test_a_turn_does_not_end_with_a_thought() -> None:
    said = AssistantMessage((Reasoning("cut short", seal(f"anthropic:{OPUS}", "proof")),))
    sent = body("anthropic", OPUS, messages=(user("?"), said, user("Go on.")))
    assert [turn["role"] for turn in sent["messages"]] == ["user"]
    assert [block["text"] for block in sent["messages"][0]["content"]] == ["?", "Go on."]


def test_google_gets_back_what_it_signed_and_the_results_with_their_names() -> None:
    sent = body("google", GEMINI, messages=conversation(f"google:{GEMINI}"))
    assert sent["contents"] == [
        {"role": "user", "parts": [{"text": "Look"}, {"text": "at it"}]},
        {
            "role": "model",
            "parts": [
                {"text": "mine", "thought": True, "thoughtSignature": "proof"},
                {"text": "", "thoughtSignature": "alone"},
                {"text": "I look."},
                {
                    "functionCall": {"id": "a", "name": "look", "args": {"at": 1}},
                    "thoughtSignature": "call",
                },
                {"functionCall": {"name": "leap", "args": {"invalid": "{oops"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "a", "name": "look", "response": {"output": "clouds"}}},
                {"functionResponse": {"name": "leap", "response": {"error": "no"}}},
                {"text": "Go on."},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("model", "proof"), [(GEMINI, "skip_thought_signature_validator"), ("gemini-2.5-pro", None)]
)
def test_a_call_of_another_model_says_that_it_is_not_signed_where_that_is_asked(
    model: str, proof: str | None
) -> None:
    sent = body("google", model, messages=conversation("acme:other"))
    calls = [part for part in sent["contents"][1]["parts"] if "functionCall" in part]
    assert [part.get("thoughtSignature") for part in calls] == [proof, None]
    assert "foreign" not in repr(sent)


def test_anthropic_gets_a_schema_without_the_bounds_that_it_refuses() -> None:
    """Google takes some of them and ignores the others."""
    bounded = {"type": "array", "minItems": 3, "items": {"type": "string", "maxLength": 9}}
    sent = body("anthropic", OPUS, format=SchemaFormat("a", bounded))
    assert sent["output_config"]["format"]["schema"] == {"type": "array", "items": {"type": "string"}}
    sent = body("google", GEMINI, format=SchemaFormat("a", bounded))
    assert sent["generationConfig"]["responseJsonSchema"] == bounded


def test_what_is_wanted_of_the_answer_is_said_in_each_format() -> None:
    wanted: dict[str, Any] = {"max_tokens": 10, "stop": ("END",), "system": "Be brief.", "tools": (LOOK,)}
    sent = body("anthropic", OPUS, format=SchemaFormat("a", SCHEMA), effort=Effort.LOW, **wanted)
    assert (sent["max_tokens"], sent["stop_sequences"]) == (10, ["END"])
    assert sent["system"] == [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    assert sent["tools"] == [{"name": "look", "description": "Looks.", "input_schema": SCHEMA}]
    assert sent["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": SCHEMA},
    }
    assert sent["thinking"] == {"type": "adaptive", "display": "summarized"}
    sent = body(
        "google", GEMINI, format=SchemaFormat("a", SCHEMA), effort=Effort.LOW, temperature=0.5, **wanted
    )
    assert sent["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    declared = {"name": "look", "description": "Looks.", "parametersJsonSchema": SCHEMA}
    assert sent["tools"] == [{"functionDeclarations": [declared]}]
    assert sent["generationConfig"] == {
        "maxOutputTokens": 10,
        "temperature": 0.5,
        "stopSequences": ["END"],
        "responseMimeType": "application/json",
        "responseJsonSchema": SCHEMA,
        "thinkingConfig": {"thinkingLevel": "low", "includeThoughts": True},
    }


def test_json_without_a_schema_is_asked_for_as_each_format_can() -> None:
    sent = body("anthropic", OPUS, format=JsonFormat(), system="Be brief.")
    assert sent["system"][0]["text"] == "Be brief.\n\nAnswer with one JSON object and nothing else."
    sent = body("google", GEMINI, format=JsonFormat())
    assert sent["generationConfig"] == {"responseMimeType": "application/json"}


def test_tools_without_parameters_are_tools() -> None:
    sent = body("anthropic", OPUS, tools=(Tool("leap"),))
    assert sent["tools"][0]["input_schema"] == {"type": "object"}
    sent = body("google", GEMINI, tools=(Tool("leap"),))
    assert "parametersJsonSchema" not in sent["tools"][0]["functionDeclarations"][0]


def test_a_temperature_goes_without_thinking() -> None:
    sent = body("anthropic", OPUS, effort=Effort.HIGH, temperature=0.0)
    assert "thinking" not in sent
    assert (sent["temperature"], sent["output_config"]) == (0.0, {"effort": "high"})


def test_only_a_conversation_that_goes_on_is_kept() -> None:
    """Writing into the cache costs more than reading without it."""
    assert "cache_control" not in repr(body("anthropic", OPUS, system="Be brief."))
    going_on = (user("Hi"), AssistantMessage((Text("Hello"),)), user("Go on."))
    assert repr(body("anthropic", OPUS, system="Be brief.", messages=going_on)).count("cache_control") == 2
    assert "cache_control" in repr(body("anthropic", OPUS, tools=(LOOK,)))
    off = {"prompt_cache": False}
    assert "cache_control" not in repr(body("anthropic", OPUS, settings=off, messages=going_on))


@pytest.mark.parametrize(
    ("model", "effort", "adaptive", "anyway"),
    [
        ("claude-3-5-sonnet-20241022", False, False, False),
        ("claude-opus-4-20250514", False, False, False),
        ("claude-opus-4-1-20250805", False, False, False),
        ("claude-haiku-4-5-20251001", False, False, False),
        ("claude-sonnet-4-5", False, False, False),
        ("claude-opus-4-5-20251101", True, False, False),
        ("claude-opus-4-6", True, True, False),
        ("anthropic/claude-sonnet-4.6", True, True, False),
        ("claude-sonnet-5", True, True, False),
        ("claude-opus-5", True, True, True),
        ("claude-opus-5-5", True, True, True),
        ("claude-haiku-5-5", True, True, True),
        ("claude-fable-5-1", True, True, True),
        ("claude-mythos-preview", True, True, True),
        ("glm-4.7", False, False, False),
    ],
)
def test_what_a_model_of_anthropic_takes_is_known_by_its_name(
    model: str, effort: bool, adaptive: bool, anyway: bool
) -> None:
    assert (takes_effort(model), thinks_adaptively(model), thinks_anyway(model)) == (effort, adaptive, anyway)
    sent = body("anthropic", model, effort=Effort.MEDIUM)
    assert ("output_config" in sent, "thinking" in sent) == (effort, adaptive)
    assert ("thinking" in body("anthropic", model)) is anyway


@pytest.mark.parametrize(
    ("model", "level", "budget"),
    [
        ("gemini-3.1-pro-preview", True, False),
        ("gemini-3-flash-preview", True, False),
        ("gemini-4-argon", True, False),
        ("gemini-2.5-flash-lite", False, True),
        ("gemini-2.0-flash", False, False),
        ("gemma-3-27b-it", False, False),
    ],
)
def test_what_a_model_of_google_takes_is_known_by_its_name(model: str, level: bool, budget: bool) -> None:
    assert (takes_level(model), takes_budget(model)) == (level, budget)
    config = body("google", model, effort=Effort.MEDIUM).get("generationConfig", {}).get("thinkingConfig", {})
    assert ("thinkingLevel" in config, config.get("thinkingBudget")) == (level, 8_192 if budget else None)


@pytest.mark.parametrize(
    ("format", "base_url", "model", "address"),
    [
        ("openai", "http://a.example/v1", "small", "http://a.example/v1/chat/completions"),
        ("anthropic", "http://a.example", "small", "http://a.example/v1/messages"),
        ("anthropic", "http://a.example/api/v1", "small", "http://a.example/api/v1/messages"),
        (
            "google",
            "http://a.example",
            "gemini-2.5-flash",
            "http://a.example/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
        ),
        (
            "google",
            "http://a.example/v1alpha",
            "tunedModels/mine",
            "http://a.example/v1alpha/tunedModels/mine:streamGenerateContent?alt=sse",
        ),
        (
            "google",
            "http://a.example",
            "../x?key=1#",
            "http://a.example/v1beta/models/..%2Fx%3Fkey%3D1%23:streamGenerateContent?alt=sse",
        ),
    ],
)
def test_an_address_is_made_of_the_base_url_and_the_model(
    format: str, base_url: str, model: str, address: str
) -> None:
    provider = Provider(name="acme", base_url=base_url, format=format)
    assert wire_format(provider).address(model) == address


@pytest.mark.parametrize("format", WIRE_FORMATS)
def test_a_key_is_sent_in_the_header_of_its_format_and_nowhere_else(format: str) -> None:
    wire = wire_format(Provider(name="acme", base_url="http://a.example", format=format))
    with_key = {name.lower(): value for name, value in wire.headers("canary").items()}
    assert [name for name, value in with_key.items() if "canary" in value] == [KEY_HEADERS[format]]
    assert KEY_HEADERS[format] not in {name.lower() for name in wire.headers("")}


def test_every_format_has_a_wire() -> None:
    assert set(WIRES) == set(WIRE_FORMATS) == set(KEY_HEADERS)


@pytest.mark.parametrize("format", WIRE_FORMATS)
@given(st.binary())
@example(b"[DONE]")
@example(b'{"error":{"":""}}')
def test_whatever_comes_is_an_answer_or_a_failure_in_every_format(format: str, sent: bytes) -> None:
    wire = wire_format(Provider(name="acme", base_url="http://a.example", format=format))
    asked = ModelRequest(model="acme:small", messages=(user("Hi"),))
    reading = ResponseReader(asked, AskedModel("acme", "small"), wire.answer("small"))
    reading.begin(ProviderResponse(status=200, headers={"content-type": "text/event-stream"}))

    def read() -> None:
        list(reading.feed(b"data: " + sent + b"\n\n"))
        list(reading.end())

    with pytest.raises((ExchangeFailed, ModelFailed)) as caught:
        read()
    if isinstance(caught.value, ExchangeFailed):  # the other is an error that the provider itself sent
        assert reading.broken(caught.value).kind in (FailureKind.CUT, FailureKind.EMPTY)  # `[DONE]` is whole


@pytest.mark.parametrize(
    ("event", "is_passed_over"),
    [
        (b'{"type":"news","delta":7,"content":"x"}', True),
        (b'{"type":"content_block_start","content_block":{"type":"map","text":{"a":1}}}', True),
        (b'{"type":"content_block_delta","delta":{"type":"map_delta","text":[1]}}', True),
        (b'{"type":"content_block_delta","delta":{"type":"text_delta","text":[1]}}', False),
        (b'{"type":"message_start","message":7}', False),
        (b'{"delta":7}', False),
    ],
)
def test_what_anthropic_may_add_is_passed_over_whatever_its_shape(event: bytes, is_passed_over: bool) -> None:
    reader = AnthropicAnswer("acme:small")
    if is_passed_over:
        assert list(reader.read(event)) == []
    else:
        with pytest.raises(msgspec.DecodeError):
            list(reader.read(event))


@pytest.mark.parametrize("maker", ["anthropic:claude-opus-5", "local:llama3:8b"])
def test_a_proof_is_given_back_to_its_maker_only(maker: str) -> None:
    stored = seal(maker, "proof+/=", kind="redacted")
    assert unseal(maker, stored) == ("redacted", "proof+/=")
    assert unseal("anthropic:claude-opus-4-6", stored) is None
    assert seal(maker, "") == ""
    assert unseal(maker, "") is None


def test_reasoning_that_was_redacted_is_no_longer_signed() -> None:
    thread = Thread(Redactor({"KEY": "hunter2hunter2"}))
    thread.add(AssistantMessage((Reasoning("it is hunter2hunter2", "proof"), Reasoning("clean", "proof"))))
    assert thread.messages[-1].parts == (Reasoning("it is [redacted KEY]"), Reasoning("clean", "proof"))


def test_what_a_signature_may_stand_for_counts_as_input() -> None:
    shown = ModelRequest(model="a:b", messages=(AssistantMessage((Reasoning("hm"),)),))
    signed = ModelRequest(model="a:b", messages=(AssistantMessage((Reasoning("hm", "x" * 300),)),))
    assert estimate_tokens(signed) == estimate_tokens(shown) + 100


@pytest.mark.parametrize(
    ("choice", "anthropic", "google"),
    [(ToolChoice.REQUIRED, {"type": "any"}, "ANY"), (ToolChoice.NONE, {"type": "none"}, "NONE")],
)
def test_whether_tools_may_be_used_is_said_in_the_words_of_each_format(
    choice: ToolChoice, anthropic: object, google: str
) -> None:
    assert body("anthropic", OPUS, tools=(LOOK,), tool_choice=choice)["tool_choice"] == anthropic
    sent = body("google", GEMINI, tools=(LOOK,), tool_choice=choice)
    assert sent["toolConfig"] == {"functionCallingConfig": {"mode": google}}
    assert body("openai", "small", tools=(LOOK,), tool_choice=choice)["tool_choice"] == choice.value
    assert "tool_choice" not in body("anthropic", OPUS, tools=(LOOK,))
