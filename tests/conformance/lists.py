"""Finding runs: by the names people type, and as lists with the newest first."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from onward.clock import SystemClock
from onward.engine.journal import Journal
from onward.errors import InvalidInput
from onward.machine.fold.rows import run_row
from onward.model.events import (
    Managed,
    RunCancelled,
    RunCompleted,
    RunInterrupted,
    RunPaused,
    RunWaiting,
    StepStarted,
)
from onward.model.ids import display_id
from onward.model.run import FOLD_VERSION, RunStatus
from onward.model.values import tags_in
from onward.store.port.leases import Holder
from onward.store.port.log import Position
from onward.store.port.runs import AWAITED_US, Listed, RunQuery
from onward.store.port.store import Store
from tests.conformance.drafts import START_US, Draft, created, fork, held, requested, step, stepped


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
        assert await store.runs.find(wanted) == [Listed(run_row(run.run), None)]


async def test_a_prefix_may_mean_several_runs(store: Store) -> None:
    for run_id in ("nightly-2", "nightly-10", "nightly-1", "hourly-1"):
        await created(store, run_id)
    assert await ids(store, "nightly-") == ["nightly-1", "nightly-10", "nightly-2"]
    assert await ids(store, "nightly-1") == ["nightly-1"]


async def test_what_no_run_is_called_finds_nothing(store: Store) -> None:
    await created(store, "release-1")
    for wanted in ("", "elease", "release-11", "release%", "release_1", "%", "*", "RELEASE-1", "'", "\u00e9"):
        assert await ids(store, wanted) == [], wanted


async def test_an_id_comes_before_a_display_id_and_a_display_id_before_a_prefix(store: Store) -> None:
    first = await created(store, "first")
    name = display_id(first.id)
    await created(store, f"{name}-more")
    assert await ids(store, name) == ["first"]
    await created(store, name)
    assert await ids(store, name) == [name]
    await created(store, "second")
    await created(store, "second-more")
    assert await ids(store, "second") == ["second"]


async def test_a_found_run_shows_its_holder(store: Store, other: Store) -> None:
    run = await held(store)
    assert await other.runs.find(run.id) == [Listed(run_row(run.run), Holder(store.leases.owner, 1, True))]
    assert await other.runs.list(RunQuery()) == [
        Listed(run_row(run.run), Holder(store.leases.owner, 1, True))
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


async def test_a_list_can_be_of_completed_runs(store: Store) -> None:
    """Most runs are: a store may find them in another way."""
    for number, pipeline in enumerate(("story", "other", "story")):
        run = await held(store, f"done-{number}", at_us=START_US + number, pipeline=pipeline)
        write, _ = run.then(RunCompleted())
        await store.log.append(write, run.lease)
    await held(store, "running", at_us=START_US + 9)
    completed, running = RunStatus.COMPLETED, RunStatus.RUNNING
    assert await listed_ids(store, RunQuery((completed,))) == ["done-2", "done-1", "done-0"]
    assert await listed_ids(store, RunQuery((completed,), "story")) == ["done-2", "done-0"]
    assert await listed_ids(store, RunQuery((completed,), "story", limit=1)) == ["done-2"]
    assert await listed_ids(store, RunQuery((completed, running), "story")) == ["running", "done-2", "done-0"]
    assert await listed_ids(store, RunQuery((completed,), text="other")) == ["done-1"]
    assert await listed_ids(store, RunQuery((completed,), reasons=("crash",))) == []


async def test_a_list_can_be_of_some_reasons_and_of_the_forks_of_a_run(store: Store) -> None:
    parent = await stepped(store, await held(store, "parent", at_us=START_US))
    write, _ = fork(parent, "fork")
    await store.log.create(write, "creation")
    for number, reason in enumerate(("operator", "signal", "operator")):
        run = await created(store, f"paused-{number}", at_us=START_US + 10 + number)
        await requested(store, run, RunPaused(reason=reason))
    await requested(store, await created(store, "over", at_us=START_US), RunCancelled(reason="operator"))
    paused = (RunStatus.PAUSED,)
    assert await listed_ids(store, RunQuery(reasons=("operator",))) == ["paused-2", "paused-0", "over"]
    assert await listed_ids(store, RunQuery(paused, reasons=("operator",))) == ["paused-2", "paused-0"]
    both = RunQuery(paused, reasons=("signal", "operator"), limit=2)
    assert await listed_ids(store, both) == ["paused-2", "paused-1"]
    assert await listed_ids(store, RunQuery(reasons=("crash",))) == []
    assert await listed_ids(store, RunQuery(parent="parent")) == ["fork"]
    assert await listed_ids(store, RunQuery(parent="fork")) == []


async def test_a_list_can_be_of_the_runs_that_say_a_text(store: Store) -> None:
    """Whatever the case of ASCII letters: other letters are as they are, the same on every store."""
    await created(store, "nightly-1", at_us=START_US, pipeline="Release 100%")
    story = await created(store, "story-1", at_us=START_US + 1)
    await requested(store, story, RunPaused(reason="operator", detail="Asked by \u00c4nne_X"))
    for text in ("NIGHT", "release", "100%", "E 1", display_id("nightly-1")[1:5].upper()):
        assert await listed_ids(store, RunQuery(text=text)) == ["nightly-1"], text
    for text in ("asked BY", "\u00c4NNE", "e_x", "story"):
        assert await listed_ids(store, RunQuery(text=text)) == ["story-1"], text
    for text in ("\u00e4nne", "nightly-1story", "1%0", "%", "enne", "' OR 1"):
        wanted = ["nightly-1"] if text == "%" else []
        assert await listed_ids(store, RunQuery(text=text)) == wanted, text
    assert await listed_ids(store, RunQuery(text="1", limit=1)) == ["story-1"]
    assert await listed_ids(store, RunQuery(text="")) == ["story-1", "nightly-1"]


async def test_a_list_can_be_of_the_runs_with_some_tags(store: Store) -> None:
    """All of the tags, each as it is written: no tag is a pattern, and none is found in another."""
    for number, tags in enumerate((("a", "b"), ("b",), ("a_c", "b", "x"), ("aXc",), ("A",), ())):
        await created(store, f"run-{number}", at_us=START_US + number, tags=tags)
    for wanted, found in (
        (("b",), ["run-2", "run-1", "run-0"]),
        (("a", "b"), ["run-0"]),
        (("b", "a"), ["run-0"]),
        (("x", "a_c"), ["run-2"]),
        (("a_c",), ["run-2"]),
        (("A",), ["run-4"]),
        (("a", "x"), []),
        (("c",), []),
    ):
        assert await listed_ids(store, RunQuery(tags=wanted)) == found, wanted
    assert await listed_ids(store, RunQuery(tags=("b",), limit=1, text="run-1")) == ["run-1"]
    (listed,) = await store.runs.find("run-2")
    assert tags_in(listed.row.tags) == ["a_c", "b", "x"]


@pytest.mark.parametrize("tag", ["", "a b", "a*", "x" * 65, "a\n"])
async def test_what_is_no_tag_is_refused(tag: str) -> None:
    with pytest.raises(InvalidInput, match=r"the tag .* cannot be used"):
        RunQuery(tags=(tag,))


@pytest.mark.parametrize(
    "query",
    [
        RunQuery(limit=2),
        RunQuery(limit=2, pipeline="story"),
        RunQuery((RunStatus.QUEUED, RunStatus.PAUSED), limit=2),
        RunQuery(limit=2, text="run"),
        RunQuery((RunStatus.QUEUED,), "story", limit=1),
    ],
    ids=["all", "pipeline", "statuses", "text", "one at a time"],
)
async def test_pages_are_the_list_while_runs_are_added_and_changed(store: Store, query: RunQuery) -> None:
    """The cursor of a page's last run is where the next page begins, though that run has gone on since."""
    for number in range(7):
        await created(store, f"run-{number}", at_us=START_US + number // 2)  # two of the same age
    whole = await listed_ids(store, replace(query, limit=100))
    assert len(whole) == 7
    found: list[str] = []
    while page := await store.runs.list(query):
        assert len(page) <= query.limit
        found += [listed.row.id for listed in page]
        last = page[-1]
        draft = Draft(
            (await Journal(store.log, SystemClock()).load(last.row.id)).run, await _end(store, last)
        )
        await requested(store, draft, RunCancelled(reason="user"))
        await created(store, f"younger-{len(found)}", at_us=START_US + 100)
        query = replace(query, after=last.cursor)
    assert found == whole


async def _end(store: Store, listed: Listed) -> Position:
    loaded = await store.log.load(listed.row.id, fold_version=FOLD_VERSION)
    assert loaded is not None
    return loaded.position


@pytest.mark.parametrize("cursor", ["", "x", "WzEsMl0", "\u00e9", "1700000000000000", "W10="])
async def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidInput, match="the cursor is not one of this list"):
        RunQuery(after=cursor)


