"""The log as the source of everything: long ones stay cheap, damaged ones are loud, old ones are not read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as changed

from onward.engine.control.requests import ForkRequest
from onward.engine.log import EVENT_BYTES, SNAPSHOT_BYTES_MIN
from onward.engine.stop import StopSwitch
from onward.errors import HistoryCorrupt
from onward.handlers.port import StepContext
from onward.model.result import Result
from onward.model.run import FOLD_VERSION, RunStatus
from onward.operations.here.verify import verify_run
from onward.store.port.log import Loaded, RunLog, Snapshot, StoredEvent
from onward.store.port.store import Store
from tests.conformance.faults import Around, FaultyStore
from tests.world import Process, World, line

HOPS = 10
LONG = f"""digraph long {{
  graph [max_visits=2000]
  start [shape=Mdiamond]
  exit [shape=Msquare]
  work [prompt="work"]
  {" ".join(f"hop{n} [shape=diamond]" for n in range(HOPS))}
  start -> work -> {" -> ".join(f"hop{n}" for n in range(HOPS))}
  hop{HOPS - 1} -> work [condition="context.left!=0"]
  hop{HOPS - 1} -> exit [condition="context.left=0"]
}}"""


async def long_run(world: World, visits: int, stop_at: int, run_id: str = "run") -> Process:
    """A run of many events, paused after so many of its visits."""
    stop = StopSwitch()

    async def work(step: StepContext) -> Result:
        if step.execution == stop_at:
            stop.request("signal")
        return Result.success(left=visits - step.execution)

    process = await world.process({"work": [work]})
    assert (await process.start(LONG, run_id, stop=stop)).status is RunStatus.PAUSED
    return process


async def read_at_resume(process: Process, run_id: str = "run") -> int:
    """How many events it takes to know a run as it stands."""
    loaded = await process.store.log.load(run_id, fold_version=FOLD_VERSION)
    assert loaded is not None
    return len(loaded.tail)


@pytest.mark.slow
async def test_a_long_run_is_resumed_without_reading_all_of_it(world: World) -> None:
    """K19, O6: more than ten thousand events, of which a resume reads the few behind the last snapshot."""
    process = await long_run(world, visits=910, stop_at=900)
    head = (await process.load()).position.seq
    assert head > 10_000
    assert await read_at_resume(process) < 600
    again = await world.process()
    shown = await again.shown()
    assert (shown["status"], shown["head"]) == ("paused", head)

    async def work(step: StepContext) -> Result:
        return Result.success(left=910 - step.execution)

    again.agent.script["work"] = [work]
    assert (await again.resume()).status is RunStatus.COMPLETED
    assert world.ledger.steps == [f"work#{n}" for n in range(1, 911)]
    assert await again.is_sound()


@pytest.mark.parametrize("visits", [30, 300])
async def test_what_a_resume_reads_does_not_grow_with_the_log(world: World, visits: int) -> None:
    """K19: ten times the history, and no more to read than before a snapshot is due."""
    process = await long_run(world, visits=1_000, stop_at=visits)
    loaded = await process.store.log.load("run", fold_version=FOLD_VERSION)
    assert loaded is not None
    assert loaded.snapshot is not None
    one_append = 4_000
    tail = sum(len(stored.body) + EVENT_BYTES for stored in loaded.tail)
    assert (await process.load()).position.seq > 10 * visits
    assert len(loaded.snapshot.body) < SNAPSHOT_BYTES_MIN / 2
    assert tail < SNAPSHOT_BYTES_MIN + one_append


async def test_a_fork_of_a_long_run_reads_from_its_parents_snapshot(world: World) -> None:
    """K18: coming off at the end costs no more than going on."""
    process = await long_run(world, visits=1_000, stop_at=100)
    last = (await process.checkpoints())[-1]["seq"]
    forked = (await process.engine.fork("run", ForkRequest(last))).run
    assert await read_at_resume(process, forked.id) <= await read_at_resume(process) + 1


async def test_a_snapshot_that_does_not_decode_is_as_good_as_none(world: World) -> None:
    """It is a cache: the log is read instead, and the state is the same."""

    class Garbled(Around[RunLog]):
        async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
            loaded = await self.part.load(run_id, fold_version=fold_version)
            assert loaded is not None
            assert loaded.snapshot is not None
            return replace(loaded, snapshot=loaded.snapshot._replace(body=b"garbage"))

    process = await long_run(world, visits=1_000, stop_at=100)
    garbled = await world.process(wrap=partial(FaultyStore, log=Garbled))
    assert (await garbled.load()).run == (await process.load()).run


async def test_a_fold_in_parts_is_the_fold_of_the_whole(world: World) -> None:
    """State is a function of the log: with the snapshot or without, the same."""
    process = await long_run(world, visits=1_000, stop_at=60)
    whole = await process.engine.journal.load_at("run", (await process.load()).position.seq)
    assert whole.run == (await process.load()).run


def flipped(record: StoredEvent) -> StoredEvent:
    """The same record with one letter of its body changed."""
    body = record.body
    return changed(record, body=body[:-2] + ("0" if body[-2] != "0" else "1") + body[-1])


DAMAGES: dict[str, Callable[[Sequence[StoredEvent]], Sequence[StoredEvent]]] = {
    "a flipped letter": lambda log: [*log[:2], flipped(log[2]), *log[3:]],
    "a missing event": lambda log: [*log[:2], *log[3:]],
    "a lost end": lambda log: log[:-1],
    "two events exchanged": lambda log: [log[0], log[2], log[1], *log[3:]],
    "another run's event": lambda log: [*log[:2], changed(log[2], run_id="other"), *log[3:]],
    "a changed time": lambda log: [*log[:2], changed(log[2], at_us=1), *log[3:]],
    "a changed token": lambda log: [*log[:2], changed(log[2], token=9), *log[3:]],
    "a kind that nobody knows": lambda log: [*log[:2], changed(log[2], kind="StepImagined"), *log[3:]],
    "a version from the future": lambda log: [*log[:2], changed(log[2], v=99), *log[3:]],
    "a torn last event": lambda log: [*log[:-1], changed(log[-1], body=log[-1].body[:1])],
    "no event at all": lambda log: [],
}


def damaging(
    damage: Callable[[Sequence[StoredEvent]], Sequence[StoredEvent]],
) -> Callable[[Store], FaultyStore]:
    """A store that shows every log damaged in the same way."""

    class Damaged(Around[RunLog]):
        async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
            loaded = await self.part.load(run_id, fold_version=fold_version)
            return loaded and replace(loaded, tail=damage(loaded.tail))

        async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[StoredEvent]:
            log = damage(await self.part.read(run_id, after=0, limit=2**31))
            return [record for record in log if record.seq > after][:limit]

    return partial(FaultyStore, log=Damaged)


@pytest.mark.parametrize("name", DAMAGES)
async def test_a_damaged_history_is_named_and_nothing_is_done(world: World, name: str) -> None:
    """K3, K7, B4-4: found at every door, naming the run; no effect, no write, never a silent restart."""
    stop = StopSwitch()
    stop.request("signal")
    process = await world.process()
    await process.start(line("a"), stop=stop)
    before = await process.log()
    assert len(before) >= 3
    damaged = await world.process(wrap=damaging(DAMAGES[name]))
    for door in (damaged.resume, damaged.engine.pause, damaged.engine.cancel, damaged.load):
        with pytest.raises(HistoryCorrupt, match="run"):
            await door("run")
    with pytest.raises(HistoryCorrupt):
        await damaged.engine.fork("run", ForkRequest(1))
    assert (await verify_run(damaged.store, "run")).problems != ()
    assert await process.log() == before
    assert world.ledger.steps == []
    assert (await process.resume()).status is RunStatus.COMPLETED, "nothing earlier was lost"


async def test_a_damaged_run_does_not_touch_its_neighbours(world: World) -> None:
    """K7: corruption is loud and local."""
    process = await world.process()
    await process.start(line("a"), "bad")

    class OneDamaged(Around[RunLog]):
        async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
            loaded = await self.part.load(run_id, fold_version=fold_version)
            return loaded and (replace(loaded, tail=loaded.tail[:-1]) if run_id == "bad" else loaded)

    damaged = await world.process(wrap=partial(FaultyStore, log=OneDamaged))
    with pytest.raises(HistoryCorrupt, match="bad"):
        await damaged.load("bad")
    assert (await damaged.start(line("a"), "good")).status is RunStatus.COMPLETED
    assert (await damaged.load("good")).run.status is RunStatus.COMPLETED


async def test_a_snapshot_of_another_history_is_found_by_the_check(world: World) -> None:
    process = await long_run(world, visits=1_000, stop_at=100)
    loaded = await process.store.log.load("run", fold_version=FOLD_VERSION)
    assert loaded is not None
    assert loaded.snapshot is not None
    foreign = Snapshot(loaded.snapshot.seq, b"\1" * 32, FOLD_VERSION, loaded.snapshot.body)

    class Foreign(Around[RunLog]):
        async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
            found = await self.part.load(run_id, fold_version=fold_version)
            return found and replace(found, snapshot=foreign)

    other = await world.process(wrap=partial(FaultyStore, log=Foreign))
    assert "belongs to another history" in str((await verify_run(other.store, "run")).problems)
    with pytest.raises(HistoryCorrupt):
        await other.load()


async def test_a_fresh_run_never_reads_old_state(world: World) -> None:
    """K8: a start only writes, whatever unfinished runs of the same pipeline there are."""
    stop = StopSwitch()
    stop.request("signal")
    first = await world.process()
    await first.start(line("a", "b"), "old", stop=stop)
    process = await world.process()
    run = await process.start(line("a", "b"), "new")
    assert run.status is RunStatus.COMPLETED
    assert set(process.store.calls) == {"log.create", "log.append"}
    assert (await first.load("old")).run.status is RunStatus.PAUSED


async def test_checking_finds_a_row_that_is_not_what_the_log_says(world: World) -> None:
    process = await world.process()
    await process.start(line("a"))

    class Embellished(Around[RunLog]):
        async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
            loaded = await self.part.load(run_id, fold_version=fold_version)
            return loaded and replace(
                loaded, row=changed(loaded.row, status=RunStatus.FAILED, steps_finished=99)
            )

    embellished = await world.process(wrap=partial(FaultyStore, log=Embellished))
    problems = " ".join((await verify_run(embellished.store, "run")).problems)
    assert "the row's status is" in problems
    assert "the row's steps_finished is 99" in problems
