"""Rivals: whoever wants the same thing at the same moment, one wins, and the others are told the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from onward.engine.control.requests import Resume, StartRequest
from onward.engine.log import Folded
from onward.engine.stop import StopSwitch
from onward.errors import Refused
from onward.model.events import RunClaimed, RunResumed, SteeringGiven
from onward.model.gate import Answer, GateDecided
from onward.model.run import RunStatus
from onward.store.port.leases import Lease
from onward.store.port.log import Controlled, RunLog, Write
from tests.conformance.faults import Around, FaultyStore
from tests.conformance.handlers import Doorway
from tests.world import Process, World, line, until

PROCESSES, CALLERS = 5, 50
# How many turns of the event loop one rival lets the other have before it begins.
HEAD_STARTS = range(12)
ENDS = {"cancel": RunStatus.CANCELLED, "pause": RunStatus.PAUSED}
REVIEW = """digraph review {
  start [shape=Mdiamond]; exit [shape=Msquare]; ask [shape=hexagon, label="Ship it?"]
  ship [prompt="ship"]; drop [prompt="drop"]
  start -> ask; ask -> ship [label="[Y] Yes"]; ask -> drop [label="[N] No"]; ship -> exit; drop -> exit
}"""


async def outcome(asked: Awaitable[Folded]) -> Folded | Refused:
    """What came of a request; anything but an answer or a refusal fails the test."""
    try:
        return await asked
    except Refused as refusal:
        return refusal


async def test_of_fifty_who_resume_a_stopped_run_one_wins_and_forty_nine_are_refused(world: World) -> None:
    """B4-3."""
    stop = StopSwitch()
    stop.request("signal")
    first = await world.process()
    assert (await first.start(line("a", "b"), stop=stop)).status is RunStatus.PAUSED
    door = Doorway()
    processes = [await world.process({"a": [door]}) for _ in range(PROCESSES)]
    running = {
        asyncio.create_task(outcome(processes[n % PROCESSES].engine.resume("run", Resume(by=f"caller {n}"))))
        for n in range(CALLERS)
    }
    refused: list[Folded | Refused] = []
    while len(running) > 1:
        done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        refused += [task.result() for task in done]
    holder = (await first.shown())["holder"]
    door.open()
    won = await running.pop()
    assert isinstance(won, Folded)
    assert won.run.status is RunStatus.COMPLETED
    assert len(refused) == CALLERS - 1
    for refusal in refused:
        assert isinstance(refusal, Refused)
        assert (refusal.code, refusal.details["holder"]) == ("occupied", holder)
    events = await first.events()
    assert sum(isinstance(event, RunResumed) for event in events) == 1
    assert [event.token for event in events if isinstance(event, RunClaimed)] == [1, 2]
    assert world.ledger.steps == ["a#1", "b#1"]
    assert await first.is_sound()


@pytest.mark.parametrize("gate", ["ask#1", None])
async def test_of_approve_and_reject_one_wins_and_the_other_is_told_who_decided(
    world: World, gate: str | None
) -> None:
    """Whether the run still stands at the gate or has gone on and ended when the other comes."""
    processes = [await world.process() for _ in range(PROCESSES)]
    for head_start in HEAD_STARTS:
        run_id = f"run-{head_start}"
        assert (await processes[0].start(REVIEW, run_id)).status is RunStatus.WAITING
        approve = processes[1].engine.answer(run_id, Answer.approve(), by="ann", gate=gate)
        reject = processes[2].engine.answer(run_id, Answer.reject(), by="bob", gate=gate)
        answers = dict(zip(("ann", "bob"), await rivals(approve, reject, head_start), strict=True))
        (decided,) = [e for e in await processes[0].events(run_id) if isinstance(e, GateDecided)]
        loser = "bob" if decided.by == "ann" else "ann"
        won, lost = answers[decided.by], answers[loser]
        assert isinstance(won, Folded)
        assert won.run.status is RunStatus.COMPLETED
        assert isinstance(lost, Refused)
        assert lost.details["by"] == decided.by
        assert f"by {decided.by}" in str(lost)
        assert lost.code == "gate_decided" or (gate is None and lost.code == "no_open_gate")
        done = await processes[0].completed(run_id)
        assert ("ship#1" in done, "drop#1" in done) == (loser == "bob", loser == "ann")


async def test_who_answers_a_gate_that_was_passed_long_ago_is_told_who_decided(world: World) -> None:
    process, other = await world.process(), await world.process()
    await process.start(REVIEW)
    await process.engine.answer("run", Answer.approve(), by="ann")
    before = await process.log()
    with pytest.raises(Refused) as refused:
        await other.engine.answer("run", Answer.reject(), by="bob", gate="ask#1")
    assert refused.value.code == "gate_decided"
    assert refused.value.details == {"gate": "ask#1", "choice": "Y", "by": "ann"}
    assert str(refused.value) == "gate ask#1 is already decided: '[Y] Yes' by ann."
    with pytest.raises(Refused, match=r"has no gate 'ask#2'"):
        await other.engine.answer("run", Answer.reject(), by="bob", gate="ask#2")
    assert await process.log() == before


async def test_of_a_cancel_and_the_last_step_one_wins(world: World) -> None:
    """B4-7: what the asker was told is what the log says in the end."""
    asking = await world.process()
    for head_start in HEAD_STARTS:
        ended, answered = await asked_at_the_end_of_a(world, asking, "cancel", line("a"), head_start)
        assert ended.run.status is (
            RunStatus.COMPLETED if isinstance(answered, Refused) else RunStatus.CANCELLED
        )


async def test_of_a_pause_and_the_next_step_one_wins(world: World) -> None:
    """It is paused before its last step or completes, and either way every step is performed once."""
    asking = await world.process()
    for head_start in HEAD_STARTS:
        ended, answered = await asked_at_the_end_of_a(world, asking, "pause", line("a", "b"), head_start)
        if ended.run.status is RunStatus.PAUSED:
            assert isinstance(answered, Folded)
            assert (await asking.resume(ended.run.id)).status is RunStatus.COMPLETED
        else:
            assert ended.run.status is RunStatus.COMPLETED
        assert await asking.completed(ended.run.id) == ["start#1", "a#1", "b#1", "exit#1"]
    assert sorted(world.ledger.steps) == ["a#1"] * len(HEAD_STARTS) + ["b#1"] * len(HEAD_STARTS)


async def asked_at_the_end_of_a(
    world: World, asking: Process, request: str, source: str, head_start: int
) -> tuple[Folded, Folded | Refused]:
    """Somebody makes a request at the moment when the step `a` ends."""
    run_id, door = f"run-{head_start}", Doorway()
    process = await world.process({"a": [door]})
    driving = asyncio.create_task(process.start(source, run_id))
    await door.entered()

    async def go_on() -> Folded:
        door.open()
        await driving
        return await asking.load(run_id)

    asked = getattr(asking.engine, request)(run_id, by="ann")
    ended, answered = await rivals(go_on(), asked, head_start)
    assert isinstance(ended, Folded)
    if isinstance(answered, Refused):
        assert answered.code == "invalid_state"
    assert await asking.is_sound(run_id)
    return ended, answered


class Late(Around[RunLog]):
    """A store whose holder can be kept from writing for a while, as by a busy database."""

    def __init__(self, part: RunLog, store: FaultyStore) -> None:
        super().__init__(part, store)
        self.may_append, self.waiting = asyncio.Event(), 0
        self.may_append.set()

    async def append(self, write: Write, lease: Lease) -> None:
        self.waiting += 1
        await self.may_append.wait()
        await self.part.append(write, lease)


@pytest.mark.parametrize("request_", ENDS)
async def test_a_request_that_comes_before_the_end_of_a_step_is_written_wins(
    world: World, request_: str
) -> None:
    """The step has ended, and that is on its way to the database when the request gets there."""
    door, asking = Doorway(), await world.process()
    process = await world.process({"a": [door]}, wrap=partial(FaultyStore, log=Late))
    store = process.store.log
    assert isinstance(store, Late)
    driving = asyncio.create_task(process.start(line("a", "b")))
    await door.entered()
    store.may_append.clear()
    store.waiting = 0
    door.open()
    await until(lambda: store.waiting == 1)
    await getattr(asking.engine, request_)("run", by="ann")
    store.may_append.set()
    assert (await driving).status is ENDS[request_]
    assert world.ledger.steps == ["a#1"]


@pytest.mark.parametrize("request_", ENDS)
async def test_a_request_that_comes_behind_the_last_write_is_refused(world: World, request_: str) -> None:
    process, asking = await world.process(), await world.process()
    await process.start(line("a"))
    before = await process.log()
    with pytest.raises(Refused) as refused:
        await getattr(asking.engine, request_)("run", by="ann")
    assert refused.value.code == "invalid_state"
    assert await process.log() == before


async def test_of_two_workers_one_takes_the_run_that_is_due(world: World) -> None:
    """S2-17."""
    processes = [await world.process() for _ in range(2)]
    for number in range(10):
        run_id = f"run-{number}"
        begun = StartRequest(run_id=run_id, on_owner_loss="requeue")
        await processes[0].engine.submit(processes[0].pipeline(line("a")), begun)
        taken = await asyncio.gather(*(process.engine.take(StopSwitch()) for process in processes))
        ((folded, drive),) = [one for one in taken if one is not None]
        assert folded.run.id == run_id
        assert (await drive).run.status is RunStatus.COMPLETED
        events = await processes[0].events(run_id)
        assert [event.token for event in events if isinstance(event, RunClaimed)] == [1]


async def rivals(
    one: Awaitable[Folded], two: Awaitable[Folded], head_start: int
) -> tuple[Folded | Refused, Folded | Refused]:
    """Both at once, but for a few turns: an even number lets the first be ahead, an odd one the second."""

    async def later(asked: Awaitable[Folded], turns: int) -> Folded | Refused:
        for _ in range(turns):
            await asyncio.sleep(0)
        return await outcome(asked)

    ahead, behind = (0, head_start) if head_start % 2 == 0 else (head_start, 0)
    return await asyncio.gather(later(one, ahead), later(two, behind))


class Overtaken(Around[RunLog]):
    """A log at which somebody else comes first: `first` is awaited before a request gets the run's lock."""

    first: Callable[[], Awaitable[object]] | None = None

    async def control(self, run_id: str, **request: Any) -> Controlled:
        first, self.first = self.first, None
        if first is not None:
            await first()
        return await self.part.control(run_id, **request)


