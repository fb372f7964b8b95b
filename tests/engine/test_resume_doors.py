"""Resume: one function behind every door. Every check comes before the first change, and says what to do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onward.engine.control.requests import Resume, StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput, Refused, UnknownHandler
from onward.model.events import RunClaimed, RunResumed
from onward.model.result import Result
from onward.model.run import RunStatus
from tests.conformance.faults import Died
from tests.conformance.handlers import Doorway
from tests.test_pause import GATED
from tests.world import Process, World, line


async def crashed(world: World, source: str, at: str = "a", run_id: str = "run") -> None:
    """A run whose process died inside node `at`."""
    process = await world.process({at: [Died("here")]})
    with pytest.raises(Died):
        await process.start(source, run_id)
    await process.die()


async def refusal(process: Process, run_id: str = "run", **how: Any) -> Refused:
    """The refusal of a resume, which must have changed nothing."""
    before = await process.log(run_id)
    with pytest.raises(Refused) as refused:
        await process.resume(run_id, **how)
    assert await process.log(run_id) == before
    return refused.value


@pytest.mark.parametrize("callers", [2, 20])
async def test_of_many_who_resume_one_run_exactly_one_wins(world: World, callers: int) -> None:
    """K4, O5, B4-3: the others are refused with the name of the winner, and nothing of theirs is written.

    H13.
    """
    await crashed(world, line("a", "b"))
    door = Doorway()
    processes = [await world.process({"a": [door]}) for _ in range(4)]
    running = {
        asyncio.create_task(processes[n % 4].engine.resume("run", Resume(by=f"caller {n}")))
        for n in range(callers)
    }
    refused = []
    while len(running) > 1:
        done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        refused += [task.exception() for task in done]
    door.open()
    assert (await running.pop()).run.status is RunStatus.COMPLETED
    assert len(refused) == callers - 1
    for refusal in refused:
        assert isinstance(refusal, Refused)
        assert refusal.code == "occupied"
        assert "is held by process" in str(refusal)
    events = await processes[0].events()
    assert sum(isinstance(event, RunResumed) for event in events) == 1
    assert [event.token for event in events if isinstance(event, RunClaimed)] == [1, 2]
    assert world.ledger.attempts("a") == [1, 1]


async def test_a_completed_run_is_not_resumed(world: World) -> None:
    """S3-14, K5, S3-3: it says what to do instead."""
    process = await world.process()
    await process.start(line("a"))
    refused = await refusal(process)
    assert refused.code == "invalid_state"
    assert "onward replay run --from STEP" in str(refused)


async def test_a_cancelled_run_is_not_resumed(world: World) -> None:
    """K5."""
    process = await world.process()
    await process.start(GATED)
    await process.engine.cancel("run")
    assert (await refusal(process)).code == "invalid_state"


async def test_a_waiting_run_is_answered_and_not_resumed(world: World) -> None:
    process = await world.process()
    await process.start(GATED)
    refused = await refusal(process)
    assert refused.code == "invalid_state"
    assert "ask#1" in str(refused)
    assert "onward answer run" in str(refused)


async def test_a_failed_run_can_be_resumed(world: World) -> None:
    """S3-14, K5, O4: failure text and end time are cleared; the failed step is tried again."""
    process = await world.process({"b": [Result.fail("no"), Result.success()]})
    failed = await process.start(line("a", "b"))
    assert (failed.status, failed.detail) == (RunStatus.FAILED, "step b#1: no")
    run = await (await world.process({"b": [Result.fail("no"), Result.success()]})).resume()
    assert (run.status, run.reason, run.detail) == (RunStatus.COMPLETED, "", "")
    assert world.ledger.steps == ["a#1", "b#1", "b#1"]
    assert world.ledger.attempts("b") == [1, 2]


async def test_a_running_run_with_a_dead_owner_counts_as_interrupted(world: World) -> None:
    """The crash, the resume and the claim are one append: nobody sees the run in between. H7, H12."""
    await crashed(world, line("a"))
    process = await world.process()
    before = (await process.load()).position.seq
    writes = [call for call in process.store.calls if call == "log.control"]
    assert (await process.resume()).status is RunStatus.COMPLETED
    kinds = await process.kinds()
    assert kinds[before : before + 3] == ["RunInterrupted", "RunResumed", "RunClaimed"]
    assert process.store.calls.count("log.control") == len(writes) + 1


async def test_a_queued_run_is_simply_started(world: World) -> None:
    """H12."""
    process = await world.process()
    await process.engine.submit(process.pipeline(line("a")), StartRequest(run_id="run"))
    assert (await process.resume()).status is RunStatus.COMPLETED
    assert "RunResumed" not in await process.kinds()


async def test_a_run_that_somebody_drives_is_occupied(world: World) -> None:
    """K4: the refusal names the holder, and the holder notices nothing."""
    door = Doorway()
    process, other = await world.process({"a": [door]}), await world.process()
    driving = asyncio.create_task(process.start(line("a")))
    await door.entered()
    refused = await refusal(other)
    assert (refused.code, refused.details["holder"]) == ("occupied", (await other.shown())["holder"])
    door.open()
    assert (await driving).status is RunStatus.COMPLETED


async def test_the_same_process_cannot_drive_a_run_twice(world: World) -> None:
    door = Doorway()
    process = await world.process({"a": [door]})
    driving = asyncio.create_task(process.start(line("a")))
    await door.entered()
    assert (await refusal(process)).code == "occupied"
    door.open()
    assert (await driving).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1"]


async def test_whoever_waits_gets_the_run_when_its_holder_lets_go(world: World) -> None:
    door, stop = Doorway(), StopSwitch()
    process, other = await world.process({"a": [door]}), await world.process()
    driving = asyncio.create_task(process.start(line("a", "b"), stop=stop))
    await door.entered()
    waiting = asyncio.create_task(other.resume(wait=True))
    await other.clock.until_waiting()
    stop.request("signal")
    door.open()
    assert (await driving).status is RunStatus.PAUSED
    assert (await waiting).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1"]


async def test_of_two_who_wait_both_get_their_turn(world: World) -> None:
    """The one that comes too late goes on waiting instead of being refused."""
    door, stop = Doorway(), StopSwitch()
    process = await world.process({"a": [door]})
    driving = asyncio.create_task(process.start(line("a", "b", "c"), stop=stop))
    await door.entered()
    inside, stops = Doorway(), [StopSwitch(), StopSwitch()]
    others = [await world.process({"b": [inside]}) for _ in stops]
    waiting = [asyncio.create_task(o.resume(wait=True, stop=s)) for o, s in zip(others, stops, strict=True)]
    stop.request("signal")
    door.open()
    assert (await driving).status is RunStatus.PAUSED
    await inside.entered()
    holder = (await process.load()).holder
    assert holder is not None
    first = [other.store.leases.owner for other in others].index(holder.owner)
    stops[first].request("signal")
    inside.open()
    assert (await waiting[first]).status is RunStatus.PAUSED
    assert (await waiting[1 - first]).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "c#1"]


async def test_whoever_waits_can_be_asked_to_stop_waiting(world: World) -> None:
    door, stop = Doorway(), StopSwitch()
    process, other = await world.process({"a": [door]}), await world.process()
    driving = asyncio.create_task(process.start(line("a")))
    await door.entered()
    waiting = asyncio.create_task(other.resume(wait=True, stop=stop))
    await other.clock.until_waiting()
    stop.request("signal")
    with pytest.raises(Refused, match="is held by"):
        await waiting
    door.open()
    assert (await driving).status is RunStatus.COMPLETED


async def test_an_exclusive_key_lets_one_run_at_a_time_go_on(world: World) -> None:
    """S4 of resume: decided inside the claiming transaction, for a run's start as for its resume. H13."""
    door, stop = Doorway(), StopSwitch()
    stop.request("signal")
    process, other = await world.process({"a": [door]}), await world.process()
    await other.start(line("b"), "second", stop=stop, exclusive_key="chat-1")
    driving = asyncio.create_task(process.start(line("a"), "first", exclusive_key="chat-1"))
    await door.entered()
    refused = await refusal(other, "second")
    assert (refused.code, refused.details["run"]) == ("occupied", "first")
    with pytest.raises(Refused, match="chat-1"):
        await other.start(line("b"), "third", exclusive_key="chat-1")
    waiting = asyncio.create_task(other.resume("second", wait=True))
    await other.clock.until_waiting()
    door.open()
    assert (await driving).status is RunStatus.COMPLETED
    assert (await waiting).status is RunStatus.COMPLETED