async def test_a_text_to_look_for_has_an_end() -> None:
    RunQuery(text="x" * 200)
    with pytest.raises(InvalidInput, match="more than 200 characters"):
        RunQuery(text="x" * 201)


async def test_the_relatives_of_a_run_are_found_oldest_first_and_no_others(store: Store) -> None:
    parent, stranger = await stepped(store, await held(store, "parent")), await held(store, "stranger")
    by = Managed(run="parent", step="manage#1")
    await created(store, "child", at_us=START_US + 1, managed_by=by)
    await created(store, "next", at_us=START_US + 2, restart_of="child", restarts=1, managed_by=by)
    for name in ("second", "first"):
        write, _ = fork(parent, name)
        await store.log.create(write, name)
    write, _ = fork(await stepped(store, stranger), "other")
    await store.log.create(write, "other")
    found = {listed.row.id: listed.row for listed in await store.runs.relatives("parent")}
    assert list(found) == ["child", "next", "first", "second"]
    assert {name: row.parent for name, row in found.items() if row.parent} == {
        "first": "parent",
        "second": "parent",
    }
    assert (found["child"].managed_by, found["child"].managed_step) == ("parent", "manage#1")
    assert found["next"].restart_of == "child"
    assert await store.runs.relatives("first") == []


async def test_runs_that_wait_are_found_by_the_children_that_have_ended_since(store: Store) -> None:
    waits, stopped, works = (
        await held(store, "waits"),
        await held(store, "stopped"),
        await held(store, "works"),
    )
    for draft, stop in ((waits, RunWaiting()), (stopped, RunInterrupted(reason="child"))):
        write, _ = draft.then(stop)
        await store.log.append(write, draft.lease)
    since_us = waits.run.updated_at_us
    for parent in (waits, stopped, works):
        by = Managed(run=parent.id, step="flow#1", call="graph")
        for name, at_us in (("early", since_us - 2 * AWAITED_US), ("late", since_us + 1), ("open", since_us)):
            child = await created(store, f"{parent.id}-{name}", at_us=at_us, managed_by=by)
            if name != "open":
                await requested(
                    store, child, RunCancelled(reason="user", by="tests"), append_id=f"{parent.id} {name}"
                )
    assert await store.runs.awaited("child") == [("stopped", "stopped-late"), ("waits", "waits-late")]
    assert await store.runs.awaited("limit") == [("waits", "waits-late")]


async def test_a_run_names_the_run_that_its_restart_began(store: Store) -> None:
    run = await held(store, "run")
    write, _ = run.then(RunCompleted(restarted_as="next"))
    await store.log.append(write, run.lease)
    (listed,) = await store.runs.find("run")
    assert listed.row.restarted_as == "next"


async def test_a_row_names_the_open_step_that_must_not_be_repeated(store: Store, other: Store) -> None:
    """As soon as it has begun, and until it has ended, though only the progress of the run is written."""
    run = await held(store, "run")
    begun, ended = step(run)
    assert isinstance(begun, StepStarted)
    for event, doubtful in ((msgspec.structs.replace(begun, repeatable=False), "start#1"), (ended, None)):
        write, after = run.then(event, with_row=False)
        await store.log.append(write, run.lease)
        run = after
        (listed,) = await other.runs.list(RunQuery())
        assert listed.row == run_row(run.run)
        assert listed.row.doubtful == doubtful


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
