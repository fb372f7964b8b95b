"""Who has a run, and how it changes hands: only by a claim, in one append, never by accident."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

import pytest

from onward.engine.control.requests import StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import LeaseLost
from onward.model.events import RunClaimed
from onward.model.result import Result
from onward.model.run import RunStatus
from onward.store.port.leases import Lease, Leases
from onward.testing.clock import ManualClock
from tests.conformance.faults import Around, Fault, FaultyStore
from tests.conformance.handlers import Doorway
from tests.test_pause import GATED
from tests.world import Process, World, line


async def statuses(process: Process, run_id: str = "run") -> list[tuple[str, str]]:
    """Every event of a log with the status that the run had after it."""
    journal = process.engine.journal
    log = await process.log(run_id)
    return [(record.kind, (await journal.load_at(run_id, record.seq)).run.status.value) for record in log]


async def test_only_a_claim_makes_a_run_running(world: World) -> None:
    """Creation, resume and a gate's decision make it queued, with its wake time. H6."""
    stop = StopSwitch()
    stop.request("signal")
    process = await world.process()
    await process.start(GATED, stop=stop)
    await process.resume()
    await process.engine.answer("run", "yes", by="ann")
    seen = await statuses(process)
    began = [kind for (_, before), (kind, after) in pairwise(seen) if before != after == "running"]
    assert began == ["RunClaimed", "RunClaimed", "RunClaimed"]
    assert {kind: status for kind, status in seen if kind in ("RunCreated", "RunResumed", "GateDecided")} == {
        "RunCreated": "queued",
        "RunResumed": "queued",
        "GateDecided": "queued",
    }


async def test_a_queued_run_has_a_wake_time_and_no_owner(world: World) -> None:
    """H6."""
    process = await world.process()
    submitted = (await process.engine.submit(process.pipeline(line("a")), StartRequest(run_id="run"))).run
    assert (submitted.worker, submitted.wake_at_us) == (None, submitted.created_at_us)
    (listed,) = await process.store.runs.find("run")
    assert (listed.row.owner, listed.row.wake_at_us) == (None, submitted.created_at_us)


@pytest.mark.parametrize("ending", ["completed", "failed", "paused", "waiting"])
async def test_a_stop_lets_go_of_the_run_in_the_same_append(world: World, ending: str) -> None:
    """Stop event, release of the lease and next wake time are one append. H9."""
    stop = StopSwitch()
    if ending == "paused":
        stop.request("signal")
    script = {"b": [Result.fail("no")]} if ending == "failed" else {}
    process = await world.process(script)
    run = await process.start(GATED if ending == "waiting" else line("a", "b"), stop=stop)
    assert run.status.value == ending
    loaded = await process.load()
    assert (loaded.run.worker, loaded.holder, loaded.run.wake_at_us) == (None, None, None)
    (listed,) = await process.store.runs.find("run")
    assert (listed.row.owner, listed.row.status.value) == (None, ending)
    assert process.store.calls.count("log.control") == 0, "no second write was needed"


async def test_a_claim_grows_the_token_and_names_the_worker(world: World) -> None:
    processes = [await world.process() for _ in range(3)]
    stop = StopSwitch()
    stop.request("signal")
    await processes[0].start(line("a"), stop=stop)
    await processes[1].resume(stop=stop)
    await processes[2].resume()
    claims = [event for event in await processes[0].events() if isinstance(event, RunClaimed)]
    assert [claim.token for claim in claims] == [1, 2, 3]
    assert [claim.worker for claim in claims] == [process.store.leases.owner for process in processes]
    tokens = [record.token for record in await processes[0].log()]
    assert tokens == sorted(tokens)


class NoNews(Around[Leases]):
    """A holder that learns nothing by its heartbeat: every renewal hangs."""

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        await asyncio.Event().wait()
        return {}


