"""Deleting: a run goes completely or stays, and content stays as long as a run refers to it."""

from __future__ import annotations

from asyncio import gather
from typing import Any

import pytest
from msgspec.structs import replace

from onward.clock import SystemClock
from onward.engine.journal import Journal
from onward.errors import Refused, RunNotFound
from onward.model.events import (
    Artifact,
    Managed,
    PipelineChanged,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunPaused,
    RunResumed,
    StepFinished,
)
from onward.model.run import FOLD_VERSION, RunStatus
from onward.store.codec import VALUE_BYTES_MAX, content_hash
from onward.store.port.retention import Expiry, Kin, Swept
from onward.store.port.store import Store
from tests.conformance.drafts import (
    START_US,
    TICK_US,
    Draft,
    created,
    creation,
    everything_of,
    fork,
    held,
    log_of,
    requested,
    step,
    stepped,
)

OVER = (RunStatus.COMPLETED, RunStatus.CANCELLED)
LATER_US = START_US + 3_600 * 1_000_000
LARGE = "x" * VALUE_BYTES_MAX * 2
NAME = content_hash(f'"{LARGE}"'.encode())


async def completed(store: Store, run_id: str | None = None, **fields: Any) -> Draft:
    """A stored run that has ended."""
    return await ended(store, await held(store, run_id, **fields))


async def ended(store: Store, run: Draft, restarted_as: str = "") -> Draft:
    write, over = run.then(RunCompleted(restarted_as=restarted_as))
    await store.log.append(write, run.lease)
    return over


def kin(draft: Draft) -> Kin:
    return Kin(id=draft.id, head=draft.position.seq, status=draft.run.status)


async def ids(store: Store, *statuses: RunStatus, before_us: int = LATER_US, keep: int = 0) -> list[str]:
    return [found.id for found in await store.retention.expired(Expiry(statuses or OVER, before_us, keep))]


async def test_what_is_left_of_a_deleted_run_is_nothing(store: Store, other: Store) -> None:
    run = await held(store)
    write, run = run.then(*step(run), with_row=False, snapshot_version=FOLD_VERSION)
    await store.log.append(write, run.lease)
    run = await ended(store, run)
    assert await other.retention.delete([kin(run)]) == [run.id]
    for process in (store, other):
        assert await process.log.load(run.id, fold_version=FOLD_VERSION) is None
        assert await process.runs.find(run.id) == []
        assert await log_of(process, run.id) == []
    again = await completed(store, run.id)
    assert len(await log_of(other, run.id)) == again.position.seq
    assert (await Journal(other.log, SystemClock()).load(run.id)).run == again.run


async def test_the_effects_of_a_run_go_with_it_and_all_others_stay(store: Store, other: Store) -> None:
    """The keys of a run's effects begin with its id and a slash; no other run's keys do."""
    run, neighbour = await completed(store, "deploy"), await held(store, "deploy-2")
    theirs = ("deploy/start#1", "deploy/fan#1.lint/start#1/charge", "deploy/\U0010ffff")
    others = ("deploy", "deploy-2/start#1", "deploy0", "deploy.x", "charge", "x/deploy/start#1", "deployé/x")
    for key in (*theirs, *others):
        await store.effects.begin(key, "token", at_us=1)
        await store.effects.finish(key, "token", b"done", at_us=2)
    await store.effects.begin("deploy/start#2", "token", at_us=1)
    grown = replace(kin(run), head=run.position.seq - 1)
    assert await other.retention.delete([grown, kin(neighbour)]) == []
    assert [key for key in (*theirs, *others) if await store.effects.find(key) is None] == []
    assert await other.retention.delete([kin(run)]) == [run.id]
    assert [key for key in others if await store.effects.find(key) is None] == []
    for key in (*theirs, "deploy/start#2"):
        assert await store.effects.find(key) is None


async def test_deleting_a_run_leaves_its_neighbours_alone(store: Store, other: Store) -> None:
    run, neighbour = await completed(store), await stepped(store, await held(store), text=LARGE)
    before = await everything_of(store, neighbour.id)
    await other.retention.delete([kin(run)])
    assert await everything_of(store, neighbour.id) == before
    await stepped(store, neighbour)


async def test_deleting_again_what_is_gone_is_the_same_answer(store: Store, other: Store) -> None:
    run = await completed(store)
    assert await store.retention.delete([kin(run)]) == [run.id]
    assert await other.retention.delete([kin(run)]) == [run.id]
    assert await store.retention.delete([]) == []


