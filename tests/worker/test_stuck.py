"""A run that cannot be claimed, for whatever reason, keeps nobody from the others, and shows where it is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from onward.engine.control.requests import StartRequest
from onward.engine.log import RequestTerms
from onward.engine.queue import SKIPPED_S_MAX
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput, InvalidPipeline, StoreError, StoreIO
from onward.model.events import RunQueued
from onward.model.limits import NAME_CHARACTERS_MAX
from onward.model.run import FOLD_VERSION
from onward.store.port.leases import Lease
from onward.store.port.log import TAIL_MAX, Controlled, DecideLoaded, Held, Loaded, RunLog, TakeFilter, Write
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from onward.wiring import open_store
from tests.conformance.drafts import created, grown, held
from tests.conformance.faults import Around, FaultyStore
from tests.world import Process, World, line

LONG = "x" * (NAME_CHARACTERS_MAX + 1)


async def submitted(process: Process, *run_ids: str) -> None:
    for run_id in run_ids:
        await process.engine.submit(process.pipeline(line("a")), StartRequest(run_id=run_id))


async def taken_by(process: Process) -> str | None:
    """The run that a worker takes now, and drives to its end."""
    await process.engine.dropped.settle()  # a claim that failed may be released just now: it is passed over
    taken = await process.engine.take(StopSwitch())
    if taken is None:
        return None
    await taken[1]
    return taken[0].run.id


class Refusing(Around[RunLog]):
    """A store in which claims of `bad` fail: with an error of the database, or in what is decided."""

    bad = "bad"
    error: Exception | None = None
    shown: Sequence[Loaded] = ()

    async def take(self, wanted: TakeFilter, *, fold_version: int, decide: DecideLoaded) -> Controlled | None:
        seen: list[Loaded] = []
        self.shown = seen

        def decided(held: Held, loaded: Loaded) -> Write | None:
            seen.append(loaded)
            write = decide(held, loaded)
            if loaded.row.id == self.bad and self.error is not None:
                raise self.error
            return write

        try:
            return await self.part.take(wanted, fold_version=fold_version, decide=decided)
        except StoreError as error:
            error.run_id = self.bad
            raise


async def refusing(world: World, error: Exception | None, clock: ManualClock) -> tuple[Process, FaultyStore]:
    process = await world.process(clock=clock, wrap=partial(FaultyStore, log=Refusing))
    process.store.log.error = error
    return process, process.store


async def test_a_claim_that_the_database_fails_is_passed_over_noted_and_tried_again(world: World) -> None:
    """I36."""
    clock = ManualClock(autojump=False)
    process, store = await refusing(world, StoreIO("the index row is too large"), clock)
    await submitted(process, "bad", "good")
    with pytest.raises(StoreIO):
        await taken_by(process)  # the worker hears of it, since all claims may fail so
    assert await taken_by(process) == "good"
    assert await taken_by(process) is None
    (stuck,) = (await store.measures.measure()).stuck
    assert (stuck.run, stuck.failures, stuck.why) == ("bad", 1, "the index row is too large")
    waits_s = 1.0
    for failures in range(2, 12):
        clock.advance(waits_s - 0.1)
        assert await taken_by(process) is None, "it is left alone for a while"
        clock.advance(0.1)
        with pytest.raises(StoreIO):
            await taken_by(process)
        waits_s = min(2 * waits_s, SKIPPED_S_MAX)
        assert [one.failures for one in (await store.measures.measure()).stuck] == [failures]
    store.log.error = None
    clock.advance(waits_s)
    assert await taken_by(process) == "bad", "never given up"
    assert (await store.measures.measure()).stuck == ()


class Broken(Around[RunLog]):
    """A store whose run `bad` cannot be decided about."""

    async def take(self, wanted: TakeFilter, *, fold_version: int, decide: DecideLoaded) -> Controlled | None:
        def decided(held: Held, loaded: Any) -> Write | None:
            if loaded.row.id == "bad":
                loaded = Loaded(loaded.row, loaded.position, loaded.holder, None, [None])  # type: ignore[list-item]
            return decide(held, loaded)

        return await self.part.take(wanted, fold_version=fold_version, decide=decided)


async def test_a_defect_that_one_run_brings_out_keeps_nobody_from_the_others(world: World) -> None:
    """I37."""
    process = await world.process(clock=ManualClock(autojump=False), wrap=partial(FaultyStore, log=Broken))
    await submitted(process, "bad", "good")
    assert await taken_by(process) == "good"
    assert await taken_by(process) is None
    assert [one.run for one in (await process.store.measures.measure()).stuck] == ["bad"]


async def long_run(store: Store, steps: int) -> None:
    """A due run with a long log and no snapshot, as an import or a newer fold leaves it."""
    run = await grown(store, await held(store, "bad"), steps=steps)
    write, _ = run.then(RunQueued(why="tests", wake_at_us=run.run.updated_at_us))
    await store.log.append(write, Lease("bad", store.leases.owner, 1))


async def test_a_long_log_is_folded_before_the_claim_which_leaves_a_snapshot(world: World) -> None:
    process, store = await refusing(world, None, ManualClock())
    await long_run(store, 2 * TAIL_MAX)
    before = (await process.load("bad")).run
    taken = await process.engine.take(StopSwitch())
    assert taken is not None
    assert taken[0].run.worker == store.leases.owner
    (claimed,) = store.log.shown
    assert len(claimed.tail) == 0, "all of it was known"
    loaded = await store.log.load("bad", fold_version=FOLD_VERSION)
    assert loaded is not None
    assert loaded.snapshot is not None
    assert (loaded.is_cut, len(loaded.tail)) == (False, 0), "the next one is short"
    assert (await process.load("bad")).run.steps_finished == before.steps_finished == 2 * TAIL_MAX
    assert await process.is_sound("bad")
    taken[1].close()  # type: ignore[attr-defined]


async def test_a_resume_that_folded_a_long_log_leaves_a_snapshot(world: World) -> None:
    process = await world.process()
    await long_run(process.store, TAIL_MAX)
    await process.engine.pause("bad")
    loaded = await process.store.log.load("bad", fold_version=FOLD_VERSION)
    assert loaded is not None
    assert loaded.snapshot is not None
    assert await process.is_sound("bad")


@pytest.mark.postgres
async def test_a_name_that_no_index_can_hold_keeps_postgres_from_nothing_else(
    postgres_emptied_url: str,
) -> None:
    """From a database that an older Onward wrote: new runs cannot have such names. I37."""

    async def connect() -> Store:
        return await open_store(postgres_emptied_url)

    world = World(connect, "postgres")
    process = await world.process(clock=ManualClock(autojump=False))
    noise = random.Random(1)
    await created(
        process.store, "bad", pipeline="".join(chr(noise.randrange(256, 2_000)) for _ in range(4_000))
    )
    await submitted(process, "good")
    with pytest.raises(StoreIO, match="index row"):
        await taken_by(process)
    assert await taken_by(process) == "good"
    assert [one.run for one in (await process.store.measures.measure()).stuck] == ["bad"]
    await world.close()


NAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "a pipeline": (line("a").replace("digraph line", f"digraph {LONG}"), {}),
    "a node": (line(LONG), {}),
    "a handler": (line("a", a=f"type={LONG}"), {}),
    "a key": (line("a"), {"exclusive_key": LONG}),
    "a request": (line("a"), {"terms": RequestTerms(LONG)}),
}


@pytest.mark.parametrize("what", list(NAMED))
async def test_a_name_that_is_too_long_is_refused_at_the_door(world: World, what: str) -> None:
    """Equally on every store, before anything is stored, in one sentence. I37."""
    process = await world.process()
    source, start = NAMED[what]
    with pytest.raises((InvalidInput, InvalidPipeline)) as refusal:
        await process.engine.submit(process.pipeline(source), StartRequest(run_id="run", **start))
    assert "501 characters" in str(refusal.value)
    assert await process.store.runs.find("run") == []
    with pytest.raises((InvalidInput, InvalidPipeline)):
        await process.start(source, **start)
    assert await process.store.runs.find("run") == []
