"""A model that means harm: what it asks of tools is bounded, and people see exactly what would be done."""

from __future__ import annotations

import json
import re

import pytest

from onward.agents.model import AssistantMessage, ToolCall
from onward.agents.step.rounds import CALLS_MAX
from onward.agents.step.tool_uses import ARGUMENT_LENGTH_MAX
from onward.agents.tools.port import ToolRules
from onward.model.run import RunStatus
from onward.redact.redactor import Redactor
from tests.agents.test_agent_step import Scripted, calls, model
from tests.agents.test_tool_loop import ASKED, SOURCE, shown
from tests.agents.tooling import Counting, asks, wish, working
from tests.world import World, line

SECRET = "canary-0123456789"
MARK = "[redacted TOKEN]"
ESCAPED = "".join(f"\\u{ord(one):04x}" for one in SECRET)


def knowing() -> Redactor:
    redactor = Redactor()
    redactor.add("TOKEN", SECRET)
    return redactor


def said(scripted: Scripted) -> list[ToolCall]:
    """The calls of the model, as it sees them in its last request."""
    messages = scripted.received[-1].request.messages
    last = next(one for one in reversed(messages) if isinstance(one, AssistantMessage))
    return [part for part in last.parts if isinstance(part, ToolCall)]


@pytest.mark.parametrize("rules", [ToolRules(), ASKED], ids=["used", "asked"])
@pytest.mark.parametrize(
    "arguments",
    [
        json.dumps({"key": SECRET}),
        f'{{"key": "{ESCAPED}"}}',
        f'{{"key": "\\\\\\\\{ESCAPED}"}}',
        f'{{"{ESCAPED}": 1}}',
        f'{{"key": ["x{ESCAPED[:-6]}9"]}}',
    ],
)
async def test_a_secret_in_arguments_is_shown_recorded_and_used_as_the_same_mark(
    world: World, arguments: str, rules: ToolRules
) -> None:
    """S16, S21: however it is written, nobody approves another use than the one that is made."""
    scripted = model(asks(wish("pay", arguments)))
    process = await working(world, scripted, tool := Counting("pay", rules), redactor=knowing())
    run = await process.start(SOURCE)
    if rules.approval:
        (gate,) = run.gates.values()
        run = (await process.engine.answer("run", "yes", by="ann")).run
        assert json.loads(gate.about) == tool.seen[0]
    assert run.status is RunStatus.COMPLETED
    assert MARK in str(tool.seen)
    stored = f"{await process.events()}{tool.seen}{scripted.received}"
    assert SECRET not in stored
    assert ESCAPED[:-6] not in stored
    assert await process.is_sound()


async def test_a_secret_in_a_name_or_an_id_is_not_kept(world: World) -> None:
    scripted = model(asks(wish(SECRET, id=SECRET), wish("pay", id=f"x-{SECRET}")))
    process = await working(world, scripted, Counting("pay"), redactor=knowing())
    assert (await process.start(SOURCE)).status is RunStatus.COMPLETED
    assert SECRET not in f"{await process.events()}{scripted.received}"
    assert [one.call_id for one in shown(scripted)] == [one.id for one in said(scripted)]


async def test_what_nobody_is_shown_is_not_put_to_people(world: World) -> None:
    """A form that only the text on the screen has: what is shown would differ from what is used."""
    redactor = Redactor(own=(re.compile(r'^  "pin": "([^"]*)"'),))
    scripted = model(asks(wish("pay", '{"pin": "correct horse"}')))
    process = await working(world, scripted, tool := Counting("pay", ASKED), redactor=redactor)
    assert (await process.start(SOURCE)).status is RunStatus.COMPLETED
    assert not tool.begun
    (result,) = shown(scripted)
    assert "a part of them looks like a secret, which nobody is shown" in result.text


async def test_a_person_sees_what_a_screen_would_hide_or_turn_round(world: World) -> None:
    """S21: marks of direction, characters without width, controls."""
    hidden = "rm \u202e\u2066gpj.x\u200b\x7f\x9b2J\x1b[8m\u00a0\U000e0041 é 中"
    scripted = model(asks(wish("pay", json.dumps({"command": hidden}, ensure_ascii=False))))
    process = await working(world, scripted, tool := Counting("pay", ASKED))
    run = await process.start(SOURCE)
    (gate,) = run.gates.values()
    assert gate.about.replace("\n", "").isprintable()
    assert "\\u202e" in gate.about
    assert "é 中" in gate.about
    await process.engine.answer("run", "yes", by="ann")
    assert tool.seen == [{"command": hidden}] == [json.loads(gate.about)]


