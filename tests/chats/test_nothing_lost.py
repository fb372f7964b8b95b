"""What a message must not do: lose, double or give up work, decide for a person, or stop other chats."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from onward.chats.dispatch import Failures, Inbox, NewMessage
from onward.engine.control.requests import StartRequest
from onward.errors import InvalidInput, Refused
from onward.model.chat import IntakeOutcome, IntakeState, MessageReading, Wish, write_reading
from onward.model.events import Managed
from onward.model.result import Result
from onward.model.run import RunStatus
from onward.store.port.log import Loaded, RunLog
from onward.store.port.messages import FREE_MAX
from onward.store.port.retention import NewSource
from onward.testing.clock import SeededIds
from tests.chats.desk import GATED, PLAIN, Desk, desk_of
from tests.chats.test_dispatch import killed
from tests.chats.test_limits import CHAT, memory_of, scope
from tests.conformance.faults import Around, FaultyStore
from tests.conformance.handlers import Doorway
from tests.world import World

pytestmark = pytest.mark.anyio
FREEFORM = """digraph titled {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  ask [shape=hexagon, label="Which title?", human.type=freeform]
  work [prompt="do it"]
  start -> ask -> work -> exit
}"""
SHIPPING = GATED.replace("[B] Bold", "Continue").replace("[C] Calm", "Stop")


async def test_a_start_anew_has_the_pipeline_of_the_run_that_it_replaces(world: World) -> None:
    """S0-6, S0-27, B0-11: the first message named a pipeline, "continue?" names none."""
    desk, _ = await killed(world, "research")
    await desk.register(PLAIN, "build")  # what "build" would choose now
    said = await desk.say("continue?")
    assert said.outcome is IntakeOutcome.STARTED, said.notice
    assert [run.pipeline for run in await desk.runs()] == ["site", "site"]


async def test_a_start_anew_that_is_refused_leaves_the_run_as_it_was(world: World) -> None:
    """S0-6, S0-27: two pipelines, and the message says neither which, nor what to build."""
    desk, _ = await killed(world, "research")
    await desk.register(PLAIN, "other")
    await desk.say("continue?")
    statuses = await desk.statuses()
    assert statuses[0] != ("cancelled", "superseded") or len(statuses) == 2, statuses


@pytest.mark.parametrize("wish", [Wish.NONE, Wish.FRESH])
async def test_a_spent_limit_supersedes_nothing(memory: World, wish: Wish) -> None:
    """S0-30, S0-32, S0-36: "nothing was started" does not mean that something was given up."""
    desk, _ = await killed(memory, "research")
    memory_of(desk.process.store)[CHAT] = scope(CHAT, tokens=100, spent=(100, 0))
    assert (await desk.say("continue?", wish=wish)).outcome is IntakeOutcome.LIMIT
    assert await desk.statuses() == [("interrupted", "crash")]


async def test_a_fresh_start_with_a_pipeline_that_is_missing_supersedes_nothing(world: World) -> None:
    desk, _ = await killed(world, "design")
    said = await desk.say("build a shop", wish=Wish.FRESH, pipeline="nosuch")
    assert said.outcome is IntakeOutcome.REFUSED
    assert await desk.statuses() == [("interrupted", "crash")]


async def test_a_start_anew_works_in_the_directory_of_the_run_that_it_replaces(
    world: World, tmp_path: Path
) -> None:
    door, here, elsewhere = Doorway(), str(tmp_path), str(tmp_path / "elsewhere")
    first = await desk_of(world, {"research": [door]})
    await first.say("build me a site", workdir=here)
    working = asyncio.create_task(first.work())
    await door.entered()
    await first.process.die()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    desk = Desk(await world.process())
    await desk.say("continue?", workdir=elsewhere)
    assert [run.workdir for run in await desk.runs()] == [here, here]


async def test_a_run_that_somebody_resumed_meanwhile_is_not_started_anew(world: World) -> None:
    """The sender noted that it would be, and died. A person resumes it by name, and it completes."""
    desk, run_id = await killed(world, "research")
    sending = Inbox(desk.process.store.intakes, desk.process.engine.saying, desk.process.clock, SeededIds(9))
    said, _ = await sending.put(NewMessage(chat="talk", text="what is this?"))
    noted = write_reading(MessageReading(instead_of=run_id))
    assert await desk.process.store.intakes.note(said.message, seen="", behind="", reading=noted)
    assert (await desk.process.resume(run_id)).status is RunStatus.COMPLETED
    await desk.sweep()
    first, second = await desk.runs()
    assert (first.status, first.id) == (RunStatus.COMPLETED, run_id)
    assert second.context["user_message"] == "what is this?"


@pytest.mark.parametrize("source", [SHIPPING, FREEFORM])
async def test_a_resume_answers_no_gate(world: World, source: str) -> None:
    """`onward chat CHAT --resume` says "continue" for its user, who has approved nothing."""
    desk = await desk_of(world, source=source)
    await desk.say("build it")
    await desk.work()
    said = await desk.say("continue", wish=Wish.RESUME)
    assert said.outcome is not IntakeOutcome.ANSWERED
    (run,) = await desk.runs()
    assert run.status is RunStatus.WAITING


@pytest.mark.parametrize(
    ("source", "text"), [(GATED, "build three"), (GATED, "b"), (FREEFORM, "build three")]
)
async def test_a_message_that_waited_has_nothing_to_say_to_a_later_gate(
    world: World, source: str, text: str
) -> None:
    """A message queued behind one run must not be lost at, nor answer, the gate of the next."""
    desk = await desk_of(world, source=PLAIN)
    await desk.register(source, "gated")
    await desk.say("build one", pipeline="site")
    second = await desk.say("build two", pipeline="gated")
    third = await desk.say(text, pipeline="site")
    await desk.work()
    await desk.dispatcher.take_up(chat="talk", upto=second.n)  # its sender watches, and executes it
    await desk.work()
    assert [status for status, _ in await desk.statuses()] == ["completed", "waiting"]
    await desk.sweep()
    found = await desk.process.store.intakes.find(third.message)
    assert found is not None
    assert (found.state, found.outcome) == (IntakeState.PENDING, None)


async def test_a_run_is_seen_whatever_it_manages(world: World) -> None:
    """B0-15: the runs that a run manages are in its chat, too, and newer than it."""
    desk = await desk_of(world, source=PLAIN)
    first = await desk.say("build one")
    engine, pipeline = desk.process.engine, desk.process.pipeline(PLAIN)
    desk.process.clock.advance(1)
    for number in range(20):
        managed_by = Managed(run=first.run_id, step=f"m{number}#1", depth=1)
        await engine.submit(pipeline, StartRequest(chat="talk", managed_by=managed_by))
    second = await desk.say("build two")
    assert second.outcome is None, "it starts a second run beside the first"
    assert second.behind == first.run_id


async def test_messages_that_cannot_be_dealt_with_are_in_nobodys_way(world: World) -> None:
    """More of them than are looked at in one go; each is put off for longer after each failure."""
    desk = await desk_of(world, source=PLAIN)
    intakes, dispatcher = desk.process.store.intakes, desk.dispatcher
    sending = Inbox(intakes, desk.process.engine.saying, desk.process.clock, SeededIds(9))
    for number in range(FREE_MAX):
        said, _ = await sending.put(NewMessage(chat=f"bad-{number}", text="build"))
        assert await intakes.note(said.message, seen="", behind="", reading="{")
    await desk.say("build one")
    second = await desk.say("build two")
    await desk.work()
    assert await dispatcher.take_up() == 1
    found = await intakes.find(second.message)
    assert found is not None
    assert found.outcome is IntakeOutcome.STARTED


def test_what_failed_is_tried_again_later_and_later() -> None:
    failures, now_s, waits = Failures(), 0.0, list[float]()
    for _ in range(11):
        assert failures.may_try("m", now_s)
        waits.append(failures.note("m", now_s))
        assert not failures.may_try("m", now_s + waits[-1] - 0.1)
        now_s += waits[-1]
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    failures.forget("m")
    assert failures.may_try("m", now_s)


@pytest.mark.parametrize("wish", [Wish.NONE, Wish.FRESH])
async def test_a_run_that_cannot_be_read_is_not_in_the_way(world: World, wish: Wish) -> None:
    """K7: corruption is loud and local. Its log is damaged, and no message would touch it."""
    first = await desk_of(world, {"work": [Result.fail("no")]}, PLAIN)
    failed = await first.say("build one")
    await first.work()

    class OneDamaged(Around[RunLog]):
        async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
            loaded = await self.part.load(run_id, fold_version=fold_version)
            is_it = loaded is not None and run_id == failed.run_id
            return replace(loaded, tail=loaded.tail[:-1]) if loaded is not None and is_it else loaded

    desk = Desk(await world.process(wrap=partial(FaultyStore, log=OneDamaged)))
    assert (await desk.say("build two", wish=wish)).outcome is IntakeOutcome.STARTED
    assert [run.status for run in await desk.work()] == [RunStatus.COMPLETED]


async def test_a_chat_belongs_to_one_project(world: World) -> None:
    """Else its runs would escape the limits of its project."""
    desk = await desk_of(world, source=PLAIN)
    await desk.say("build one", project="a")
    with pytest.raises(Refused, match="chat talk belongs to project a, not to b"):
        await desk.say("build two", project="b")
    assert (await desk.say("build two")).behind


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"text": "\ud800"}, "the message '.*' is not valid UTF-8"),
        ({"text": "hi", "by": "\ud800"}, "the sender '.*' is not valid UTF-8"),
        ({"text": "hi", "key": "\ud800"}, "the key '.*' is not valid UTF-8"),
        ({"text": "hi", "workdir": "/a\0b"}, "the directory .* has a NUL character"),
    ],
)
async def test_what_no_database_stores_is_refused_at_the_door(
    memory: World, how: dict[str, str], why: str
) -> None:
    desk = await desk_of(memory)
    with pytest.raises(InvalidInput, match=why):
        await desk.say(**how)
    assert await desk.process.store.intakes.find_chat("talk") is None


async def test_a_refused_key_changes_nothing(world: World) -> None:
    """On PostgreSQL the chat of the refused message is made, and gets its project."""
    desk = await desk_of(world)
    await desk.say("build one", chat="one", key="k")
    with pytest.raises(Refused, match="was used for another message"):
        await desk.say("build one", chat="two", key="k", project="p")
    assert await desk.process.store.intakes.find_chat("two") is None


async def test_a_pipeline_that_cannot_be_read_keeps_no_message_from_the_others(memory: World) -> None:
    desk = await desk_of(memory)
    await desk.process.store.pipelines.add(NewSource("odd", "0" * 64, b"digraph {", "<test>", "ann"), at_us=1)
    assert (await desk.say("build me a site")).outcome is IntakeOutcome.STARTED
    await desk.process.store.pipelines.remove("site", by="ann", at_us=2)
    assert (await desk.say("build me a site", "other")).outcome is IntakeOutcome.REFUSED
