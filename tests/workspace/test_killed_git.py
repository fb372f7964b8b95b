"""A git that is killed, and a holder that was robbed: nothing is lost, and what was cut off is done again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from onward.engine.files.run_files import RunFiles
from onward.errors import GitKilled, LeaseLost, WorkspaceFailed
from onward.handlers.port import StepContext
from onward.model.events import Merged, Tree
from onward.model.result import Result
from onward.model.run import RunStatus
from onward.store.port.leases import Lease, Leases
from onward.workspace.port import Check, TreePlace, unchecked
from onward.workspace.trees import GitTrees
from tests.conformance.faults import Around, FaultyStore
from tests.workspace.repository import Repository
from tests.workspace.test_trees import ENVIRONMENT, Desk
from tests.world import World

GIT = """#!/bin/sh
number=$(( $(cat {folder}/count) + 1 ))
echo $number > {folder}/count
[ $number = "$(cat {folder}/deadly)" ] && kill -9 $$
exec {git} "$@"
"""


class Deadly:
    """A git that dies at a chosen call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        git = shutil.which("git")
        script = folder / "git"
        script.write_text(GIT.format(folder=folder, git=git))
        script.chmod(0o755)
        self.environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
        self.dies(0)

    def dies(self, number: int) -> None:
        """At this call from now on; at none if it is nought."""
        (self.folder / "count").write_text("0\n")
        (self.folder / "deadly").write_text(f"{number}\n")

    @property
    def calls(self) -> int:
        return int((self.folder / "count").read_text())

    def everywhere(self, work: Callable[[], object]) -> Iterator[str]:
        """Do it with a git that dies at the first call, the second and so on, until it dies no more."""
        for number in range(1, 60):
            self.dies(number)
            try:
                work()
            except GitKilled:
                yield f"call {number}"
            else:
                assert self.calls < number
                return
        raise AssertionError("it never ends")


@pytest.fixture
def deadly(tmp_path: Path) -> Deadly:
    return Deadly(tmp_path / "deadly")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_git_that_is_killed_while_it_looks_takes_no_work_away(desk: Desk, deadly: Deadly) -> None:
    """That nobody answered is not the answer that there is no tree."""
    (desk.directory / "draft").write_text("not recorded\n")
    trees = GitTrees(deadly.environment)
    for at in deadly.everywhere(lambda: trees.make(desk.place, desk.start)):
        assert (desk.directory / "draft").read_text() == "not recorded\n", at


def test_what_was_cut_off_while_recording_is_recorded_by_the_next_try(desk: Desk, deadly: Deadly) -> None:
    trees = GitTrees(deadly.environment)
    for number, at in enumerate(deadly.everywhere(lambda: trees.record(desk.place, "a#1", desk.start))):
        (desk.directory / "draft").write_text(f"{number}\n")
        recorded = desk.record(desk.place, "a#1", desk.start)
        assert desk.repository.read("draft", recorded.commit) == str(number), at


def test_what_was_cut_off_while_merging_is_merged_by_the_next_try(tmp_path: Path, deadly: Deadly) -> None:
    done = 0
    while True:
        desk = Desk(tmp_path / f"try-{done}")
        left = desk.branch("left", desk.start)
        Path(left.directory, "new").write_text("from the left\n")
        work = [("left", desk.record(left, "left#1", desk.start))]
        deadly.dies(1 + done)
        try:
            GitTrees(deadly.environment).merge(desk.place, desk.start, work)
            break
        except GitKilled:
            done += 1
        assert desk.trees.merge(desk.place, desk.start, work).conflicts == ()
        assert (desk.directory / "new").read_text() == "from the left\n"
    assert done > 10


# -- in a run ------------------------------------------------------------------------------------------

LINE = """digraph line {{
  graph [workspace="{repository}"]
  start [shape=Mdiamond]; exit [shape=Msquare]; a [type=work{more}]
  start -> a -> exit
}}"""


def leave(step: StepContext) -> Result:
    assert step.workspace is not None
    Path(step.workspace, step.node.id).write_text("done\n")
    return Result.success()


async def writing(step: StepContext) -> Result:
    return leave(step)


async def with_git(world: World, tmp_path: Path, trees: GitTrees, more: str = "") -> tuple[int, str, str]:
    """How often the step was made, how the run ended, and why."""
    repository = Repository.make(tmp_path / "repo")
    process = await world.process(
        {"a": [writing] * 9},
        files=lambda store: RunFiles(str(tmp_path / "runs"), store.identity, warn=pytest.fail),
        trees=trees,
    )
    run = await process.start(LINE.format(repository=repository.path, more=more))
    return len(world.ledger.steps), run.status.value, run.detail


