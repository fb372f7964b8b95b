"""When the database fails: nothing acknowledged is lost, nothing more is begun, a lost reply is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest

from onward.engine.control.requests import Resume, StartRequest
from onward.engine.log import Folded, RequestTerms
from onward.engine.persist import RETRY_S
from onward.engine.stop import StopSwitch
from onward.errors import (
    SchemaTooNew,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreIO,
    StoreReadOnly,
    StoreUnavailable,
)
from onward.model.events import RunClaimed
from onward.model.run import RunStatus
from onward.store.port.log import Controlled, Decide, Held, RunLog, StoredEvent
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from tests.conformance.faults import Around, Fault, FaultyStore
from tests.conformance.handlers import Doorway
from tests.world import World, line

REVIEW = """digraph review {
  start [shape=Mdiamond]; exit [shape=Msquare]; ask [shape=hexagon]; a [prompt=x]
  start -> ask; ask -> a [label="[Y] Yes"]; ask -> exit [label="[N] No"]; a -> exit
}"""
FINAL = [
    StoreFull("there is no space left"),
    StoreReadOnly("cannot be written"),
    StoreCorrupt("damaged"),
    SchemaTooNew(9, 1),
]
KEY = RequestTerms("request-1")
PASSING = [StoreUnavailable("timed out"), StoreIO("the connection broke")]


def failing(error: StoreError) -> type[FaultyStore]:
    class Failing(FaultyStore):
        def __init__(self, store: Store) -> None:
            super().__init__(store, error=error)

    return Failing


@pytest.mark.parametrize("error", FINAL, ids=lambda error: type(error).__name__)
async def test_a_full_or_read_only_database_stops_the_run_before_its_next_step(
    world: World, error: StoreError
) -> None:
    """K20: a step that cannot be recorded is not followed by another; with space again, a resume goes on."""
    process = await world.process(wrap=failing(error))
    process.store.fail(Fault.REFUSE, within=3, times=1_000_000)  # the end of `b`, and all that follows
    with pytest.raises(type(error)):
        await process.start(line("a", "b", "c"))
    assert world.ledger.steps == ["a#1", "b#1"]
    process.store.fault = None
    assert (await process.resume()).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "b#1", "c#1"]
    assert await process.is_sound()


@pytest.mark.parametrize("error", FINAL, ids=lambda error: type(error).__name__)
async def test_what_will_not_pass_is_said_at_once(world: World, error: StoreError) -> None:
    """K20: asking again would not help, so it is not done."""
    process = await world.process(wrap=failing(error))
    process.store.fail(Fault.REFUSE, times=1_000_000)
    with pytest.raises(type(error)):
        await process.start(line("a"))
    assert process.store.calls.count("log.create") == 1
    assert world.ledger.steps == []


async def test_a_run_that_could_not_be_created_begins_nothing(world: World) -> None:
    """A run exists, durably, before anything of it happens."""
    process = await world.process()
    process.store.fail(Fault.REFUSE, times=1_000_000)
    with pytest.raises(StoreUnavailable):
        await process.start(line("a"))
    assert world.ledger.steps == []


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.REFUSE])
async def test_a_short_outage_costs_a_pause_and_not_the_step(
    world: World, fault: Fault, error: StoreError
) -> None:
    """O16, K21: the same append is asked for again until it is answered, and made once."""
    process = await world.process(wrap=failing(error))
    process.store.fail(fault, within=3, times=5)
    run = await process.start(line("a", "b", "c"))
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "c#1"]
    assert await process.completed() == ["start#1", "a#1", "b#1", "c#1", "exit#1"]
    assert process.clock.awake_s() > 0.1
    assert await process.is_sound()


async def test_an_outage_that_does_not_end_is_reported(world: World) -> None:
    process = await world.process()
    process.store.fail(Fault.REFUSE, within=2, times=1_000_000)
    with pytest.raises(StoreUnavailable):
        await process.start(line("a"))
    assert RETRY_S <= process.clock.awake_s() < 2 * RETRY_S
    assert process.store.calls.count("log.append") < 20, "it asks less and less often"


async def test_a_request_whose_reply_was_lost_is_made_once(world: World) -> None:
    """K21: the append id of a request resolves it, for a holder's claim as for anybody's pause. H1."""
    stop = StopSwitch()
    stop.request("signal")
    process = await world.process()
    await process.start(line("a", "b"), stop=stop)
    process.store.fail(Fault.LOSE_REPLY, within=3)  # load, blob, control
    assert (await process.resume()).status is RunStatus.COMPLETED
    assert process.store.calls.count("log.control") == 2
    claims = [event for event in await process.events() if isinstance(event, RunClaimed)]
    assert [claim.token for claim in claims] == [1, 2]


async def test_a_resume_asked_twice_under_one_append_id_is_driven_once(world: World) -> None:
    """K21: the second call gets the first one's answer, even from another process. H1."""
    stop, door = StopSwitch(), Doorway()
    stop.request("signal")
    process = await world.process({"a": [door]})
    await process.start(line("a"), stop=stop)
    asked = Resume(terms=KEY)
    driving = asyncio.create_task(process.engine.resume("run", asked))
    await door.entered()
    other = await world.process()
    for engine in (process.engine, other.engine):
        again = await engine.resume("run", asked)
        assert (again.is_repeat, again.run.status) == (True, RunStatus.RUNNING)
    door.open()
    await driving
    before = await process.log()
    for engine in (process.engine, other.engine):
        again = await engine.resume("run", asked)
        assert (again.is_repeat, again.run.status) == (True, RunStatus.COMPLETED)
    assert await process.log() == before
    assert world.ledger.steps == ["a#1"]