@pytest.mark.parametrize("rules", [ToolRules(), ASKED], ids=["used", "asked"])
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ('{"n": "\\ud800"}', "a lone surrogate"),
        ('{"\\udfff": 1}', "a lone surrogate"),
        ('{"n": NaN}', "which JSON cannot represent"),
        ('{"n": -Infinity}', "which JSON cannot represent"),
        ('{"n": 1e999}', "which JSON cannot represent"),
        ('{"n": 1' + "0" * 40 + "}", "of more than 64 bits"),
        ('{"n": 1' + "0" * 5_000 + "}", "not JSON"),
        ('{"n": ' + "[" * 100 + "]" * 100 + "}", "deeper than 64"),
        ('{"n": ' + '{"n": ' * 50_000, "not JSON"),
        ('{"n": "' + "x" * ARGUMENT_LENGTH_MAX + '"}', f"at most {ARGUMENT_LENGTH_MAX:,}"),
    ],
    ids=["half", "half-key", "nan", "infinity", "too-large", "long", "very-long", "deep", "deeper", "huge"],
)
async def test_arguments_that_could_not_be_recorded_are_told_and_nothing_is_done(
    world: World, arguments: str, why: str, rules: ToolRules
) -> None:
    scripted = model(asks(wish("pay", arguments), chunk=1_000_000))
    process = await working(world, scripted, tool := Counting("pay", rules))
    run = await process.start(SOURCE)
    assert run.status is RunStatus.COMPLETED, run.open_steps
    assert not tool.begun
    (result,) = shown(scripted)
    assert result.is_error
    assert why in result.text
    assert len(result.text) < 400
    assert await process.is_sound()


async def test_thousands_of_calls_in_one_answer_are_refused_together(world: World) -> None:
    many = [wish(arguments=f'{{"n": {n}}}', id=f"c{n}") for n in range(CALLS_MAX + 1)]
    scripted = model(asks(*many), asks(*many[1:]), asks(*many), default="Fine.")
    process = await working(world, scripted, tool := Counting())
    run = await process.start(line("work", work="max_retries=0"))
    assert run.status is RunStatus.FAILED
    assert run.open_steps["work#1"].reason == "the agent repeats the same calls (look)"
    assert tool.begun.total() == CALLS_MAX
    told = {one.text for one in shown(scripted, 1)}
    assert told == {
        f"You asked for {CALLS_MAX + 1} uses of tools at once, and at most {CALLS_MAX} are made. "
        "None was made: ask for fewer."
    }


async def test_ids_and_names_are_such_that_every_provider_takes_them_back(world: World) -> None:
    """A provider refuses a conversation in which an id comes twice, or a name is odd: the run would stand."""
    wishes = [
        wish(id="a"),
        wish(arguments='{"n": 2}', id="a"),
        wish("", id=""),
        wish("functions.look\0\x1b[2J", id=""),
        wish("x" * 3_000_000, id="a_2"),
    ]
    scripted = model(asks(*wishes))
    process = await working(world, scripted, tool := Counting())
    assert (await process.start(SOURCE)).status is RunStatus.COMPLETED
    assert [one.id for one in said(scripted)] == ["a", "a_2", "call", "call_2", "a_2_2"]
    assert [one.name for one in said(scripted)][:4] == ["look", "look", "unnamed", "functions_look___2J"]
    assert [one.call_id for one in shown(scripted)] == [one.id for one in said(scripted)]
    assert tool.seen == [{}, {"n": 2}]
    assert all(len(one.text) < 200 for one in shown(scripted))
    assert [one.call for one in await calls(process)] == ["m1", "m1.t1", "m1.t2", "m2"]


async def test_a_loop_with_arguments_that_change_slightly_ends_at_the_ceiling_of_rounds(world: World) -> None:
    scripted = model(*(asks(wish(arguments=f'{{"n": {n}}}')) for n in range(30)))
    process = await working(world, scripted, tool := Counting())
    run = await process.start(line("work", work="max_rounds=7"))
    assert run.status is RunStatus.FAILED
    assert (len(scripted.received), tool.begun.total()) == (7, 6)