async def test_a_run_whose_log_has_grown_since_it_was_seen_stays(store: Store, other: Store) -> None:
    run = await held(store)
    write, failed = run.then(RunFailed(reason="step_failed"))
    await store.log.append(write, run.lease)
    cancelled = await requested(other, failed, RunCancelled(reason="user"))
    before = await everything_of(store, run.id)
    assert await store.retention.delete([kin(failed)]) == []
    assert await everything_of(store, run.id) == before
    assert await store.retention.delete([kin(cancelled)]) == [run.id]


async def test_a_run_that_somebody_owns_stays(store: Store, other: Store) -> None:
    run = await held(store)
    assert await other.retention.delete([kin(run)]) == []
    await stepped(store, run)


async def test_a_run_stays_while_a_fork_stands_on_it_and_goes_behind_it(store: Store, other: Store) -> None:
    begun = await stepped(store, await held(store))
    parent = await ended(store, begun)
    write, child = fork(begun)
    await store.log.create(write, "creation")
    child = await requested(store, child, RunCancelled(reason="user"))
    assert await other.retention.delete([kin(parent)]) == []
    assert (await Journal(other.log, SystemClock()).load(child.id)).run == child.run
    assert await other.retention.delete([kin(parent), kin(child)]) == [child.id]
    assert await other.retention.delete([kin(child), kin(parent)]) == [child.id, parent.id]


async def test_a_fork_cannot_stand_on_what_was_deleted(store: Store, other: Store) -> None:
    begun = await held(store)
    write, child = fork(begun)
    assert await other.retention.delete([kin(await ended(store, begun))]) == [begun.id]
    with pytest.raises(RunNotFound):
        await store.log.create(write, "creation")
    assert await log_of(store, child.id) == []


async def test_the_holder_of_nothing_is_told_that_its_run_is_gone(store: Store, other: Store) -> None:
    run = await completed(store)
    await other.retention.delete([kin(run)])
    with pytest.raises(RunNotFound):
        await store.log.control(run.id, since=0, append_id="request", decide=lambda *_: None)


async def test_runs_expire_by_status_age_and_number(store: Store) -> None:
    made = []
    for number in range(4):
        made.append(await completed(store, f"over-{number}", at_us=START_US + number * 10 * TICK_US))
    await held(store, "at-work")
    await created(store, "queued")
    assert await ids(store) == [run.id for run in made]
    assert await ids(store, RunStatus.CANCELLED) == []
    assert await ids(store, before_us=made[2].run.updated_at_us) == ["over-0", "over-1"]
    assert await ids(store, keep=3) == ["over-0"]
    assert await ids(store, keep=9) == []
    assert await ids(store, keep=1, before_us=made[1].run.updated_at_us) == ["over-0"]


async def test_runs_are_told_with_their_relatives(store: Store) -> None:
    manager = await held(store, "manager")
    child = await held(store, "child", managed_by=Managed(run="manager", step="m#1"))
    child = await ended(store, child, restarted_as="second")
    second = await held(
        store, "second", restart_of="child", restarts=1, managed_by=Managed(run="manager", step="m#1")
    )
    parent = await held(store, "parent")
    write, branch = fork(parent, "fork")
    await store.log.create(write, "creation")
    await ended(store, parent)
    found = {one.id: one for one in await store.retention.attached()}
    assert found.keys() == {"manager", "second", "fork"}
    assert found["manager"] == kin(manager)
    assert found["second"] == replace(kin(second), manager="manager", restart_of="child")
    assert found["fork"] == replace(kin(branch), parent="parent")
    (one,) = [one for one in await store.retention.expired(Expiry(OVER, LATER_US)) if one.id == "child"]
    assert one == replace(kin(child), manager="manager", successor="second")


async def swept(store: Store, before_us: int = LATER_US, limit: int = 100) -> int:
    return (await store.blobs.sweep(before_us, limit)).blobs


async def test_content_goes_when_the_last_run_that_refers_to_it_has_gone(store: Store, other: Store) -> None:
    one = await ended(store, await stepped(store, await held(store), text=LARGE))
    two = await ended(other, await stepped(other, await held(other), text=LARGE))
    for run in (one, two):
        assert await swept(store) == 0
        assert await store.blobs.find(NAME) is not None
        await store.retention.delete([kin(run)])
    found = await other.blobs.sweep(LATER_US, 100)
    assert found.blobs == 1
    assert 0 < found.bytes < len(LARGE) + 3
    assert await store.blobs.find(NAME) is None
    assert await other.blobs.sweep(LATER_US, 100) == Swept(0, 0)


