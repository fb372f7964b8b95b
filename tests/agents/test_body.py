"""What a request looks like on the wire."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from onward.agents.model import (
    AssistantMessage,
    Effort,
    JsonFormat,
    ModelRequest,
    Reasoning,
    SchemaFormat,
    Text,
    Tool,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    user,
)
from onward.agents.openai import (
    OpenAIDialect,
    can_reason,
    encode_body,
    refused_in_schemas,
    takes_completion_ceiling,
)
from onward.agents.wire import BOUNDS, LENGTHS, without


def body(dialect: OpenAIDialect | None = None, **more: Any) -> dict[str, Any]:
    asked = ModelRequest(**({"model": "acme:small", "messages": (user("Hi"),)} | more))
    found: dict[str, Any] = msgspec.json.decode(encode_body(asked, "small", dialect or OpenAIDialect()))
    return found


def test_a_plain_request_says_no_more_than_it_must() -> None:
    assert body() == {
        "model": "small",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_conversation_keeps_its_calls_and_results_and_loses_its_reasoning() -> None:
    messages = (
        UserMessage((Text("Look"), Text("at it"))),
        AssistantMessage((Reasoning("hm"), ToolCall("a", "look", '{"at":1}'), ToolCall("b", "leap"))),
        ToolMessage((ToolResult("a", "clouds"), ToolResult("b", "no", is_error=True))),
        AssistantMessage((Text("Clouds"), Text("."))),
    )
    assert body(messages=messages, system="Be brief.")["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look\n\nat it"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at":1}'}},
                {"id": "b", "type": "function", "function": {"name": "leap", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "clouds"},
        {"role": "tool", "tool_call_id": "b", "content": "no"},
        {"role": "assistant", "content": "Clouds."},
    ]


def test_what_is_wanted_of_the_answer_is_said() -> None:
    found = body(
        max_tokens=10,
        temperature=0.0,
        stop=("END",),
        format=JsonFormat(),
        tools=(Tool("look", "Looks.", {"a": 1}),),
    )
    assert (found["max_tokens"], found["temperature"], found["stop"]) == (10, 0.0, ["END"])
    assert found["response_format"] == {"type": "json_object"}
    function = {"name": "look", "description": "Looks.", "parameters": {"a": 1}}
    assert found["tools"] == [{"type": "function", "function": function}]


def test_a_schema_is_strict() -> None:
    schema = body(format=SchemaFormat("point", {"type": "object"}))["response_format"]["json_schema"]
    assert schema == {"name": "point", "schema": {"type": "object"}, "strict": True}


def test_a_schema_is_sent_without_the_keywords_that_the_server_refuses() -> None:
    text = {"type": "string", "maxLength": 9, "pattern": "a"}
    schema = {
        "type": "object",
        "properties": {"maxLength": text, "all": {"type": "array", "items": text, "maxItems": 2}},
        "anyOf": [{"required": ["maxLength"], "minProperties": 1}],
        "default": {"maxLength": 1},
    }
    told = {"type": "string", "pattern": "a"}
    asked: dict[str, Any] = {"format": SchemaFormat("point", schema)}
    found = body(OpenAIDialect(refused=BOUNDS), **asked)["response_format"]["json_schema"]["schema"]
    assert found == {
        "type": "object",
        "properties": {"maxLength": told, "all": {"type": "array", "items": told}},
        "anyOf": [{"required": ["maxLength"]}],
        "default": {"maxLength": 1},
    }
    assert body(**asked)["response_format"]["json_schema"]["schema"] == schema
    assert without(schema, LENGTHS)["properties"]["all"]["maxItems"] == 2


@pytest.mark.parametrize(
    ("model", "host", "refused"),
    [
        ("gpt-4o", "api.openai.com", LENGTHS),
        ("openai/gpt-5", "openrouter.ai", LENGTHS),
        ("anthropic/claude-sonnet-5", "openrouter.ai", BOUNDS),
        ("gpt-4o", "me.openai.azure.com", BOUNDS | {"pattern", "format"}),
        ("gpt-oss-20b", "127.0.0.1", frozenset()),
        ("small", "127.0.0.1", frozenset()),
    ],
)
def test_who_refuses_which_keywords_of_a_schema(model: str, host: str, refused: frozenset[str]) -> None:
    assert refused_in_schemas(model, host) == refused


def test_a_server_gets_only_what_it_understands() -> None:
    plain = body(OpenAIDialect(stream_usage=False), effort=Effort.HIGH, max_tokens=5)
    assert plain.keys() == {"model", "messages", "stream", "max_tokens"}
    new = body(
        OpenAIDialect(ceiling="max_completion_tokens", sends_effort=True), effort=Effort.LOW, max_tokens=5
    )
    assert (new["max_completion_tokens"], new["reasoning_effort"]) == (5, "low")


@pytest.mark.parametrize(
    "model", ["o1", "o3-mini", "gpt-5", "gpt-5.4-mini", "openai/gpt-5", "gpt-oss-20b", "GPT-5"]
)
def test_models_that_reason_are_known_by_their_names(model: str) -> None:
    assert can_reason(model)
    assert takes_completion_ceiling(model, "127.0.0.1")


@pytest.mark.parametrize(
    "model", ["gpt-4o", "gpt-4.1", "gpt-5-chat-latest", "gpt-5.1-chat", "llama3:8b", "olmo", "o"]
)
def test_other_models_are_not_told_how_long_to_reason(model: str) -> None:
    """They would refuse the whole request."""
    assert not can_reason(model)


def test_openai_itself_takes_the_new_ceiling_for_every_model() -> None:
    assert takes_completion_ceiling("gpt-4o", "api.openai.com")
    assert not takes_completion_ceiling("gpt-4o", "127.0.0.1")


def test_the_same_request_gives_the_same_bytes() -> None:
    assert encode_body(
        ModelRequest(model="a:b", messages=(user("Hi"),)), "b", OpenAIDialect()
    ) == encode_body(ModelRequest(model="a:b", messages=(user("Hi"),)), "b", OpenAIDialect())


def test_a_stored_request_comes_back_as_it_was_and_a_strange_field_is_refused() -> None:
    asked = ModelRequest(
        model="a:b",
        messages=(user("Hi"), AssistantMessage((Text("x"), ToolCall("1", "look")))),
        effort=Effort.LOW,
    )
    stored = msgspec.json.encode(asked)
    assert msgspec.json.decode(stored, type=ModelRequest) == asked
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(stored.replace(b'"effort"', b'"odd"'), type=ModelRequest)