async def overtaken(world: World) -> tuple[Process, Overtaken]:
    """A process at such a log."""
    process = await world.process(wrap=partial(FaultyStore, log=Overtaken))
    assert isinstance(process.store.log, Overtaken)
    return process, process.store.log


@pytest.mark.parametrize("is_steered", [False, True])
async def test_a_resume_reads_the_run_once_and_its_claim_sees_what_came_between(
    world: World, is_steered: bool
) -> None:
    """The claim is decided about what the resume read and the tail since, never about what it read alone."""
    stop = StopSwitch()
    stop.request("signal")
    rival, (process, log) = await world.process(), await overtaken(world)
    await rival.start(line("a", "b"), stop=stop)
    log.first = (lambda: rival.engine.steer("run", "be brief")) if is_steered else None
    assert (await process.resume()).status is RunStatus.COMPLETED
    assert process.store.calls.count("log.load") == 1
    kinds = [type(event) for event in await process.events()]
    assert not is_steered or kinds.index(SteeringGiven) < kinds.index(RunResumed)
    assert await process.is_sound()


async def test_a_resume_that_a_cancel_overtakes_is_refused(world: World) -> None:
    stop = StopSwitch()
    stop.request("signal")
    rival, (process, log) = await world.process(), await overtaken(world)
    await rival.start(line("a", "b"), stop=stop)
    log.first = lambda: rival.engine.cancel("run")
    with pytest.raises(Refused) as refused:
        await process.resume()
    assert refused.value.code == "invalid_state"
    assert process.store.calls.count("log.load") == 1
    assert world.ledger.steps == []


async def test_an_answer_reads_the_run_once_and_sees_what_came_between(world: World) -> None:
    rival, (process, log) = await world.process(), await overtaken(world)
    await rival.start(REVIEW)
    log.first = lambda: rival.engine.steer("run", "be brief")
    answered = await process.engine.answer("run", Answer.approve(), by="ann")
    assert answered.run.status is RunStatus.COMPLETED
    assert process.store.calls.count("log.load") == 1
    assert await process.is_sound()
