"""What the agents of a chat's runs know of what was said before, on every store."""

from __future__ import annotations

from typing import Any

import pytest

from onward.agents.model import AssistantMessage, Message, user
from onward.agents.step.conversation import told_history, turns_of
from onward.engine.control.requests import StartRequest
from onward.engine.messages import EARLIER_CHARACTERS_MAX, HISTORY_CHARACTERS_MAX, LEFT_OUT
from onward.model.chat import EarlierMessage, IntakeOutcome, IntakeState, Role
from onward.model.row import Offer
from onward.model.run import RunStatus
from onward.model.settings import ChatSettings
from onward.testing.script import ScriptedReply, ScriptRule
from tests.agents.test_agent_step import Scripted, at, model
from tests.chats.desk import Desk
from tests.world import World, line

pytestmark = pytest.mark.anyio
REMEMBERING = ScriptRule(
    contains="what is my name?", remembers="My name is Ann.", reply=ScriptedReply(text="You are Ann.")
)


def asked(scripted: Scripted, number: int = -1) -> list[str]:
    """The messages of one request, each with who says it."""
    return [said(message) for message in scripted.received[number].request.messages]


def said(message: Message) -> str:
    text = "".join(getattr(part, "text", "") for part in message.parts)
    return f"{'model' if isinstance(message, AssistantMessage) else 'user'}: {text}"


async def talked(desk: Desk, *texts: str, **how: Any) -> list[RunStatus]:
    """Say something, and let a worker do what follows, one after the other."""
    ended: list[RunStatus] = []
    for text in texts:
        await desk.say(text, **how)
        ended += [run.status for run in await desk.work()]
    return ended


async def test_without_a_pipeline_a_model_answers_and_knows_what_was_said_before(world: World) -> None:
    """One request for each message, without tools; nothing is classified and no plan is announced."""
    scripted = model(REMEMBERING, default="Hello.")
    desk = Desk(await at(world, scripted))
    assert await talked(desk, "My name is Ann.", "what is my name?") == [RunStatus.COMPLETED] * 2
    assert len(scripted.received) == 2
    assert asked(scripted) == ["user: My name is Ann.", "model: Hello.", "user: what is my name?"]
    assert all(one.request.tools == () for one in scripted.received)
    assert await desk.spoken(Role.ASSISTANT) == ["Hello.", "You are Ann."]
    assert await desk.spoken() == []
    run = (await desk.runs())[1]
    assert (run.pipeline, run.pipeline_version) == ("answer", None)
    assert (run.context["intent"], run.context["scope"]) == (None, None)


async def test_chats_know_nothing_of_each_other(world: World) -> None:
    scripted = model(REMEMBERING, default="I do not know.")
    desk = Desk(await at(world, scripted))
    await talked(desk, "My name is Ann.")
    await talked(desk, "what is my name?", chat="other")
    assert asked(scripted) == ["user: what is my name?"]


async def test_a_message_that_waited_knows_the_answer_before_it_and_no_later_message(world: World) -> None:
    scripted = model(default="Yes.")
    desk = Desk(await at(world, scripted))
    for text in ("one", "two", "three"):
        await desk.say(text)
    while await desk.work() or await desk.sweep():
        pass
    assert [asked(scripted, number) for number in range(3)] == [
        ["user: one"],
        ["user: one", "model: Yes.", "user: two"],
        ["user: one", "model: Yes.", "user: two", "model: Yes.", "user: three"],
    ]


async def test_only_agents_whose_node_says_so_see_the_chat(world: World) -> None:
    """And of each earlier run the last thing that its agents said."""
    scripted = model(ScriptRule(contains="begin it", reply=ScriptedReply(text="Noted.")), default="Done.")
    desk = Desk(await at(world, scripted))
    await desk.register(
        line("first", "second", first='prompt="begin it"', second="prompt=second, chat_history=2")
    )
    await talked(desk, "one", "two")
    assert [len(asked(scripted, number)) for number in range(4)] == [1, 1, 1, 3]
    assert asked(scripted)[:2] == ["user: one", "model: Done."]
    assert asked(scripted)[2].endswith("second")


async def test_a_step_that_is_asked_again_is_told_the_same_whatever_was_said_since(world: World) -> None:
    """Its history is part of its stored conversation."""
    scripted = model(
        ScriptRule(contains="two", times=1, reply=ScriptedReply(status=429, retry_after="60")), default="Yes."
    )
    desk = Desk(await at(world, scripted))
    await talked(desk, "one", "two")
    other = await at(world, scripted, clock=desk.process.clock)
    started = await other.engine.start(other.pipeline(line("late")), StartRequest(run_id="late", chat="talk"))
    assert started.run.status is RunStatus.COMPLETED
    desk.process.clock.advance(61)
    assert (await desk.say("and now?")).outcome is IntakeOutcome.RESUMED
    await desk.work()
    about = [asked(scripted, number) for number in range(len(scripted.received))]
    assert [one for one in about if one[-1] == "user: two"] == [["user: one", "model: Yes.", "user: two"]] * 2
    await talked(desk, "three")
    assert asked(scripted)[-1] == "user: three"
    assert sum(turn.count("Yes.") for turn in asked(scripted)) == 3


