"""Messages and runs: what each message does, on every store."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from msgspec.structs import replace

from onward.chats.dispatch import Inbox, NewMessage
from onward.errors import Refused
from onward.model.chat import Intake, IntakeOutcome, IntakeState, Role, Wish, facts_of
from onward.model.events import RunInterrupted
from onward.model.result import Result
from onward.model.run import RunStatus
from onward.model.settings import ChatSettings
from onward.store.port.messages import Intakes
from onward.testing.clock import SeededIds
from tests.chats.desk import GATED, PLAIN, SITE, STEERED, Desk, desk_of
from tests.conformance.handlers import Doorway
from tests.world import World

pytestmark = pytest.mark.anyio


async def test_a_message_starts_a_run_of_the_registered_pipeline(world: World) -> None:
    """S0-1, S0-2, S0-7, S0-40: one row, with chat, intent, scope, message and planned agents."""
    desk = await desk_of(world)
    said = await desk.say("build me a landing page", project="shop")
    assert (said.outcome, said.state) == (IntakeOutcome.STARTED, IntakeState.DONE)
    (run,) = await desk.runs()
    assert (run.id, run.status, run.chat, run.project) == (said.run_id, RunStatus.QUEUED, "talk", "shop")
    assert (run.exclusive_key, run.pipeline, run.pipeline_version) == ("chat/talk", "site", 1)
    facts = facts_of(run)
    assert (facts.intent, facts.scope) == ("build", "full")
    assert facts.user_message == "build me a landing page"
    assert facts.planned_agents == ("research", "design", "check")
    assert await desk.spoken() == ["Plan (build, full): site@1 with research, design, check."]
    assert await desk.spoken(Role.USER) == ["build me a landing page"]


async def test_a_run_that_succeeds_is_completed(world: World) -> None:
    """S0-8, S0-5."""
    desk = await desk_of(world)
    await desk.say("build me a site")
    (ended,) = await desk.work()
    assert (ended.status, ended.reason) == (RunStatus.COMPLETED, "")
    assert ended.ended_at_us is not None


async def test_an_agents_error_fails_the_run(world: World) -> None:
    """S0-9: and the next message starts a new one, unless it says that it resumes."""
    desk = await desk_of(world, {"design": [Result.fail("no idea"), Result.success()]})
    await desk.say("build me a site")
    (ended,) = await desk.work()
    assert (ended.status, ended.reason) == (RunStatus.FAILED, "step_failed")
    resumed = await desk.say("try again", wish=Wish.RESUME)
    assert (resumed.outcome, resumed.run_id) == (IntakeOutcome.RESUMED, ended.id)
    (ended,) = await desk.work()
    assert ended.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["research#1", "design#1", "design#1", "check#1"]


async def killed(world: World, node: str, source: str = SITE) -> tuple[Desk, str]:
    """A run whose process was killed while `node` was at work; the desk of another process, and the run."""
    door = Doorway()
    first = await desk_of(world, {node: [door]}, source)
    said = await first.say("build me a site")
    working = asyncio.create_task(first.work())
    await door.entered()
    await first.process.die()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    return Desk(await world.process()), said.run_id


async def test_a_follow_up_resumes_what_a_crash_interrupted(world: World) -> None:
    """S0-10, S0-13, S0-15, S0-18, S0-19, S0-25, S0-42: "continue?" is no new build."""
    desk, run_id = await killed(world, "check")
    said = await desk.say("continue?")
    assert (said.outcome, said.run_id) == (IntakeOutcome.RESUMED, run_id)
    (ended,) = await desk.work()
    assert (ended.id, ended.status) == (run_id, RunStatus.COMPLETED)
    assert world.ledger.steps == ["research#1", "design#1", "check#1", "check#1"]
    assert len(await desk.runs()) == 1


async def test_a_resume_works_on_the_first_message_and_with_the_first_plan(world: World) -> None:
    """S0-6, S0-22, B0-11: the follow-up is stored, and changes nothing of the run."""
    desk, run_id = await killed(world, "check")
    await desk.register(PLAIN)  # a newer version, which new runs get
    before = (await desk.process.load(run_id)).run.context
    await desk.say("make it a shop instead")
    (ended,) = await desk.work()
    assert (ended.context["user_message"], ended.pipeline_version) == ("build me a site", 1)
    assert ended.context["planned_agents"] == before["planned_agents"] == ["research", "design", "check"]
    assert await desk.spoken(Role.USER) == ["build me a site", "make it a shop instead"]


async def test_without_a_required_step_the_work_starts_anew_with_the_first_message(world: World) -> None:
    """S0-27: said out loud, and the old run is superseded."""
    desk, run_id = await killed(world, "research")
    said = await desk.say("continue?")
    assert said.outcome is IntakeOutcome.STARTED
    assert said.run_id != run_id
    assert await desk.statuses() == [("cancelled", "superseded"), ("queued", "")]
    (_, run) = await desk.runs()
    facts = facts_of(run)
    assert (facts.user_message, facts.intent) == ("build me a site", "build")
    assert any("stopped before research had finished" in text for text in await desk.spoken())
    await desk.work()
    assert (await desk.statuses())[1] == ("completed", "")


async def test_a_required_step_that_is_not_required_for_this_intent_does_not_count(world: World) -> None:
    """S0-27: research is needed in build mode alone."""
    door = Doorway()
    first = await desk_of(world, {"research": [door]})
    said = await first.say("fix the bug in the login")
    working = asyncio.create_task(first.work())
    await door.entered()
    await first.process.die()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    desk = Desk(await world.process())
    assert (await desk.say("go on")).run_id == said.run_id
    assert await desk.statuses() == [("queued", "")]


async def test_with_nothing_to_resume_a_resume_starts(world: World) -> None:
    """S0-28, S0-41: exactly as if nothing had been said about it."""
    desk = await desk_of(world)
    assert (await desk.say("build it", wish=Wish.RESUME)).outcome is IntakeOutcome.STARTED
    assert len(await desk.runs()) == 1


async def test_fresh_supersedes_what_was_interrupted(world: World) -> None:
    """B0-1: starting over is really new, and the old run is over."""
    desk, run_id = await killed(world, "check")
    said = await desk.say("build a shop", wish=Wish.FRESH)
    assert said.outcome is IntakeOutcome.STARTED
    assert await desk.statuses() == [("cancelled", "superseded"), ("queued", "")]
    assert facts_of((await desk.runs())[1]).user_message == "build a shop"
    assert said.run_id != run_id


async def test_a_dismissed_run_does_not_come_back(world: World) -> None:
    """B0-2: no message resumes it, and a person who names it does."""
    desk, run_id = await killed(world, "check")
    await desk.process.engine.sweep()
    await desk.process.engine.dismiss(run_id)
    said = await desk.say("build a shop")
    assert said.outcome is IntakeOutcome.STARTED
    assert await desk.statuses() == [("interrupted", "crash"), ("queued", "")]
    await desk.work()
    assert (await desk.process.resume(run_id)).status is RunStatus.COMPLETED


async def test_a_message_waits_for_the_run_under_way_and_starts_after_it(world: World) -> None:
    """B0-15: never a second run beside it."""
    desk = await desk_of(world)
    first = await desk.say("build me a site")
    second, third = await desk.say("add a footer"), await desk.say("add a header")
    assert [one.state for one in (second, third)] == [IntakeState.PENDING] * 2
    assert {second.behind, third.behind} == {first.run_id}
    assert await desk.sweep() == 0
    await desk.work()
    assert await desk.sweep() == 2  # one has its run, the other waits for that
    assert await desk.statuses() == [("completed", ""), ("queued", "")]
    assert facts_of((await desk.runs())[1]).user_message == "add a footer"
    await desk.work()
    await desk.sweep()
    await desk.work()
    assert [facts_of(run).user_message for run in await desk.runs()] == [
        *("build me a site", "add a footer", "add a header"),
    ]
    assert {status for status, _ in await desk.statuses()} == {"completed"}


async def test_an_interruption_does_not_make_a_queued_message_a_resume(world: World) -> None:
    """It was said before: otherwise a limit would be hit again and again."""
    door = Doorway()
    first = await desk_of(world, {"check": [door]})
    begun = await first.say("build me a site")
    working = asyncio.create_task(first.work())
    await door.entered()
    queued = await first.say("add a footer")
    await first.process.die()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    desk = Desk(await world.process())
    await desk.process.engine.sweep()
    assert await desk.sweep() == 0
    assert await desk.statuses() == [("interrupted", "crash")]
    assert (await desk.say("continue?")).run_id == begun.run_id
    await desk.work()
    await desk.sweep()
    found = await desk.process.store.intakes.find(queued.message)
    assert found is not None
    assert found.outcome is IntakeOutcome.STARTED


async def test_a_message_steers_a_run_whose_pipeline_says_so(world: World) -> None:
    desk = await desk_of(world, source=STEERED)
    begun = await desk.say("build me a site")
    said = await desk.say("in blue")
    assert (said.outcome, said.run_id) == (IntakeOutcome.STEERED, begun.run_id)
    (run,) = await desk.runs()
    assert run.steering == ("in blue",)


async def test_a_gate_is_the_reply_until_a_message_answers_it(world: World) -> None:
    """S0-12, S0-14: the run waits, and a chosen option sets it going."""
    desk = await desk_of(world, source=GATED)
    begun = await desk.say("build me a site")
    (waiting,) = await desk.work()
    assert waiting.status is RunStatus.WAITING
    asked = await desk.say("how are you?")
    assert (asked.outcome, asked.run_id) == (IntakeOutcome.GATE, begun.run_id)
    refused = await desk.say("calm", by="bob", may_answer=False)
    assert (refused.outcome, refused.run_id) == (IntakeOutcome.GATE, begun.run_id)
    answered = await desk.say("calm", by="ann")
    assert (answered.outcome, answered.run_id) == (IntakeOutcome.ANSWERED, begun.run_id)
    (ended,) = await desk.work()
    assert (ended.status, len(await desk.runs())) == (RunStatus.COMPLETED, 1)


async def test_fresh_at_a_gate_supersedes_the_run(world: World) -> None:
    desk = await desk_of(world, source=GATED)
    await desk.say("build me a site")
    await desk.work()
    await desk.say("a shop", wish=Wish.FRESH)
    assert await desk.statuses() == [("cancelled", "superseded"), ("queued", "")]


async def test_fresh_waits_until_the_run_under_way_has_left(world: World) -> None:
    """B0-1: a live process is asked to make room, and the new run starts when it has."""
    door = Doorway()
    desk = await desk_of(world, {"design": [door]})
    await desk.say("build me a site")
    working = asyncio.create_task(desk.work())
    await door.entered()
    said = await desk.say("a shop", wish=Wish.FRESH)
    assert said.state is IntakeState.PENDING
    door.open()
    await working
    await desk.sweep()
    assert await desk.statuses() == [("cancelled", "superseded"), ("queued", "")]


@pytest.mark.parametrize(
    ("on_message", "outcome"), [("ask", IntakeOutcome.ASKED), ("never", IntakeOutcome.STARTED)]
)
async def test_the_settings_say_what_a_message_does_to_an_interrupted_run(
    world: World, on_message: str, outcome: IntakeOutcome
) -> None:
    desk, run_id = await killed(world, "check")
    desk.settings = ChatSettings(on_message=on_message)
    said = await desk.say("hello")
    assert said.outcome is outcome
    assert (await desk.process.load(run_id)).run.status is RunStatus.INTERRUPTED
    if on_message == "ask":
        assert "send it again with --resume" in said.notice
        assert said.notice in await desk.spoken()


async def test_the_same_key_sends_a_message_once(world: World) -> None:
    desk = await desk_of(world)
    first = await desk.say("build me a site", key="k1")
    again = await desk.say("build me a site", key="k1")
    assert (again.message, again.run_id) == (first.message, first.run_id)
    assert (len(await desk.runs()), await desk.spoken(Role.USER)) == (1, ["build me a site"])
    with pytest.raises(Refused, match="'k1' was used for another message") as refused:
        await desk.say("build me a shop", key="k1")
    assert refused.value.code == "key_reused"
    assert (await desk.say("build me a site", key="k1", by="bob")).message != first.message


async def test_two_runs_of_a_chat_do_not_share_results(world: World) -> None:
    """B0-6: what an earlier run finished is not left out of the next one."""
    desk = await desk_of(world)
    for text in ("build me a site", "build a new shop"):
        await desk.say(text)
        await desk.work()
    assert world.ledger.steps == ["research#1", "design#1", "check#1"] * 2


async def test_one_pipeline_without_intents_gets_every_message_unread(world: World) -> None:
    """Nothing is classified: there is nothing to choose."""
    desk = await desk_of(world, source=PLAIN)
    await desk.say("what is this?")
    (run,) = await desk.runs()
    assert (run.pipeline, run.context["intent"], run.context["scope"]) == ("site", None, None)
    assert await desk.spoken() == ["Plan: site@1 with work, finish."]


async def test_a_pipeline_gets_the_messages_that_it_says_it_is_for(world: World) -> None:
    """By the words of its intents; of a pipeline that says nothing, its own name is the word."""
    desk = await desk_of(world)
    await desk.register(PLAIN, "invoice")
    told = {"a": "build me a site", "b": "Write the INVOICE of March.", "c": "hello", "d": "what is this?"}
    for chat, text in told.items():
        assert (await desk.say(text, chat)).outcome is IntakeOutcome.STARTED
    runs = [(await desk.runs(chat))[0] for chat in told]
    assert [(run.pipeline, run.context["intent"], run.context["scope"]) for run in runs] == [
        ("site", "build", "full"),
        ("invoice", "invoice", None),
        ("site", "build", "full"),
        ("site", "question", "full"),
    ]


async def test_a_message_that_fits_no_pipeline_is_refused_and_kept(world: World) -> None:
    desk = Desk(await world.process())
    await desk.register(PLAIN, "one")
    await desk.register(GATED, "two")
    said = await desk.say("build me a site")
    assert said.outcome is IntakeOutcome.REFUSED
    assert "do not select one of the registered pipelines (one, two)" in said.notice
    assert await desk.spoken() == [said.notice]
    assert (await desk.say("build me a site", pipeline="two")).outcome is IntakeOutcome.STARTED


async def test_an_intent_that_several_pipelines_have_is_refused_until_the_settings_choose(
    world: World,
) -> None:
    desk = await desk_of(world)
    await desk.register(SITE, "other")
    said = await desk.say("build me a site")
    assert "read as build, and several of the registered pipelines (other, site) are for that" in said.notice
    desk.settings = ChatSettings(pipelines={"build": "other"})
    await desk.say("build me a site")
    assert [run.pipeline for run in await desk.runs()] == ["other"]


async def test_the_settings_name_the_pipeline_of_an_intent(world: World) -> None:
    """Also of one that no pipeline has; a pipeline with the name of an intent comes next."""
    settings = ChatSettings(pipelines={"question": "one", "poem": "three", "song": "nowhere"})
    desk = Desk(await world.process(), settings)
    for source, name in ((SITE, "one"), (PLAIN, "build"), (GATED, "three")):
        await desk.register(source, name)
    told = {"a": "what is this?", "b": "build me a site", "c": "write a poem"}
    for chat, text in told.items():
        await desk.say(text, chat)
    assert [(await desk.runs(chat))[0].pipeline for chat in told] == ["one", "build", "three"]
    refused = await desk.say("a song", "d")
    assert (refused.outcome, "nowhere" in refused.notice) == (IntakeOutcome.REFUSED, True)


async def test_a_stop_is_told_in_the_chat_once(world: World) -> None:
    """B0-9: why a run stopped outlives the process that stopped it."""
    desk, _ = await killed(world, "check")
    (swept,) = (await desk.process.engine.sweep()).stopped
    for _ in range(2):
        await desk.dispatcher.tell_stop(swept)
    await desk.say("continue?")
    told = [text for text in await desk.spoken() if "is interrupted (crash" in text]
    assert len(told) == 1
    assert "Finished: design, research, start." in told[0]


async def test_what_a_run_says_stays_if_steps_write_something_else(world: World) -> None:
    """A run whose steps changed the values is still found by its chat."""
    desk = await desk_of(world, {"research": [Result.success(intent=7, planned_agents="x")]})
    await desk.say("build me a site")
    (ended,) = await desk.work()
    facts = facts_of(ended)
    assert (facts.intent, facts.planned_agents) == (None, ())


async def test_a_run_that_the_user_stopped_is_resumed(world: World) -> None:
    """B0-13, B0-14: it is paused, has not ended, and the next message continues it."""
    door = Doorway()
    desk = await desk_of(world, {"design": [door, Result.success()]})
    begun = await desk.say("build me a site")
    working = asyncio.create_task(desk.work())
    await door.entered()
    await desk.process.engine.pause(begun.run_id)
    door.open()
    (stopped,) = await working
    assert (stopped.status, stopped.ended_at_us) == (RunStatus.PAUSED, None)
    assert (await desk.say("go on")).run_id == begun.run_id
    (ended,) = await desk.work()
    assert (ended.status, len(await desk.runs())) == (RunStatus.COMPLETED, 1)
    assert not [
        event for event in await desk.process.events(begun.run_id) if isinstance(event, RunInterrupted)
    ]


async def test_a_step_in_doubt_is_not_decided_by_a_message(world: World) -> None:
    """The reply says what to type, and the run stays as it is."""
    source = PLAIN.replace('work [prompt="do it"]', 'work [prompt="do it", repeatable=false]')
    desk, run_id = await killed(world, "work", source)
    said = await desk.say("continue?")
    assert (said.outcome, said.run_id) == (IntakeOutcome.REFUSED, "")
    assert "--retry`" in said.notice
    assert "never finished" in said.notice
    assert (await desk.process.resume(run_id, action="retry")).status is RunStatus.COMPLETED


class Unseen:
    """The messages as one who was too early has seen them: without the one that is being stored."""

    def __init__(self, intakes: Intakes) -> None:
        self._intakes, self.put = intakes, intakes.put

    async def find(self, message: str) -> Intake | None:
        return None


async def test_of_two_who_send_a_message_at_once_one_alone_is_the_first(memory: World) -> None:
    """Both look before either has stored it; both were told that they had sent it."""
    process = (await desk_of(memory)).process
    sent = NewMessage(chat="talk", text="build me a site", key="k")
    unseen = cast("Intakes", Unseen(process.store.intakes))
    inbox = Inbox(unseen, process.engine.saying, process.clock, SeededIds(9))
    first, is_repeat = await inbox.put(sent)
    assert not is_repeat
    process.clock.advance(1)
    assert await inbox.put(sent) == (first, True)


async def test_a_damaged_message_does_not_keep_others_from_their_turn(memory: World) -> None:
    desk = await desk_of(memory)
    await desk.say("build me a site", "other")
    waits = await desk.say("add a footer", "other")
    damaged = desk.process.store.store.database.intakes  # type: ignore[attr-defined]
    damaged[waits.message] = replace(damaged[waits.message], reading="{", behind="")
    sending = Inbox(desk.process.store.intakes, desk.process.engine.saying, desk.process.clock, SeededIds(9))
    await sending.put(NewMessage(chat="talk", text="build me a shop"))
    assert await desk.sweep() == 1
    assert await desk.statuses() == [("queued", "")]
