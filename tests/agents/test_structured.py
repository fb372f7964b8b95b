"""Structured answers: held to their schema, repaired once, and handed to later steps."""

from __future__ import annotations

import json

import pytest

from onward.agents.model import FinishReason, SchemaFormat
from onward.agents.step.rounds import CUT_OFF
from onward.errors import InvalidInput
from onward.model.run import RunStatus
from onward.testing.script import ScriptedReply, ScriptRule
from tests.agents.test_agent_step import model
from tests.agents.tooling import Counting, asks, wish, working
from tests.world import World, line

SCHEMA = {
    "type": "object",
    "properties": {"grade": {"type": "integer"}, "why": {"type": "string"}},
    "required": ["grade"],
    "additionalProperties": False,
}


def source(schema: object = SCHEMA, more: str = "") -> str:
    written = schema if isinstance(schema, str) else json.dumps(schema)
    quoted = written.replace("\\", "\\\\").replace('"', '\\"')
    return line("work", work=f'output_schema="{quoted}"{more}')


async def test_the_fields_of_a_structured_answer_are_values_of_later_steps(world: World) -> None:
    scripted = model(default='{"grade": 5, "why": "short"}')
    run = await (await working(world, scripted)).start(source())
    assert run.status is RunStatus.COMPLETED
    assert (run.context["work.grade"], run.context["work.why"]) == (5, "short")
    assert run.context["work.answer"] == {"grade": 5, "why": "short"}
    (asked,) = scripted.received
    assert asked.request.format == SchemaFormat("answer", SCHEMA)
    assert json.dumps(SCHEMA) in asked.request.system  # for a provider that has no switch for it


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('{"why": "short"}', "`grade` is missing"),
        ("Five.", "it is not JSON"),
        ('{"grade": "five"}', "`grade` must be"),
    ],
)
async def test_an_answer_that_does_not_fit_is_asked_for_once_more(
    world: World, wrong: str, said: str
) -> None:
    scripted = model(ScriptRule(nth=1, reply=ScriptedReply(text=wrong)), default='```json\n{"grade": 5}\n```')
    run = await (await working(world, scripted)).start(source())
    assert run.status is RunStatus.COMPLETED
    assert run.context["work.grade"] == 5
    told = scripted.received[1].request.messages[-1].parts[0].text  # type: ignore[union-attr]
    assert told.startswith("Your answer cannot be used: ")
    assert said in told


async def test_an_answer_that_never_fits_fails_the_step(world: World) -> None:
    scripted = model(default="Five.")
    run = await (await working(world, scripted)).start(source(more=", max_retries=0"))
    assert run.status is RunStatus.FAILED
    assert run.open_steps["work#1"].reason.startswith("the response cannot be used: it is not JSON")
    assert len(scripted.received) == 2


async def test_a_structured_answer_that_was_cut_off_is_asked_for_anew_and_shorter(world: World) -> None:
    """A server that holds answers to a schema would not continue it: it begins a new value."""
    cut = ScriptRule(
        nth=1, reply=ScriptedReply(text='{"grade": 5, "why": "it', finish_reason=FinishReason.LENGTH)
    )
    scripted = model(cut, default='{"grade": 5}')
    run = await (await working(world, scripted)).start(source())
    assert (run.status, run.context["work.answer"]) == (RunStatus.COMPLETED, {"grade": 5})
    told = scripted.received[1].request.messages[-1].parts[0].text  # type: ignore[union-attr]
    assert told == f"Your answer cannot be used: {CUT_OFF}. Answer again."


async def test_a_structured_answer_that_is_always_cut_off_fails_the_step_and_says_why(world: World) -> None:
    cut = ScriptedReply(text='{"grade": 5', finish_reason=FinishReason.LENGTH)
    scripted = model(ScriptRule(nth=1, reply=cut), ScriptRule(nth=2, reply=cut))
    run = await (await working(world, scripted)).start(source(more=", max_retries=0"))
    assert (run.status, len(scripted.received)) == (RunStatus.FAILED, 2)
    assert run.open_steps["work#1"].reason == f"the response cannot be used: {CUT_OFF}"


async def test_a_structured_answer_may_come_after_tools_and_decide_about_its_step(world: World) -> None:
    schema = {"type": "object", "properties": {"outcome": {"enum": ["success", "fail"]}, "notes": {}}}
    scripted = model(asks(wish()), default='{"outcome": "fail", "notes": "no"}')
    process = await working(world, scripted, tool := Counting())
    run = await process.start(source(schema, ", max_retries=0"))
    assert run.status is RunStatus.FAILED
    assert run.open_steps["work#1"].reason == "no"
    assert tool.begun.total() == 1


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", r"output_schema of node 'work' is not JSON"),
        ("[]", r"output_schema of node 'work' is not a JSON Schema"),
        ('{"type": "objekt"}', r"output_schema of node 'work'"),
        ('{"$ref": "https://example.com/x"}', r"output_schema of node 'work'"),
    ],
)
async def test_a_schema_that_is_none_is_refused_before_anything_is_asked(
    world: World, schema: str, said: str
) -> None:
    process = await working(world, scripted := model())
    with pytest.raises(InvalidInput, match=said):
        await process.start(source(schema))
    assert scripted.received == []