async def test_a_run_can_be_taken_over_from_a_process_that_lives(world: World) -> None:
    """`--take-over` says so in the log, and the robbed process is fenced."""
    door = Doorway()
    process, other = await world.process({"a": [door]}), await world.process()
    driving = asyncio.create_task(process.start(line("a")))
    await door.entered()
    assert (await other.resume(take_over=True)).status is RunStatus.COMPLETED
    assert "still alive" in str((await other.events())[4])
    assert isinstance((await asyncio.gather(driving, return_exceptions=True))[0], Exception)


async def test_a_missing_handler_is_refused_before_the_claim(world: World) -> None:
    await crashed(world, line("a", a="type=work"))
    process = await world.process(handlers={})
    before = await process.log()
    with pytest.raises(UnknownHandler):
        await process.resume()
    assert await process.log() == before


async def test_a_resume_from_an_earlier_node_does_it_again_as_a_new_visit(world: World) -> None:
    process = await world.process({"c": [Result.fail("no"), Result.success()]})
    await process.start(line("a", "b", "c"))
    run = await process.resume(from_node="a")
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "c#1", "a#2", "b#2", "c#2"]


async def test_a_resume_from_an_unknown_node_is_refused(world: World) -> None:
    process = await world.process({"a": [Result.fail("no")]})
    await process.start(line("a"))
    before = await process.log()
    with pytest.raises(InvalidInput, match=r"no node 'z'.*start, exit, a"):
        await process.resume(from_node="z")
    assert await process.log() == before


async def test_a_preview_makes_every_check_and_changes_nothing(world: World) -> None:
    """`dry_run`: what would be skipped and what would be done, without doing it."""
    await crashed(world, line("a", "b"), at="b")
    process = await world.process()
    before = await process.log()
    preview = await process.engine.preview_resume("run", Resume())
    assert [type(event).__name__ for event in preview.events][:3] == [
        "RunInterrupted",
        "RunResumed",
        "RunClaimed",
    ]
    assert "b#1" in str(preview.action)
    assert await process.log() == before
    assert world.ledger.steps == ["a#1", "b#1"]