async def test_what_a_model_says_that_reads_messages_is_not_remembered(world: World) -> None:
    reads = ScriptRule(
        contains="Say what the message wants", reply=ScriptedReply(text='{"intent": "work", "scope": "all"}')
    )
    scripted = model(reads, default="Done.")
    desk = Desk(await at(world, scripted), ChatSettings(classifier="openai:small"))
    source = line("work", work="chat_history=true").replace(
        "{", '{ graph [intents="work, play", scopes="all, part"]', 1
    )
    await desk.register(source)
    for text in ("one", "two"):
        await desk.say(text)
        while await desk.work() or await desk.sweep():
            pass
    assert asked(scripted)[:2] == ["user: one", "model: Done."]
    assert (await desk.runs())[1].context["intent"] == "work"


async def test_a_long_chat_is_shortened_and_the_agent_is_told(world: World) -> None:
    """By the number of messages, and by their characters: the oldest go, and of a long one the middle."""
    scripted = model(default="Yes.")
    desk = Desk(await at(world, scripted))
    await desk.register(line("work", work="prompt=work, chat_history=3"))
    long = "b" + "x" * (EARLIER_CHARACTERS_MAX + 98) + "e"
    await talked(desk, "one", "two", long)
    await talked(desk, "four")
    first, *turns = asked(scripted)
    assert first == f"user: [{LEFT_OUT}]"
    assert turns[0] == "model: Yes."
    assert turns[1].startswith("user: bxxx")
    assert turns[1].endswith("xe")
    assert "[100 characters are left out]" in turns[1]
    await talked(desk, *["y" * EARLIER_CHARACTERS_MAX] * 5, pipeline="answer")
    kept = sum(len(turn) for turn in asked(scripted)[:-1])
    assert HISTORY_CHARACTERS_MAX - EARLIER_CHARACTERS_MAX < kept < HISTORY_CHARACTERS_MAX + 200


def test_turns_begin_with_the_user_and_alternate() -> None:
    history = [
        EarlierMessage(Role.ASSISTANT, "Hi."),
        EarlierMessage(Role.USER, "one"),
        EarlierMessage(Role.USER, "two"),
    ]
    assert [said(turn) for turn in turns_of(history)] == [
        "user: [The chat begins with what you said.]",
        "model: Hi.",
        "user: one\n\ntwo",
    ]
    assert turns_of([]) == []
    assert turns_of([EarlierMessage(Role.SYSTEM, "Cut."), EarlierMessage(Role.USER, "one")]) == [
        user("[Cut.]\n\none")
    ]


def test_a_program_is_told_in_its_prompt() -> None:
    told = told_history([EarlierMessage(Role.USER, "one"), EarlierMessage(Role.ASSISTANT, "Hi.")])
    assert told == "What was said in this chat before:\n\nuser: one\n\nassistant: Hi."
    assert told_history([]) == ""


async def test_without_a_provider_the_chat_is_told_once_what_to_set(world: World) -> None:
    desk = Desk(await world.process(handlers={}))
    refused = await desk.say("hello")
    assert (refused.outcome, refused.state) == (IntakeOutcome.REFUSED, IntakeState.DONE)
    assert "no model provider is set up: set OPENAI_API_KEY" in refused.notice
    assert await desk.spoken() == [refused.notice]
    assert await desk.runs() == []


async def test_a_worker_that_has_a_provider_answers_for_a_sender_that_has_none(world: World) -> None:
    worker = Desk(await at(world, model(default="Hello.")))
    await worker.process.store.workers.register(Offer(("codergen",)))
    sender = Desk(await world.process(handlers={}))
    assert (await sender.say("hello")).outcome is IntakeOutcome.STARTED
    assert [run.status for run in await worker.work()] == [RunStatus.COMPLETED]
    assert await worker.spoken(Role.ASSISTANT) == ["Hello."]


async def test_a_pipeline_called_answer_replaces_the_built_in_one(world: World) -> None:
    desk = Desk(await at(world, model(default="Hello.")))
    await talked(desk, "hello")
    await desk.register(line("mine"), "answer")
    await talked(desk, "hello")
    assert [(run.pipeline, run.pipeline_version) for run in await desk.runs()] == [
        ("answer", None),
        ("answer", 1),
    ]


async def test_the_built_in_pipeline_can_be_named_beside_others(world: World) -> None:
    desk = Desk(await at(world, model(default="Hello.")))
    await desk.register(line("work"))
    await talked(desk, "hello", pipeline="answer")
    assert [run.pipeline for run in await desk.runs()] == ["answer"]
