"""Forgetting runs: who is needed stays, what goes goes whole, and dying half-way changes nothing."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from onward.engine.control.retention import (
    COLLECTING,
    RUNS_AT_ONCE,
    UNTOUCHED_US,
    Collected,
    Collector,
    Policy,
    collectable,
)
from onward.errors import RunNotFound
from onward.model.run import RunStatus
from onward.receipts.run_directory import Homes
from onward.store.port.retention import Kin
from tests.conformance.faults import Died, Fault
from tests.world import Process, World, line

pytestmark = pytest.mark.anyio
EVERYTHING = Policy(older_than_s=-60.0)


def kin(id: str, status: RunStatus = RunStatus.COMPLETED, **relatives: str) -> Kin:
    return Kin(id=id, head=1, status=status, **relatives)


def chosen(expired: list[Kin], attached: list[Kin]) -> list[str]:
    return [found.id for found in collectable(expired, attached)]


def test_forks_go_before_the_runs_they_came_off() -> None:
    child = kin("child", parent="parent")
    assert chosen([kin("parent"), child], [child]) == ["child", "parent"]


def test_what_a_kept_fork_stands_on_is_kept_all_the_way_down() -> None:
    middle, top = kin("middle", parent="root"), kin("top", parent="middle")
    assert chosen([kin("root"), middle, kin("else")], [middle, top]) == ["else"]


@pytest.mark.parametrize("status", [RunStatus.RUNNING, RunStatus.WAITING, RunStatus.PAUSED, RunStatus.FAILED])
def test_the_relatives_of_a_run_that_is_not_over_are_kept(status: RunStatus) -> None:
    assert chosen([kin("child", manager="manager")], [kin("manager", status)]) == []
    assert chosen([kin("manager")], [kin("child", status, manager="manager")]) == []
    assert chosen([kin("first", successor="second")], [kin("second", status, restart_of="first")]) == []


def test_the_relatives_of_a_run_that_goes_too_go_with_it() -> None:
    failed = kin("manager", RunStatus.FAILED)
    assert chosen([failed, kin("child", manager="manager")], [failed]) == ["child", "manager"]


def test_who_is_kept_may_need_others_in_turn() -> None:
    failed = kin("manager", RunStatus.FAILED)
    fork = kin("fork", parent="manager")
    assert chosen([failed, kin("child", manager="manager")], [failed, fork]) == []


async def over(process: Process, *run_ids: str) -> None:
    for run_id in run_ids:
        assert (await process.start(line("a"), run_id)).status is RunStatus.COMPLETED


def collector(process: Process, homes: Homes | None = None) -> Collector:
    def warn(text: str) -> None:
        raise AssertionError(text)

    return Collector(process.store, process.clock, homes, warn)


async def collect(process: Process, root: Path | None = None) -> Collected:
    homes = None if root is None else Homes(str(root), process.store.identity)
    return await collector(process, homes).collect(EVERYTHING)


def housed(process: Process, directory: Path) -> Path:
    """A directory of a run of this process's database."""
    directory.mkdir(parents=True)
    said = {"run_id": directory.name.partition(".")[0], "database": process.store.identity.name}
    (directory / "manifest.json").write_text(json.dumps(said))
    return directory


async def test_a_preview_tells_what_goes_and_changes_nothing(world: World) -> None:
    process = await world.process()
    await over(process, "one", "two")
    preview = await collector(process).preview(EVERYTHING)
    assert sorted(preview.runs) == ["one", "two"]
    assert await process.is_sound("one")
    done = await collect(process)
    assert (sorted(done.runs), done.events) == (sorted(preview.runs), preview.events)
    with pytest.raises(RunNotFound):
        await process.resume("one")


async def test_young_runs_and_failed_ones_stay_unless_they_are_named(world: World) -> None:
    process = await world.process()
    await over(process, "young")
    assert (await collector(process).collect(Policy(older_than_s=60))).runs == []
    assert (await collector(process).collect(Policy((RunStatus.FAILED,), -1.0))).runs == []
    assert await process.is_sound("young")


async def test_the_source_of_a_pipeline_goes_an_hour_after_its_last_run(world: World) -> None:
    process = await world.process()
    await over(process, "run")
    hash_ = (await process.load()).run.pipeline_hash
    assert (await collect(process)).swept.blobs == 0
    assert await process.store.blobs.find(hash_) is not None
    process.clock.advance(UNTOUCHED_US / 1_000_000 + 60)
    assert (await collect(process)).swept.blobs == 1
    assert await process.store.blobs.find(hash_) is None


async def test_the_directories_of_runs_that_went_go_and_links_are_not_followed(
    world: World, tmp_path: Path
) -> None:
    process, root = await world.process(), tmp_path / "runs"
    await over(process, "gone", "linked")
    outside = tmp_path / "outside"
    for name in ("gone", "gone.before-1", "stranger"):
        housed(process, root / name)
    for directory in (root / "gone" / "a", outside):
        directory.mkdir()
        (directory / "file").write_text("here")
    (root / "gone" / "away").symlink_to(outside)
    (root / "linked").symlink_to(outside)
    done = await collect(process, root)
    assert done.directories == 2
    assert sorted(path.name for path in root.iterdir()) == ["linked", "stranger"]
    assert (outside / "file").read_text() == "here"


@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER])
async def test_dying_around_the_deletion_leaves_nothing_that_the_next_one_does_not_finish(
    world: World, tmp_path: Path, fault: Fault
) -> None:
    """B4-10."""
    process, root = await world.process(), tmp_path / "runs"
    await over(process, "one", "two")
    for name in ("one", "two"):
        housed(process, root / name)
    process.store.fail(fault, within=1)
    with pytest.raises(Died):
        await collect(process, root)
    assert process.store.calls[-1] == "retention.delete"
    assert any(path.name.startswith(COLLECTING) for path in root.iterdir())
    after = await world.process(clock=process.clock)
    left = [one.row.id for one in await after.store.runs.find("one")]
    assert left == (["one"] if fault is Fault.DIE_BEFORE else [])
    for run_id in left:
        assert await after.is_sound(run_id)
    await collect(after, root)
    assert list(root.iterdir()) == []
    assert await after.store.runs.find("one") == []


class Stubborn(Homes):
    """A folder on a disk that does not let go of one directory."""

    STAYS = "run-50"

    def remove_all(self, name: str) -> bool:
        if name == self.STAYS:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return super().remove_all(name)


async def test_a_directory_that_could_not_go_is_still_known_when_later_ones_went(
    world: World, tmp_path: Path
) -> None:
    process, root = await world.process(), tmp_path / "runs"
    names = [f"run-{number}" for number in range(RUNS_AT_ONCE + 1)]  # two batches; the youngest goes first
    await over(process, *names)
    for name in names:
        housed(process, root / name)
    warned: list[str] = []
    first = Collector(
        process.store, process.clock, Stubborn(str(root), process.store.identity), warned.append
    )
    assert len((await first.collect(EVERYTHING)).runs) == len(names)
    assert [text.partition(" ")[0] for text in warned] == [str(root / Stubborn.STAYS)]
    assert warned[0].endswith("the next gc tries again.")
    await collect(process, root)
    assert list(root.iterdir()) == []
