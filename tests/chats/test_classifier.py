"""Messages that a model reads: in a run of its own, once, and by rules if that does not get there."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from onward.chats.intent import READING_S, Candidate, Offered, reading_source
from onward.handlers.port import StepContext
from onward.model.chat import READING_TAG, IntakeOutcome, IntakeState, Wish, facts_of
from onward.model.result import Result
from onward.model.run import RunStatus
from onward.model.settings import ChatSettings
from onward.pipeline.build import build
from onward.pipeline.purpose import MessageKind, Purpose
from onward.pipeline.rules.check import RULES
from onward.store.port.runs import RunQuery
from tests.chats.desk import PLAIN, Desk, desk_of
from tests.conformance.handlers import Act
from tests.world import World

pytestmark = pytest.mark.anyio
BY_MODEL = ChatSettings(classifier="openai:small")
AS_FIX = Result.success(**{"read.intent": "fix", "read.scope": "styling"})


async def read_desk(world: World, *acts: Act) -> Desk:
    desk = await desk_of(world, {"read": list(acts)})
    desk.settings = BY_MODEL
    return desk


async def test_a_model_reads_a_message_before_its_run_starts(world: World) -> None:
    """S0-3, S0-4: in an ordinary run, whose answer is used once."""
    desk = await read_desk(world, AS_FIX)
    said = await desk.say("build me a site")
    assert (said.state, await desk.runs()) == (IntakeState.PENDING, [])
    (reading,) = await desk.process.store.runs.list(RunQuery(chat="talk"))
    assert (reading.row.id, reading.row.tags.split()) == (said.behind, [READING_TAG])
    await desk.work()
    await desk.sweep()
    (run,) = await desk.runs()
    facts = facts_of(run)
    assert (facts.intent, facts.scope) == ("fix", "styling")
    assert any(text.startswith("Plan (fix, styling, read by openai:small)") for text in await desk.spoken())
    assert world.ledger.attempts("read") == [1]


@pytest.mark.parametrize(
    "answer",
    [Result.fail("no", retryable=False), Result.success(), Result.success(**{"read.intent": "sing"})],
)
async def test_rules_read_a_message_that_the_model_does_not(world: World, answer: Result) -> None:
    """Said in the plan."""
    desk = await read_desk(world, answer)
    await desk.say("build me a landing page")
    await desk.work()
    await desk.sweep()
    (run,) = await desk.runs()
    assert facts_of(run).intent == "build"
    assert any("rules, because openai:small did not respond" in text for text in await desk.spoken())


async def test_a_reading_that_stopped_holds_up_nothing(world: World) -> None:
    desk = await read_desk(world, AS_FIX)
    said = await desk.say("build me a site")
    await desk.process.engine.pause(said.behind)
    assert await desk.sweep() == 1
    assert facts_of((await desk.runs())[0]).intent == "build"


async def test_a_model_that_never_answers_holds_up_a_message_for_a_minute_at_most(world: World) -> None:
    """A provider may be silent, or send a letter now and then, for half an hour."""

    async def silence(step: StepContext) -> Result:
        await asyncio.Event().wait()
        raise AssertionError

    desk = await read_desk(world, silence)
    began_s = desk.process.clock.awake_s()
    await desk.say("build me a site")
    await asyncio.wait_for(desk.work(), 20)
    assert desk.process.clock.awake_s() - began_s <= READING_S + 1
    await desk.sweep()
    (run,) = await desk.runs()
    assert facts_of(run).intent == "build"
    assert any("rules, because openai:small did not respond" in text for text in await desk.spoken())


async def test_messages_that_are_read_start_runs_in_their_order(world: World) -> None:
    desk = await read_desk(world, AS_FIX)
    first, second = await desk.say("build me a site"), await desk.say("and a shop")
    assert second.behind == first.behind
    while await desk.work() or await desk.sweep():
        pass
    texts = [facts_of(run).user_message for run in await desk.runs()]
    assert texts == ["build me a site", "and a shop"]
    assert {run.status for run in await desk.runs()} == {RunStatus.COMPLETED}


async def test_a_resume_reads_nothing(world: World) -> None:
    """S0-42: what stopped is resumed before anything is classified."""
    desk = await desk_of(world, {"design": [Result.fail("later", retryable=False), Result.success()]})
    begun = await desk.say("build me a site")
    await desk.work()
    desk.settings = BY_MODEL
    said = await desk.say("continue?", wish=Wish.RESUME)
    assert (said.outcome, said.run_id) == (IntakeOutcome.RESUMED, begun.run_id)


@pytest.mark.parametrize("model", ["openai:gpt-5-mini", "small", 'odd:"quoted" \\ one'])
def test_the_pipeline_of_a_reading_is_sound_whatever_the_model_is_called(model: str) -> None:
    kinds = (MessageKind("build", about='a "new" $thing \\'), MessageKind("fix"))
    offered = Offered((Candidate("site", 1, Purpose(kinds, (MessageKind("all"), MessageKind("part")))),))
    pipeline = build(reading_source(model, offered), file="<reading>", rules=RULES, known_types=set())
    assert [str(one) for one in pipeline.warnings if "type_known" not in str(one.rule)] == []
    node = pipeline.graph.nodes["read"]
    assert node.text("llm_model") == model.rpartition(":")[2]
    assert "${context.user_message}" in node.text("prompt")
    assert '- build: a "new" thing \\\n- fix' in node.text("prompt")
    assert msgspec.json.decode(node.text("output_schema"))["properties"] == {
        "intent": {"enum": ["build", "fix"]},
        "scope": {"enum": ["all", "part"]},
    }


@pytest.mark.parametrize("source", [PLAIN, None], ids=["one that says nothing", "none"])
async def test_where_there_is_nothing_to_choose_no_model_is_asked(world: World, source: str | None) -> None:
    desk = Desk(await world.process(), BY_MODEL)
    if source is not None:
        await desk.register(source)
    assert (await desk.say("build me a site")).outcome is IntakeOutcome.STARTED
    (run,) = await desk.runs()
    assert (run.context["intent"], run.context["scope"]) == (None, None)
    assert len(await desk.process.store.runs.list(RunQuery(chat="talk"))) == 1