async def test_a_holder_never_goes_on_under_somebody_elses_lease(world: World) -> None:
    """It wakes from a back-off, reads the log, and finds another's claim there: it is out. H19."""
    clock = ManualClock(autojump=False)
    process = await world.process(
        {"a": [Result.retry("later")]}, clock=clock, wrap=partial(FaultyStore, leases=NoNews)
    )
    driving = asyncio.create_task(process.start(line("a", "b", a="max_retries=9")))
    await clock.until_waiting(2)
    door = Doorway()
    other = await world.process({"a": [door]})
    taking = asyncio.create_task(other.resume(take_over=True))
    await door.entered()
    before = await other.log()
    clock.advance(3600)
    with pytest.raises(LeaseLost):
        await driving
    assert world.ledger.attempts("a") == [1, 2], "the back-off of the old holder led to no attempt"
    assert await other.log() == before
    door.open()
    assert (await taking).status is RunStatus.COMPLETED


async def inside(world: World, **start: object) -> tuple[Process, asyncio.Task[object]]:
    """A process inside step `a`."""
    door = Doorway()
    process = await world.process({"a": [door]})
    driving: asyncio.Task[object] = asyncio.create_task(process.start(line("a", "b"), **start))  # type: ignore[arg-type]
    await door.entered()
    return process, driving


async def gone_on(process: Process, driving: asyncio.Task[object], other: Process) -> str:
    """The status in which a run is found after its driver was cancelled and its process lives on."""
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    await process.engine.dropped.settle()
    return str((await other.shown())["status"])


async def test_a_process_gives_back_what_it_does_not_drive_any_more(world: World) -> None:
    """Its process lives on, so nobody could ever take it over: it is interrupted, and others can go on.

    H18.
    """
    process, driving = await inside(world)
    other = await world.process()
    assert await gone_on(process, driving, other) == "interrupted"
    assert "stopped running it" in (await other.shown())["detail"]
    assert (await other.resume()).status is RunStatus.COMPLETED
    assert await process.is_sound()


async def test_a_process_requeues_what_it_does_not_drive_if_the_run_wants_that(world: World) -> None:
    """H18."""
    process, driving = await inside(world, on_owner_loss="requeue")
    other = await world.process()
    assert await gone_on(process, driving, other) == "queued"
    assert (await other.resume()).status is RunStatus.COMPLETED


@pytest.mark.parametrize(("ask", "status"), [("pause", "paused"), ("cancel", "cancelled")])
async def test_giving_back_honours_what_was_asked(world: World, ask: str, status: str) -> None:
    """Every stop honours a pending cancel, then a pending pause. H10."""
    door = Doorway()
    process = await world.process({"a": [door]}, clock=ManualClock(autojump=False))
    driving: asyncio.Task[object] = asyncio.create_task(process.start(line("a", "b")))
    await door.entered()
    other = await world.process()
    await (other.engine.pause("run") if ask == "pause" else other.engine.cancel("run"))
    assert await gone_on(process, driving, other) == status


async def test_the_same_process_can_go_on_with_what_it_dropped(world: World) -> None:
    """Even if the store did not let it say so: it does not count itself as the owner any more."""
    process, driving = await inside(world)
    process.store.fail(Fault.REFUSE, times=1_000_000)
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    await process.engine.dropped.settle()
    process.store.fault = None
    assert (await process.load()).run.status is RunStatus.RUNNING
    process.agent.script = {}
    assert (await process.resume()).status is RunStatus.COMPLETED


async def test_what_was_read_before_a_run_was_given_back_does_not_make_its_process_the_owner(
    world: World,
) -> None:
    """Else a resume in that process is refused as occupied, by itself, if it reads at just that moment."""
    process, driving = await inside(world)
    before = await process.load()
    assert process.engine.is_at_work(before)
    await gone_on(process, driving, process)
    assert not process.engine.is_at_work(before)


async def test_what_another_has_taken_over_is_not_given_back(world: World) -> None:
    process, driving = await inside(world)
    process.store.fail(Fault.REFUSE, times=1_000_000)
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    second = Doorway()
    other = await world.process({"a": [second]})
    taking = asyncio.create_task(other.resume(take_over=True))
    await second.entered()
    process.store.fault = None
    lease = Lease("run", process.store.leases.owner, 1)
    process.engine.dropped.drop(lease)
    await process.engine.dropped.settle()
    assert not process.engine.dropped.is_pending(lease)
    second.open()
    assert (await taking).status is RunStatus.COMPLETED
