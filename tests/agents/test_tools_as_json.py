"""Tools for models that know none: told in the prompt, wished for as JSON, and used like any other."""

from __future__ import annotations

import pytest

from onward.agents.model import (
    AssistantMessage,
    FinishReason,
    ModelRequest,
    SchemaFormat,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMessage,
    ToolResult,
    collect,
    user,
)
from onward.agents.models import told_in_prompt
from onward.testing.script import ModelScript, ScriptedReply
from tests.agents.asking import NAME, at_endpoint

pytestmark = pytest.mark.anyio
WEATHER = Tool("weather", "Looks up the weather.", {"type": "object", "properties": {"city": {}}})
ASKED = ModelRequest(model=NAME, messages=(user("Paris?"),), tools=(WEATHER,))


@pytest.mark.parametrize(
    ("said", "text", "calls", "why"),
    [
        (
            '{"tool": "weather", "arguments": {"city": "Paris"}}',
            "",
            (ToolCall("call_1", "weather", '{"city": "Paris"}'),),
            FinishReason.TOOL_CALLS,
        ),
        ('{"answer": "It rains."}', "It rains.", (), FinishReason.STOP),
        ('{"answer": {"wet": true}}', '{"wet": true}', (), FinishReason.STOP),
        ("It rains.", "It rains.", (), FinishReason.STOP),
        ("[1]", "[1]", (), FinishReason.STOP),
    ],
)
async def test_an_answer_in_json_is_a_tool_call_or_text(
    said: str, text: str, calls: tuple[ToolCall, ...], why: FinishReason
) -> None:
    async with at_endpoint(ModelScript(default=ScriptedReply(text=said)), tools=False) as (models, _):
        answer = await collect(models.stream(ASKED))
    assert (answer.text, answer.tool_calls, answer.finished.finish_reason) == (text, calls, why)


@pytest.mark.parametrize(
    ("said", "text", "calls"),
    [
        ('{"answer": "It rains', "It rains", ()),
        ('{ "answer" : "a \\"b\\" \\u00', 'a "b" ', ()),
        ('{"answer": "rain \\ud83c', "rain ", ()),
        ('{"answer": "\\x', '{"answer": "\\x', ()),
        ('{"answer": {"wet": tr', '{"answer": {"wet": tr', ()),
        ('{"ans', '{"ans', ()),
        (
            '{"tool": "weather", "arguments": {"city": "Par',
            "",
            (ToolCall("call_1", "weather", '{"city": "Par'),),
        ),
    ],
)
async def test_an_answer_that_reached_its_ceiling_is_read_as_far_as_it_came(
    said: str, text: str, calls: tuple[ToolCall, ...]
) -> None:
    """The rest of a text can be asked for; the arguments of a call are found to be no JSON."""
    reply = ScriptedReply(text=said, finish_reason=FinishReason.LENGTH)
    async with at_endpoint(ModelScript(default=reply), tools=False) as (models, _):
        answer = await collect(models.stream(ASKED))
    assert (answer.text, answer.tool_calls) == (text, calls)
    assert answer.finished.finish_reason is FinishReason.LENGTH


async def test_a_provider_that_knows_tools_is_told_of_them_as_such() -> None:
    """Its answer is not read as JSON, whatever it looks like."""
    said = '{"answer": "It rains."}'
    async with at_endpoint(ModelScript(default=ScriptedReply(text=said))) as (models, _):
        assert (await collect(models.stream(ASKED))).text == said


def test_the_tools_are_in_the_prompt_and_nowhere_else() -> None:
    told = told_in_prompt(ASKED)
    assert told.tools == ()
    assert "Tool weather: Looks up the weather." in told.system


def test_simple_arguments_are_told_in_words_and_others_as_their_schema() -> None:
    city = {"type": "string", "maxLength": 20, "description": "Its name."}
    plain = {
        "type": "object",
        "properties": {"city": city, "days": {"type": "integer"}},
        "required": ["city"],
    }
    nested = {"type": "object", "properties": {"days": {"type": "array"}}}
    tools = (Tool("weather", "Now.", plain), Tool("forecast", "Later.", nested))
    told = told_in_prompt(ModelRequest(model=NAME, messages=(), tools=tools)).system
    assert "Tool weather: Now. Arguments: city (string): Its name. days (integer, optional)" in told
    assert 'Tool forecast: Later. Arguments: {"type": "object"' in told


def test_the_forms_of_an_answer_follow_from_what_may_be_used() -> None:
    def forms(**more: object) -> list[list[str]]:
        asked = told_in_prompt(ModelRequest(**{"model": NAME, "messages": (), "tools": (WEATHER,), **more}))  # type: ignore[arg-type]
        assert isinstance(asked.format, SchemaFormat)
        schema = asked.format.schema
        return [[*form["properties"]] for form in schema.get("anyOf", [schema])]

    assert forms() == [["tool", "arguments"], ["answer"]]
    assert forms(tool_choice=ToolChoice.REQUIRED) == [["tool", "arguments"]]
    assert forms(tool_choice=ToolChoice.NONE) == [["answer"]]


def test_what_was_used_is_told_in_words() -> None:
    used = AssistantMessage((Text("Let me see."), ToolCall("a", "weather", '{"city": "Paris"}')))
    messages = (user("Paris?"), used, ToolMessage((ToolResult("a", "rain"),)))
    told = told_in_prompt(ModelRequest(model=NAME, messages=messages, tools=(WEATHER,))).messages
    texts = [part.text for one in told for part in one.parts if isinstance(part, Text)]
    call = '{"tool": "weather", "arguments": {"city": "Paris"}}'
    assert texts == ["Paris?", call, "Result of weather: rain"]
