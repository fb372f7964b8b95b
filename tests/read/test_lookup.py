"""Long logs are read in pages and searched from their end; lists read no log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from onward.model.run import RunStatus
from onward.operations.local.operations import LocalOperations
from onward.operations.requests import ShowRun
from onward.read.lookup import (
    PAGE,
    PAGE_FIRST,
    completed_of,
    last_checkpoint,
    list_runs,
    newest_first,
    read_checkpoints,
)
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.log import RunLog, StoredEvent
from onward.store.port.runs import RunQuery
from tests.conformance.drafts import START_US, held
from tests.conformance.faults import Around, FaultyStore
from tests.world import World, line


class Log:
    """A log of so many events, of which every hundredth is a checkpoint; it counts what is read of it."""

    def __init__(self, length: int) -> None:
        self.length, self.seen = length, list[int]()

    async def __call__(self, *, after: int, limit: int) -> Sequence[StoredEvent]:
        assert limit <= PAGE
        found = range(after + 1, min(after + limit, self.length) + 1)
        self.seen += found
        kinds = {seq: "RunQueued" if seq % 100 else "StepFinished" for seq in found}
        return [StoredEvent("r", seq, kind, 1, 0, 1, "{}", b"") for seq, kind in kinds.items()]


async def test_a_search_begins_at_the_end_and_reads_nothing_twice() -> None:
    log = Log(5_000)
    found = [record.seq async for record in newest_first(log, 5_000, ("StepFinished",))]
    assert found == list(range(5_000, 0, -100))
    assert sorted(log.seen) == list(range(1, 5_001))


async def test_a_search_that_has_found_enough_reads_no_more() -> None:
    log = Log(5_000)
    async for record in newest_first(log, 5_000, ("StepFinished",)):
        assert record.seq == 5_000
        break
    assert len(log.seen) == PAGE_FIRST


async def test_no_reader_asks_for_a_whole_log_at_once(world: World) -> None:
    """Memory is bounded by the steps that are shown, not by the log."""
    limits: list[int] = []

    class Watched(Around[RunLog]):
        async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[StoredEvent]:
            limits.append(limit)
            return await self.part.read(run_id, after=after, limit=limit)

    process = await world.process(wrap=partial(FaultyStore, log=Watched))
    run = await process.start(line("a", "b"))
    limits.clear()
    assert (await LocalOperations(process.engine, process.clock).look.show_run(ShowRun(run="run")))[
        "completed"
    ] == ["start#1", "a#1", "b#1", "exit#1"]
    assert await completed_of(process.store.log, "run") == ["start#1", "a#1", "b#1", "exit#1"]
    nodes = [one["current_node"] async for one in read_checkpoints(process.store.log, "run")]
    assert nodes == [None, "start", "a", "b", "exit"]
    assert await last_checkpoint(process.store.log, "run", run.head) is not None
    assert limits
    assert max(limits) <= PAGE


async def test_a_run_whose_owner_died_is_listed_as_interrupted_and_no_log_is_read() -> None:
    """However many runs others hold: they are looked through page by page, and a cursor works there too."""
    database = MemoryDatabase()
    dead, alive = database.connect(), database.connect()
    for number in range(240):
        await held(dead if number % 80 == 0 else alive, f"run-{number:03d}", at_us=START_US + number)
    dead.kill()
    store = FaultyStore(alive)
    interrupted, running = RunQuery((RunStatus.INTERRUPTED,)), RunQuery((RunStatus.RUNNING,), limit=230)
    found = await list_runs(store.runs, interrupted)
    assert [one.row.id for one in found] == ["run-160", "run-080", "run-000"]
    (first,) = await list_runs(store.runs, replace(interrupted, limit=1))
    rest = await list_runs(store.runs, replace(interrupted, after=first.cursor))
    assert [one.row.id for one in (first, *rest)] == [one.row.id for one in found]
    assert len(await list_runs(store.runs, running)) == 230
    assert len(await list_runs(store.runs, replace(running, limit=500))) == 237
    both = RunQuery((RunStatus.INTERRUPTED, RunStatus.RUNNING), limit=500)
    assert len(await list_runs(store.runs, both)) == 240
    assert store.calls == []