class Undone(Around[RunLog]):
    """A store in which the first request is decided and then undone, while a rival makes the same one."""

    rival: Callable[[], Awaitable[None]] | None = None

    async def control(self, run_id: str, *, since: int, append_id: str, decide: Decide) -> Controlled:
        rival, self.rival = self.rival, None
        if rival is None:
            return await self.part.control(run_id, since=since, append_id=append_id, decide=decide)

        def undo(held: Held, tail: Sequence[StoredEvent]) -> None:
            decide(held, tail)
            raise StoreUnavailable("the transaction was undone; this is a test.")

        try:
            return await self.part.control(run_id, since=since, append_id=append_id, decide=undo)
        finally:
            await rival()


@pytest.mark.parametrize("is_mine", [True, False])
async def test_a_request_that_was_undone_is_answered_by_the_one_that_was_made_under_its_id(
    world: World, is_mine: bool
) -> None:
    """K21: what was decided here did not happen, so it is not driven here, whoever made the same request.

    H1.
    """
    stop, door = StopSwitch(), Doorway()
    stop.request("signal")
    process = await world.process({"a": [door]}, wrap=partial(FaultyStore, log=Undone))
    await process.start(REVIEW, stop=stop)
    assert (await process.resume()).status is RunStatus.WAITING
    other = process if is_mine else await world.process({"a": [door]})
    store, driving = process.store.log, list[asyncio.Task[Folded]]()
    assert isinstance(store, Undone)

    async def rival() -> None:
        other.clock.advance(1)
        same = other.engine.answer("run", "yes", by="ann", terms=KEY)
        driving.append(asyncio.create_task(same))
        await door.entered()

    store.rival = rival
    answered = await process.engine.answer("run", "yes", by="ann", terms=KEY)
    assert (answered.is_repeat, answered.run.worker) == (True, other.store.leases.owner)
    door.open()
    assert (await driving[0]).run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1"]


async def test_a_start_asked_twice_under_one_append_id_makes_one_run(world: World) -> None:
    """K21: an idempotency key of the caller's own; the second call is told how the first one's run stands.

    H1.
    """
    process, other = await world.process(), await world.process()
    pipeline, asked = process.pipeline(line("a", "b")), StartRequest(run_id="run", terms=KEY)
    first = await process.engine.start(pipeline, asked)
    before = await process.log()
    process.clock.advance(5)
    for engine in (process.engine, other.engine):
        again = await engine.start(pipeline, asked)
        assert again.is_repeat
        assert again.run == first.run
    assert await process.log() == before
    assert world.ledger.steps == ["a#1", "b#1"]


async def test_a_start_that_is_being_driven_is_not_driven_again(world: World) -> None:
    """K21: the same request while the first one is still at work."""
    door = Doorway()
    process = await world.process({"a": [door]})
    pipeline, asked = process.pipeline(line("a", "b")), StartRequest(run_id="run", terms=KEY)
    driving = asyncio.create_task(process.engine.start(pipeline, asked))
    await door.entered()
    process.clock.advance(5)
    again = await process.engine.start(pipeline, asked)
    assert (again.is_repeat, again.run.status) == (True, RunStatus.RUNNING)
    door.open()
    assert (await driving).run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1"]


async def test_news_that_cannot_be_read_is_read_at_the_next_heartbeat(world: World) -> None:
    """A failing look at what somebody asked for is no failure of the run."""

    class Shortsighted(Around[RunLog]):
        failures = 3

        async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[StoredEvent]:
            if self.failures:
                self.failures -= 1
                raise StoreCorrupt("not now")
            return await self.part.read(run_id, after=after, limit=limit)

    door = Doorway()
    process, other = (
        await world.process({"a": [door]}, wrap=partial(FaultyStore, log=Shortsighted)),
        await world.process(),
    )
    driving = asyncio.create_task(process.start(line("a", "b")))
    await door.entered()
    await other.engine.pause("run", after="now", by="ann")
    assert (await driving).status is RunStatus.PAUSED
    assert door.was_cancelled


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
async def test_a_wall_clock_that_is_set_changes_no_outcome(world: World, seconds: float) -> None:
    """I13: times in the log may jump; what is finished and in which order does not."""
    clock = ManualClock()

    def interfere(run: object, events: object) -> None:
        clock.set_wall_clock(seconds)

    process = await world.process(clock=clock, observe=interfere)
    await process.start(line("a", "b", "c"))
    assert await process.completed() == ["start#1", "a#1", "b#1", "c#1", "exit#1"]
    assert await process.is_sound()
