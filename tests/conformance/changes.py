"""Changes of runs have numbers that can be followed; heads of many runs are one question."""

from __future__ import annotations

from onward.machine.fold.rows import run_row
from onward.model.events import RunCancelled, RunCompleted, RunPaused
from onward.model.gate import GateDecided
from onward.model.run import RunStatus
from onward.store.port.leases import Holder
from onward.store.port.runs import RunHead
from onward.store.port.store import Store
from tests.conformance.drafts import created, held, requested, stepped
from tests.conformance.questions import YES, asked
from tests.conformance.retention import kin


async def followed(store: Store, after: int, *, limit: int = 100) -> tuple[list[str], int]:
    """The runs that changed, page by page, and where that ended."""
    found: list[str] = []
    while True:
        page = await store.runs.changed(after, limit)
        assert [run.changed for run in page.runs] == sorted(run.changed for run in page.runs)
        assert all(after < run.changed <= page.next for run in page.runs)
        found += [run.listed.row.id for run in page.runs]
        if len(page.runs) < limit:
            return found, page.next
        after = page.next


async def test_a_new_database_has_no_changes(store: Store) -> None:
    number = await store.runs.change_number()
    assert await store.runs.changed(0, 10) == ([], number)
    assert await store.runs.heads(["nothing"]) == {}


async def test_creations_and_other_statuses_are_changes_and_steps_are_none(
    store: Store, other: Store
) -> None:
    start = await other.runs.change_number()
    run = await held(store, "run")
    await created(store, "idle")
    found, at = await followed(other, start)
    assert found == ["run", "idle"]
    run = await stepped(store, run, times=3)
    assert await followed(other, at) == ([], await other.runs.change_number())
    write, ended = run.then(RunCompleted())
    await store.log.append(write, run.lease)
    page = await other.runs.changed(at, 10)
    assert [changed.listed.row for changed in page.runs] == [run_row(ended.run)]
    assert (await followed(other, page.next))[0] == []


async def test_a_gate_that_opens_or_closes_is_a_change(store: Store) -> None:
    """Also while the run goes on in another branch: then nothing else of its row is written."""
    run = await held(store, "run")
    _, at = await followed(store, 0)
    run = await asked(store, run)
    found, at = await followed(store, at)
    assert found == ["run"]
    run = await stepped(store, run)
    assert (await followed(store, at))[0] == []
    await requested(store, run, GateDecided(gate="ask#1", choice=YES, by="tests"))
    assert (await followed(store, at))[0] == ["run"]


async def test_a_run_comes_once_with_its_newest_change(store: Store) -> None:
    first, second = await created(store, "first"), await created(store, "second")
    await requested(store, first, RunPaused(reason="operator"))
    found, at = await followed(store, 0)
    assert found == ["second", "first"]
    await requested(store, second, RunCancelled(reason="user"))
    assert (await followed(store, at))[0] == ["second"]


async def test_pages_of_changes_are_all_of_them(store: Store) -> None:
    start = await store.runs.change_number()
    ids = [f"run-{number}" for number in range(7)]
    for run_id in ids:
        await created(store, run_id)
    for limit in (1, 2, 7, 8):
        assert (await followed(store, start, limit=limit))[0] == ids


async def test_no_number_comes_twice_though_the_newest_run_is_deleted(store: Store) -> None:
    run = await requested(store, await created(store, "gone"), RunCancelled(reason="user"))
    _, at = await followed(store, 0)
    assert await store.retention.delete([kin(run)]) == ["gone"]
    await created(store, "next")
    assert (await followed(store, at))[0] == ["next"]


async def test_a_refused_write_changes_nothing(store: Store, other: Store) -> None:
    run = await created(store, "run")
    await requested(store, run, RunPaused(reason="operator"))
    _, at = await followed(store, 0)
    again = await requested(other, run, RunPaused(reason="operator"))  # the same request: it was answered
    assert again.id == "run"
    assert (await followed(store, at))[0] == []


async def test_heads_of_many_runs_are_read_at_once(store: Store, other: Store) -> None:
    run = await stepped(store, await held(store, "run"))
    idle = await created(store, "idle")
    heads = await other.runs.heads(["run", "idle", "nothing", "run"])
    changed = {one.listed.row.id: one.changed for one in (await store.runs.changed(0, 10)).runs}
    assert heads == {
        "run": RunHead(
            "run",
            run.position.seq,
            RunStatus.RUNNING,
            changed["run"],
            Holder(store.leases.owner, 1, True),
        ),
        "idle": RunHead("idle", idle.position.seq, RunStatus.QUEUED, changed["idle"], None),
    }
    assert await store.runs.heads([]) == {}