async def test_a_step_does_not_fail_because_a_signal_ended_the_git_that_records_it(
    world: World, tmp_path: Path, deadly: Deadly
) -> None:
    """As when a deployment tells all that belongs to us to end, and we finish the step first."""

    tries: list[str] = []

    class KilledOnce(GitTrees):
        def record(self, place: TreePlace, name: str, known: Tree | None) -> Tree | None:
            tries.append(name)
            deadly.dies(3 if len(tries) == 1 else 0)
            return super().record(place, name, known)

    assert await with_git(world, tmp_path, KilledOnce(deadly.environment)) == (1, "completed", "")
    assert tries == ["a#1", "a#1"]


@pytest.mark.parametrize("tries", [1, 2])
async def test_a_git_that_is_killed_again_and_again_fails_its_step_like_a_tool_that_is(
    world: World, tmp_path: Path, tries: int
) -> None:
    """It is tried again as far as the pipeline allows, and no further."""

    class AlwaysKilled(GitTrees):
        def record(self, place: TreePlace, name: str, known: Tree | None) -> Tree | None:
            raise GitKilled("git write-tree was ended by signal 9.")

    retries = f", max_retries={tries - 1}"
    made, status, why = await with_git(world, tmp_path, AlwaysKilled(ENVIRONMENT), retries)
    assert (made, status) == (tries, "failed")
    assert "ended by signal 9" in why


# -- robbed --------------------------------------------------------------------------------------------


def robbed() -> None:
    raise LeaseLost("run", 7)


def state(desk: Desk) -> tuple[str, str, list[str]]:
    files = sorted(path.name for path in desk.directory.iterdir())
    return (
        desk.repository.git("rev-parse", "HEAD", at=desk.directory),
        desk.repository.git("status", "-s", at=desk.directory),
        files,
    )


def test_who_was_robbed_neither_merges_nor_removes(desk: Desk) -> None:
    left = desk.branch("left", desk.start)
    Path(left.directory, "new").write_text("from the left\n")
    work = [("left", desk.record(left, "left#1", desk.start))]
    before = state(desk)
    with pytest.raises(LeaseLost):
        desk.trees.merge(desk.place, desk.start, work, robbed)
    with pytest.raises(LeaseLost):
        desk.trees.remove(left, desk.start, robbed)
    assert state(desk) == before
    assert Path(left.directory, "new").exists()


def test_a_branch_that_somebody_moved_meanwhile_is_not_moved_back(desk: Desk) -> None:
    """What is taken over is taken over to where the branch was seen, or not at all."""
    left = desk.branch("left", desk.start)
    Path(left.directory, "new").write_text("from the left\n")
    desk.repository.git("add", "-A", at=left.directory)
    desk.repository.git("commit", "-q", "-m", "left", at=left.directory)
    work = [("left", desk.record(left, "left#1", desk.start))]

    def moving() -> None:
        desk.repository.git("commit", "-q", "--allow-empty", "-m", "theirs", at=desk.directory)

    with pytest.raises(WorkspaceFailed, match="update-ref"):
        desk.trees.merge(desk.place, desk.start, work, moving)
    assert desk.repository.git("log", "-1", "--format=%s", at=desk.directory) == "theirs"


FAN = """digraph fan {{
  graph [workspace="{repository}"]
  start [shape=Mdiamond]; exit [shape=Msquare]; fan [shape=component]; join [shape=tripleoctagon]
  a [type=work]; b [type=work]
  start -> fan; fan -> a -> join; fan -> b -> join -> exit
}}"""


class Robbed(Around[Leases]):
    """The store of a holder whose run somebody took over while it was frozen."""

    is_robbed = False

    async def renew(self, leases: Sequence[Lease]) -> dict[str, int]:
        return {} if self.is_robbed else dict(await self.part.renew(leases))


async def test_a_holder_that_was_frozen_asks_for_its_lease_right_before_it_merges(
    world: World, tmp_path: Path
) -> None:
    """Between its last heartbeat and the merge any time may have gone by."""
    repository = Repository.make(tmp_path / "repo")

    class Waking(GitTrees):
        def merge(
            self, place: TreePlace, fork: Tree, branches: Sequence[tuple[str, Tree]], check: Check = unchecked
        ) -> Merged:
            store.is_robbed = True
            return super().merge(place, fork, branches, check)

    process = await world.process(
        {"a": [writing], "b": [writing]},
        wrap=partial(FaultyStore, leases=Robbed),
        files=lambda store: RunFiles(str(tmp_path / "runs"), store.identity, warn=pytest.fail),
        trees=Waking(ENVIRONMENT),
    )
    store = process.store.leases
    assert isinstance(store, Robbed)
    with pytest.raises(LeaseLost):
        await process.start(FAN.format(repository=repository.path))
    tree = tmp_path / "runs/run/workspace"
    assert sorted(path.name for path in tree.iterdir()) == [".git", "story"]
    assert (await process.load()).run.status is RunStatus.RUNNING