async def test_content_that_was_touched_lately_stays(store: Store) -> None:
    write, _ = creation(blobs={content_hash(b"source"): b"source"})
    await store.log.create(write, "creation")
    assert await swept(store, before_us=write.at_us) == 0
    assert await swept(store, before_us=write.at_us + 1) == 1


async def test_content_is_swept_a_part_at_a_time(store: Store) -> None:
    contents = {content_hash(content): content for content in (b"a", b"b", b"c")}
    write, _ = creation(blobs=contents)
    await store.log.create(write, "creation")
    assert [await swept(store, limit=2) for _ in range(3)] == [2, 1, 0]


async def test_content_that_was_swept_is_stored_when_it_is_used_again(store: Store, other: Store) -> None:
    run = await ended(store, await stepped(store, await held(store), text=LARGE))
    await store.retention.delete([kin(run)])
    assert await swept(store) == 1
    again = await stepped(store, await held(store), text=LARGE)
    assert (await Journal(other.log, SystemClock()).load(again.id)).run.context["text"] == LARGE


async def test_content_that_another_process_swept_is_stored_when_it_is_used_again(
    store: Store, other: Store
) -> None:
    """The writer's clock does not matter: it may have stopped since it last used the content."""
    source = b"digraph { a }"
    name = content_hash(source)
    write, first = creation(pipeline_hash=name, owner=store.leases.owner, blobs={name: source})
    await store.log.create(write, "creation")
    run = await ended(store, await stepped(store, first, text=LARGE))
    await other.retention.delete([kin(run)])
    assert await swept(other) == 2
    write, again = creation(pipeline_hash=name, owner=store.leases.owner, blobs={name: source})
    await store.log.create(write, "creation")
    again = await stepped(store, again, text=LARGE)
    assert (await Journal(other.log, SystemClock()).load(again.id)).run.context["text"] == LARGE
    assert await other.blobs.find(name) == source
    assert await swept(other) == 0


async def test_a_write_that_refers_to_content_which_is_not_there_is_refused(
    store: Store, other: Store
) -> None:
    run, neighbour = await held(store), await held(store)
    before = await everything_of(store, run.id)
    write, after = run.then(*step(run, text=LARGE), with_row=False)
    bare = replace(write, blobs={})
    beside, _ = neighbour.then(*step(neighbour), with_row=False)
    answers = await gather(
        store.log.append(bare, run.lease), store.log.append(beside, neighbour.lease), return_exceptions=True
    )
    assert isinstance(answers[0], Refused)
    assert (answers[0].code, answers[1]) == ("content_missing", None)
    assert await everything_of(other, run.id) == before
    await store.log.append(write, run.lease)
    write, after = after.then(*step(after, text=LARGE), with_row=False)
    await store.log.append(replace(write, blobs={}), after.lease)  # it is there now
    assert (await Journal(other.log, SystemClock()).load(run.id)).run.context["text"] == LARGE


async def test_everything_that_a_run_needs_to_be_read_and_gone_on_with_stays(
    store: Store, other: Store
) -> None:
    first, second, kept = b"digraph { a }", b"digraph { b }", b"an artifact"
    names = [content_hash(content) for content in (first, second, kept)]
    write, run = creation(pipeline_hash=names[0], owner=store.leases.owner, blobs={names[0]: first})
    await store.log.create(write, "creation")
    begun, finished = step(run)
    assert isinstance(finished, StepFinished)
    artifact = Artifact(name="n", size=len(kept), hash=names[2], stored_at_us=1, step=finished.step)
    finished = replace(finished, artifacts={"n": artifact}, contents={names[2]: kept})
    write, run = run.then(begun, finished, with_row=False)
    await store.log.append(write, run.lease)
    run = await stepped(store, run, text=LARGE)
    write, paused = run.then(RunPaused(reason="operator"))
    await store.log.append(write, run.lease)
    change = PipelineChanged(pipeline_hash=names[1], before=names[0], by="tests")
    write, changed = paused.then(RunResumed(by="tests"), change, blobs={names[1]: second})
    since = paused.position.seq
    await store.log.control(run.id, since=since, append_id="change", decide=lambda *_: write)
    assert await swept(other) == 0
    assert [await other.blobs.find(name) for name in names] == [first, second, kept]
    over = await requested(store, changed, RunCancelled(reason="user"))
    assert await store.retention.delete([kin(over)]) == [run.id]
    assert await swept(other) == 4
