"""A message through every death: one message, one run, nothing lost, nothing done twice.

The calls to the store of one undisturbed life of a message are counted. Then, for every one of them, a
process dies there, before or after the effect, or is told of a failure that was none. Another process
finishes: a worker that sweeps, or the sender that sends the same message again under its key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import pytest

from onward.errors import StoreError
from onward.model.chat import IntakeState, Role, Wish, facts_of
from onward.model.result import Result
from onward.model.run import RunStatus
from onward.model.settings import DEFAULT_CHATS, ChatSettings
from tests.chance import places
from tests.chats.desk import GATED, PLAIN, SITE, STEERED, Desk, desk_of
from tests.conformance.faults import READS, WRITES, Died, Fault, FaultyStore
from tests.conformance.handlers import Doorway
from tests.world import World, in_memory

pytestmark = pytest.mark.anyio
COUNTED = (
    WRITES
    | READS
    | {
        *("intakes.put", "intakes.find", "intakes.free", "intakes.note", "intakes.begin", "intakes.settle"),
        *("messages.say", "messages.list", "messages.content", "limits.read", "limits.change"),
        *("runs.list", "pipelines.find", "pipelines.list", "pipelines.versions", "intakes.find_chat"),
    }
)
FAULTS = (Fault.DIE_BEFORE, Fault.DIE_AFTER, Fault.LOSE_REPLY, Fault.REFUSE)


@dataclass(frozen=True)
class Story:
    """A chat before the message, the message, and what must be there afterwards."""

    before: Callable[[World], Awaitable[None]]
    text: str
    outcome: str
    runs: list[tuple[str, str]]
    source: str = SITE
    how: dict[str, Any] = field(default_factory=dict)
    steering: int = 0
    settings: ChatSettings = DEFAULT_CHATS


async def nothing(world: World) -> None:
    await desk_of(world)


async def unregistered(world: World) -> None:
    """No pipeline: the built-in one answers."""


async def two_registered(world: World) -> None:
    await (await desk_of(world)).register(PLAIN, "invoice")


async def cut_off(world: World, node: str, source: str = SITE) -> None:
    """A run whose process was killed while `node` was at work."""
    door = Doorway()
    first = await desk_of(world, {node: [door]}, source)
    await first.say("build me a site")
    working = asyncio.create_task(first.work())
    await door.entered()
    await first.process.die()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def interrupted(world: World) -> None:
    await cut_off(world, "check")


async def without_research(world: World) -> None:
    await cut_off(world, "research")


async def under_way(world: World) -> None:
    await (await desk_of(world, source=STEERED)).say("build me a site")


async def at_a_gate(world: World) -> None:
    desk = await desk_of(world, source=GATED)
    await desk.say("build me a site")
    await desk.work()


READS_AS_FIX = {"read": [Result.success(**{"read.intent": "fix", "read.scope": "styling"})]}
DONE, NEW = ("completed", ""), ("cancelled", "superseded")
STORIES = {
    "starts": Story(nothing, "build me a site", "started", [DONE]),
    "resumes": Story(interrupted, "continue?", "resumed", [DONE]),
    "starts over": Story(without_research, "continue?", "started", [NEW, DONE]),
    "is fresh": Story(interrupted, "a shop", "started", [NEW, DONE], how={"wish": Wish.FRESH}),
    "steers": Story(under_way, "in blue", "steered", [DONE], source=STEERED, steering=1),
    "is read by a model": Story(
        nothing, "build me a site", "started", [DONE], settings=ChatSettings(classifier="openai:small")
    ),
    "is answered": Story(unregistered, "hello", "started", [DONE]),
    "is for one of two": Story(two_registered, "write an invoice", "started", [DONE]),
    "answers": Story(at_a_gate, "calm", "answered", [DONE], source=GATED),
}


async def disturbed(world: World, story: Story, fault: Fault | None, at: int, *, again: bool) -> list[str]:
    """Tell a story with one fault; the counted calls of the process that sent the message."""
    await story.before(world)
    wrapped: list[FaultyStore] = []

    def wrap(store: Any) -> FaultyStore:
        wrapped.append(FaultyStore(store, fault, at, counted=COUNTED))
        return wrapped[-1]

    sender = Desk(await world.process(READS_AS_FIX, wrap=wrap), story.settings)
    how = {"key": "k1", **story.how}
    is_known = True
    try:
        await sender.say(story.text, **how)
    except Died:
        await world.bury(sender.process.store.store)
        is_known = False
    except StoreError:
        is_known = False  # its sender is told so, and may send it again
    helper = Desk(await world.process(READS_AS_FIX), story.settings)
    is_stored = bool([text for text in await helper.spoken(Role.USER) if text == story.text])
    assert is_stored or not is_known, "a message was acknowledged and is not there"
    if again or not is_stored:
        await helper.say(story.text, **how)
    await finished(helper)
    await check(helper, story)
    return wrapped[0].calls


async def finished(desk: Desk) -> None:
    """Let a worker do all that is left."""
    while await desk.sweep() or await desk.work():
        pass


async def check(desk: Desk, story: Story) -> None:
    """One message, one run, nothing lost, nothing twice."""
    assert (await desk.spoken(Role.USER)).count(story.text) == 1
    (*_, intake) = await desk.process.store.intakes.list("talk", is_open=False, limit=10)
    assert (intake.state, intake.outcome) == (IntakeState.DONE, story.outcome)
    assert await desk.statuses() == story.runs
    runs = await desk.runs()
    assert runs[-1].id == intake.run_id
    told = [text for text in await desk.spoken() if text.startswith("Plan")]
    assert len(told) == (0 if story.before is unregistered else len(story.runs))
    kinds = await desk.process.kinds(intake.run_id)
    assert kinds.count("SteeringGiven") == story.steering
    assert kinds.count("RunResumed") <= 1
    if story.settings.classifier is not None:
        assert facts_of(runs[-1]).intent == "fix"
    anew = [text for text in await desk.spoken() if "starts over, with its first message" in text]
    assert len(anew) == (story.before is without_research)
    if story.text == "continue?":
        assert facts_of(runs[-1]).user_message == "build me a site"
    for run in runs:
        assert await desk.process.is_sound(run.id)
        assert run.status in (RunStatus.COMPLETED, RunStatus.CANCELLED)


@pytest.mark.parametrize("again", [False, True], ids=["swept", "sent again"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", STORIES)
async def test_a_message_is_dealt_with_once_wherever_its_process_dies(
    name: str, fault: Fault, again: bool
) -> None:
    """Die at every call to the store of sending and taking up, before and after it, or lose its reply.

    In `make test` each of the two who may finish has every second call.
    """
    story = STORIES[name]
    async with in_memory() as world:
        calls = await disturbed(world, story, None, 0, again=False)
    assert len(calls) > 10
    for at in takewhile(lambda at: at <= len(calls), places(2, first=2 if again else 1)):
        async with in_memory() as world:
            await disturbed(world, story, fault, at, again=again)


@pytest.mark.parametrize("name", ["starts", "resumes"])
async def test_the_same_on_a_real_database(world: World, name: str) -> None:
    """A few of these deaths on every store."""
    calls = await disturbed(world, STORIES[name], Fault.DIE_AFTER, 14, again=True)
    assert calls


@pytest.mark.parametrize("name", STORIES)
async def test_the_same_message_sent_by_two_at_once_is_one_message_and_one_run(
    world: World, name: str
) -> None:
    """B0-15: two processes, the same key, at once; and a third that sweeps meanwhile."""
    story = STORIES[name]
    await story.before(world)
    desks = [Desk(await world.process(READS_AS_FIX), story.settings) for _ in range(3)]
    how = {"key": "k1", **story.how}
    sweeping = asyncio.gather(desks[2].sweep(), desks[2].sweep())
    answers = await asyncio.gather(*(desk.say(story.text, **how) for desk in desks[:2]))
    await sweeping
    assert len({one.message for one in answers}) == 1
    await finished(desks[2])
    await check(desks[2], story)


async def test_different_messages_at_once_start_one_run_at_a_time(world: World) -> None:
    """B0-15: each gets its run, in some order, and never two beside each other."""
    await desk_of(world)
    desks = [Desk(await world.process()) for _ in range(3)]
    texts = [f"build page {number}" for number in range(6)]
    await asyncio.gather(*(desks[at % 3].say(text) for at, text in enumerate(texts)))
    helper = desks[0]
    for done in range(len(texts)):
        statuses = [status for status, _ in await helper.statuses()]
        assert (statuses.count("queued"), len(statuses)) == (1, done + 1)
        await helper.work()
        await helper.sweep()
    assert sorted(facts_of(run).user_message or "" for run in await helper.runs()) == sorted(texts)
    assert await helper.statuses() == [DONE] * len(texts)


class Frozen:
    """Stops a process between looking and acting, until it is woken."""

    def __init__(self) -> None:
        self.reached, self.woken = asyncio.Event(), asyncio.Event()

    def wrap(self, name: str) -> Callable[[Any], FaultyStore]:
        def wrapped(store: Any) -> FaultyStore:
            return Freezing(store, self, name)

        return wrapped


class Freezing(FaultyStore):
    """A store of a process that freezes before its first call of this name."""

    def __init__(self, store: Any, frozen: Frozen, name: str) -> None:
        super().__init__(store, counted=())
        self._frozen, self._name = frozen, name

    async def call(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if name == self._name and not self._frozen.reached.is_set():
            self._frozen.reached.set()
            await self._frozen.woken.wait()
        return await super().call(name, call)


async def test_a_message_that_was_looked_at_while_another_begins_starts_no_second_run(memory: World) -> None:
    """The other has its turn and no run yet: its run is created, and the message waits for it."""
    desk = await desk_of(memory)
    await desk.say("build me a site")
    first = await desk.say("add a footer")
    looking, creating = Frozen(), Frozen()
    late = Desk(await memory.process(wrap=looking.wrap("intakes.find")))
    saying = asyncio.create_task(late.say("add a header"))
    await looking.reached.wait()  # it has found that nothing is before it but what waits
    await desk.work()
    slow = Desk(await memory.process(wrap=creating.wrap("log.create")))
    sweeping = asyncio.create_task(slow.sweep())
    await creating.reached.wait()
    looking.woken.set()
    said = await saying
    assert await desk.statuses() == [DONE, ("queued", "")]
    assert said.state is IntakeState.PENDING
    creating.woken.set()
    await sweeping
    assert await desk.statuses() == [DONE, ("queued", "")]
    begun = await desk.process.store.intakes.find(first.message)
    assert begun is not None
    assert said.behind == begun.run_id


@pytest.mark.parametrize(
    "at", ["intakes.begin", "intakes.note", "log.create", "log.control", "limits.change", "intakes.settle"]
)
@pytest.mark.parametrize("name", STORIES)
async def test_a_process_that_wakes_from_a_freeze_between_look_and_act_does_nothing_twice(
    memory: World, name: str, at: str
) -> None:
    """The others have gone on to the end meanwhile, with a message after it."""
    story = STORIES[name]
    await story.before(memory)
    frozen = Frozen()
    slow = Desk(await memory.process(READS_AS_FIX, wrap=frozen.wrap(at)), story.settings)
    how = {"key": "k1", **story.how}
    sending = asyncio.create_task(slow.say(story.text, **how))
    reaching = asyncio.create_task(frozen.reached.wait())
    await asyncio.wait([sending, reaching], return_when=asyncio.FIRST_COMPLETED)
    helper = Desk(await memory.process(READS_AS_FIX), story.settings)
    await helper.say(story.text, **how)
    await finished(helper)
    frozen.woken.set()
    await sending
    reaching.cancel()
    await finished(helper)
    await check(helper, story)
