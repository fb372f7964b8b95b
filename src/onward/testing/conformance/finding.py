"""Finding runs: by the names people type, and as lists with the newest first."""

from __future__ import annotations

import pytest

from onward.machine.fold.row import project
from onward.model.event import RunCancelled, RunPaused
from onward.model.ids import display_id
from onward.model.run import RunStatus
from onward.store.port.leases import Holder
from onward.store.port.runs import Listed, RunQuery
from onward.store.port.store import Store
from onward.testing.drafts import START_US, created, fork, held, requested, stepped


async def ids(store: Store, wanted: str) -> list[str]:
    """The ids of the runs that `wanted` could mean."""
    return [listed.row.id for listed in await store.runs.find(wanted)]


async def listed_ids(store: Store, query: RunQuery) -> list[str]:
    """The ids of a list."""
    return [listed.row.id for listed in await store.runs.list(query)]


async def test_a_run_is_found_by_display_id_by_id_and_by_a_prefix_of_either(store: Store) -> None:
    run = await created(store, "release-2024-01")
    await created(store, "audit-7")
    name = display_id(run.id)
    for wanted in (name, run.id, "release", "r", name[:3]):
        assert await store.runs.find(wanted) == [Listed(project(run.run), None)]


async def test_a_prefix_may_mean_several_runs(store: Store) -> None:
    for run_id in ("nightly-2", "nightly-10", "nightly-1", "hourly-1"):
        await created(store, run_id)
    assert await ids(store, "nightly-") == ["nightly-1", "nightly-10", "nightly-2"]
    assert await ids(store, "nightly-1") == ["nightly-1"]


async def test_what_no_run_is_called_finds_nothing(store: Store) -> None:
    await created(store, "release-1")
    for wanted in ("", "elease", "release-11", "release%", "release_1", "%", "*", "RELEASE-1", "'", "\u00e9"):
        assert await ids(store, wanted) == [], wanted


async def test_a_display_id_comes_before_an_id_and_an_id_before_a_prefix(store: Store) -> None:
    first = await created(store, "first")
    name = display_id(first.id)
    await created(store, name)
    await created(store, f"{name}-more")
    assert await ids(store, name) == ["first"]
    await created(store, "second")
    await created(store, "second-more")
    assert await ids(store, "second") == ["second"]


async def test_a_found_run_shows_its_holder(store: Store, other: Store) -> None:
    run = await held(store)
    assert await other.runs.find(run.id) == [Listed(project(run.run), Holder(store.leases.owner, 1, True))]
    assert await other.runs.list(RunQuery()) == [
        Listed(project(run.run), Holder(store.leases.owner, 1, True))
    ]


async def test_the_newest_run_is_listed_first_and_equals_by_id(store: Store) -> None:
    for number, run_id in ((2, "b"), (1, "c"), (3, "a"), (2, "d")):
        await created(store, run_id, at_us=START_US + number)
    assert await listed_ids(store, RunQuery()) == ["a", "d", "b", "c"]


@pytest.mark.parametrize("limit", [0, 1, 3, 5, 100])
async def test_a_list_is_no_longer_than_asked_for(store: Store, limit: int) -> None:
    for number in range(5):
        await created(store, f"run-{number}", at_us=START_US + number)
    newest = [f"run-{number}" for number in reversed(range(5))]
    assert await listed_ids(store, RunQuery(limit=limit)) == newest[:limit]


async def test_a_list_can_be_of_some_statuses_and_of_one_pipeline(store: Store) -> None:
    await created(store, "queued", at_us=START_US)
    await held(store, "running", at_us=START_US + 1, pipeline="other")
    paused = await created(store, "paused", at_us=START_US + 2)
    await requested(store, paused, RunPaused(reason="operator"))
    queued, running = RunStatus.QUEUED, RunStatus.RUNNING
    assert await listed_ids(store, RunQuery(statuses=(queued,))) == ["queued"]
    assert await listed_ids(store, RunQuery(statuses=(running, queued))) == ["running", "queued"]
    assert await listed_ids(store, RunQuery(statuses=(RunStatus.FAILED,))) == []
    assert await listed_ids(store, RunQuery(pipeline="story")) == ["paused", "queued"]
    assert await listed_ids(store, RunQuery(pipeline="story", statuses=(queued, running))) == ["queued"]
    assert await listed_ids(store, RunQuery(pipeline="stor%")) == []


async def test_the_forks_of_a_run_are_found_oldest_first_and_no_others(store: Store) -> None:
    parent, stranger = await stepped(store, await held(store, "parent")), await held(store, "stranger")
    for name in ("second", "first"):
        write, _ = fork(parent, name)
        await store.log.create(write, name)
    write, _ = fork(await stepped(store, stranger), "other")
    await store.log.create(write, "other")
    found = [listed.row for listed in await store.runs.forks("parent")]
    assert [row.id for row in found] == sorted(row.id for row in found)
    assert {row.parent for row in found} == {"parent"}
    assert len(found) == 2
    assert await store.runs.forks("first") == []


async def test_runs_are_counted_by_status(store: Store) -> None:
    assert await store.runs.count() == {}
    for _ in range(3):
        await created(store)
    await held(store)
    await requested(store, await created(store), RunCancelled(reason="user"))
    assert await store.runs.count() == {RunStatus.QUEUED: 3, RunStatus.RUNNING: 1, RunStatus.CANCELLED: 1}


async def test_a_store_can_say_how_it_is(store: Store) -> None:
    findings = await store.check()
    assert findings
    for subject, is_well, sentence in findings:
        assert subject
        assert sentence
        assert isinstance(is_well, bool)
