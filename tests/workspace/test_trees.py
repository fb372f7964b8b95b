"""Work trees made with git: made once, recorded without a trace, restored without a loss, merged in order."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from onward.errors import InvalidInput, WorkspaceFailed
from onward.model.events import Tree
from onward.workspace.git import Git, locked
from onward.workspace.port import TreePlace
from onward.workspace.trees import GitTrees
from tests.workspace.repository import Repository

ENVIRONMENT = {"PATH": os.environ["PATH"]}


class Desk:
    """A repository, the work tree of one run, and its state at the beginning."""

    def __init__(self, tmp_path: Path) -> None:
        self.repository = Repository.make(tmp_path / "repo")
        self.trees = GitTrees(ENVIRONMENT)
        top, found = self.trees.find(str(self.repository.path))
        self.start = replace_branch(found, "onward/run")
        self.place = TreePlace("run", 7, top, str(tmp_path / "runs/run/workspace"), "onward/run")
        self.trees.make(self.place, self.start)

    @property
    def directory(self) -> Path:
        return Path(self.place.directory)

    def branch(self, name: str, at: Tree) -> TreePlace:
        place = replace(self.place, directory=f"{self.place.directory}-{name}", branch="")
        self.trees.make(place, at)
        return place

    def record(self, place: TreePlace, name: str, known: Tree | None) -> Tree:
        found = self.trees.record(place, name, known)
        assert found is not None
        return found


def replace_branch(tree: Tree, branch: str) -> Tree:
    return Tree(head=tree.head, commit=tree.commit, branch=branch)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_work_tree_is_made_once_and_then_used_again(desk: Desk) -> None:
    """O9."""
    (desk.directory / "note").write_text("mine")
    desk.trees.make(desk.place, desk.start)
    assert (desk.directory / "note").read_text() == "mine"
    assert desk.repository.git("symbolic-ref", "--short", "HEAD", at=desk.directory) == "onward/run"
    assert desk.repository.git("symbolic-ref", "--short", "HEAD") == "main"


def test_a_work_tree_that_was_not_whole_is_made_anew(desk: Desk) -> None:
    """O9."""
    desk.repository.git("update-ref", "-d", "refs/onward/run/made-workspace-7")
    (desk.directory / "story").unlink()
    desk.trees.make(desk.place, desk.start)
    assert (desk.directory / "story").read_text() == "once\n"


def test_a_work_tree_that_is_gone_comes_back_as_it_was_recorded(desk: Desk) -> None:
    (desk.directory / "note").write_text("recorded")
    (desk.directory / "story").unlink()
    known = desk.record(desk.place, "write#1", desk.start)
    shutil.rmtree(desk.directory)
    desk.trees.make(desk.place, known)
    assert sorted(path.name for path in desk.directory.iterdir()) == [".git", "note"]


def test_commits_behind_the_recorded_state_are_kept_when_the_tree_is_made_again(desk: Desk) -> None:
    desk.repository.git("commit", "-q", "--allow-empty", "-m", "late", at=desk.directory)
    late = desk.repository.git("rev-parse", "HEAD", at=desk.directory)
    shutil.rmtree(desk.directory)
    desk.trees.make(desk.place, desk.start)
    assert desk.repository.git("rev-parse", "onward/run") == desk.start.head
    assert desk.repository.git("rev-parse", f"refs/onward/run/saved-{late[:12]}") == late


def test_a_branch_of_another_run_of_the_same_name_is_never_used(desk: Desk, tmp_path: Path) -> None:
    other = replace(desk.place, stamp=8, directory=str(tmp_path / "elsewhere"))
    with pytest.raises(WorkspaceFailed, match="belongs to another run with this id"):
        desk.trees.make(other, desk.start)


def test_recording_touches_neither_the_index_nor_head(desk: Desk) -> None:
    (desk.directory / "staged").write_text("s")
    desk.repository.git("add", "staged", at=desk.directory)
    (desk.directory / "story").write_text("twice\n")
    before = desk.repository.git("status", "--porcelain", at=desk.directory)
    known = desk.record(desk.place, "fan#1.left/write#1", desk.start)
    assert desk.repository.git("status", "--porcelain", at=desk.directory) == before
    assert known.head == desk.start.head
    assert known.ref == f"refs/onward/run/fan-1-left-write-1-{known.commit[:12]}"
    assert desk.repository.read("story", known.ref) == "twice"
    assert desk.repository.read("staged", known.ref) == "s"


def test_what_has_not_changed_is_not_recorded_again(desk: Desk) -> None:
    assert desk.trees.record(desk.place, "look#1", desk.start) is None
    (desk.directory / "note").write_text("1")
    known = desk.record(desk.place, "write#1", desk.start)
    assert desk.trees.record(desk.place, "look#2", known) is None


def test_ignored_files_and_directories_of_our_own_are_nobodys_work(tmp_path: Path) -> None:
    repository = Repository.make(tmp_path / "repo", **{".gitignore": "*.log\n"})
    trees = GitTrees(ENVIRONMENT, outside=(str(repository.path / ".onward"),))
    top, start = trees.find(str(repository.path))
    place = TreePlace("run", 7, top, top)
    (repository.path / "x.log").write_text("noise")
    (repository.path / ".onward").mkdir()
    (repository.path / ".onward/onward.db").write_text("runs")
    assert trees.record(place, "look#1", start) is None


def test_a_restore_saves_what_it_replaces(desk: Desk) -> None:
    (desk.directory / "note").write_text("recorded")
    known = desk.record(desk.place, "write#1", desk.start)
    (desk.directory / "note").write_text("half done")
    (desk.directory / "extra").write_text("more")
    desk.repository.git("commit", "-q", "--allow-empty", "-m", "late", at=desk.directory)
    saved = desk.trees.restore(desk.place, known)
    assert (desk.directory / "note").read_text() == "recorded"
    assert not (desk.directory / "extra").exists()
    assert desk.repository.git("rev-parse", "HEAD", at=desk.directory) == known.head
    assert desk.repository.read("note", saved) == "half done"
    assert desk.repository.git("log", "-1", "--format=%s", f"{saved}~1") == "late"
    assert desk.trees.restore(desk.place, known) == ""


def test_a_state_that_is_gone_is_never_restored_to_something_else(desk: Desk) -> None:
    lost = Tree(head=desk.start.head, commit="0" * 39 + "1")
    (desk.directory / "note").write_text("mine")
    with pytest.raises(WorkspaceFailed, match="is no longer in the repository"):
        desk.trees.restore(desk.place, lost)
    assert (desk.directory / "note").read_text() == "mine"


def test_a_tree_without_its_git_file_is_not_taken_for_the_repository_around_it(tmp_path: Path) -> None:
    repository = Repository.make(tmp_path / "repo")
    trees = GitTrees(ENVIRONMENT)
    top, start = trees.find(str(repository.path))
    place = TreePlace("run", 7, top, str(repository.path / "runs/workspace"), "onward/run")
    trees.make(place, start)
    (repository.path / "runs/workspace/.git").unlink()
    with pytest.raises(WorkspaceFailed, match="not a git repository"):
        trees.record(place, "write#1", start)


def test_branches_are_merged_in_their_order(desk: Desk) -> None:
    (desk.directory / "note").write_text("before\n")
    fork = desk.record(desk.place, "write#1", desk.start)
    left, right = desk.branch("left", fork), desk.branch("right", fork)
    Path(left.directory, "note").write_text("left\n")
    Path(right.directory, "story").write_text("right\n")
    Path(right.directory, "new").write_text("new")
    desk.repository.git("add", "new", at=right.directory)
    desk.repository.git("commit", "-q", "-m", "new", at=right.directory)
    work = [(p.directory[-4:], desk.record(p, "b", fork)) for p in (left, right)]
    for _ in range(2):  # a merge that was cut off before it was recorded is made again
        assert desk.trees.merge(desk.place, fork, work).conflicts == ()
        assert (desk.directory / "note").read_text() == "left\n"
        assert (desk.directory / "story").read_text() == "right\n"
        assert desk.repository.git("log", "-1", "--format=%s", at=desk.directory) == "new"
        assert desk.repository.git("status", "--porcelain", at=desk.directory) == "M story\n?? note"


def test_two_branches_that_commit_become_one_history(desk: Desk) -> None:
    work = []
    for name in ("left", "right"):
        place = desk.branch(name, desk.start)
        Path(place.directory, name).write_text(name)
        desk.repository.git("add", "-A", at=place.directory)
        desk.repository.git("commit", "-q", "-m", name, at=place.directory)
        work.append((name, desk.record(place, name, desk.start)))
    assert desk.trees.merge(desk.place, desk.start, work).conflicts == ()
    assert desk.repository.git("status", "--porcelain", at=desk.directory) == ""
    parents = desk.repository.git("log", "-1", "--format=%P", at=desk.directory)
    assert parents.split() == [tree.head for _, tree in work]


def test_a_conflict_leaves_the_tree_at_the_last_clean_merge(desk: Desk) -> None:
    work = []
    for name in ("first", "second", "third"):
        place = desk.branch(name, desk.start)
        Path(place.directory, "other" if name == "third" else "story").write_text(name)
        work.append((name, desk.record(place, name, desk.start)))
    (conflict,) = desk.trees.merge(desk.place, desk.start, work).conflicts
    assert (conflict.branch, conflict.files) == ("second", ("story",))
    assert (desk.directory / "story").read_text() == "first"
    assert (desk.directory / "other").read_text() == "third"


def test_removing_saves_what_nobody_recorded(desk: Desk) -> None:
    assert Desk.record(desk, desk.place, "x", None).head == desk.start.head
    (desk.directory / "note").write_text("unrecorded")
    saved = desk.trees.remove(desk.place, desk.start)
    assert not desk.directory.exists()
    assert desk.repository.read("note", saved) == "unrecorded"
    assert desk.repository.trees == [str(desk.repository.path)]
    assert desk.trees.remove(desk.place, desk.start) == ""


def test_hooks_of_the_repository_are_not_run(desk: Desk, tmp_path: Path) -> None:
    hook = desk.repository.path / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    desk.branch("left", desk.start)
    assert not (tmp_path / "ran").exists()


def test_what_is_no_usable_repository_is_refused_with_a_sentence(tmp_path: Path) -> None:
    trees = GitTrees({**ENVIRONMENT, "GIT_CEILING_DIRECTORIES": str(tmp_path)})
    for name in ("plain", "bare", "empty"):
        (tmp_path / name).mkdir()
    tool = Repository(tmp_path)
    tool.git("init", "-q", "--bare", str(tmp_path / "bare"))
    tool.git("init", "-q", str(tmp_path / "empty"))
    for name, why in {
        "missing": "not a directory",
        "plain": "not in a git repository",
        "bare": "a bare repository",
        "empty": "without a commit",
    }.items():
        with pytest.raises(InvalidInput, match=why):
            trees.find(str(tmp_path / name))


def test_a_git_that_hangs_is_ended(desk: Desk) -> None:
    git = Git(desk.place.repository, ENVIRONMENT, timeout_s=0.2)
    with pytest.raises(WorkspaceFailed, match=r"did not end within 0\.2 s"):
        git("-c", "alias.hang=!exec sleep 60", "hang")


def test_a_ctrl_c_is_meant_for_us_and_not_for_git(desk: Desk) -> None:
    group = Git(desk.place.repository, ENVIRONMENT)("-c", "alias.group=!ps -o pgid= -p $$", "group")
    assert int(group) != os.getpgrp()


def test_somebody_else_at_work_for_the_run_is_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "locks/run.lock")
    with (
        locked(path),
        pytest.raises(WorkspaceFailed, match="another git process is still working"),
        locked(path, 0.05),
    ):
        raise AssertionError("two at once")
    with locked(path, 0.05):
        pass


def test_what_changed_since_a_state_is_named_committed_or_not(desk: Desk) -> None:
    assert desk.trees.changed(desk.place, desk.start) == []
    (desk.directory / "new file").write_text("x")
    (desk.directory / "story").unlink()
    assert desk.trees.changed(desk.place, desk.start) == ["new file", "story"]
    desk.repository.git("add", "-A", at=desk.directory)
    desk.repository.git("commit", "-q", "-m", "work", at=desk.directory)
    assert desk.trees.changed(desk.place, desk.start) == [".git/HEAD", "new file", "story"]
    assert desk.trees.changed(desk.place, desk.record(desk.place, "step", desk.start)) == []


def test_a_work_tree_that_was_never_whole_has_no_changes(desk: Desk) -> None:
    """Whoever dies while it is made has not begun its step."""
    unmade = replace(desk.place, directory=f"{desk.place.directory}-unmade", branch="")
    assert desk.trees.changed(unmade, desk.start) == ()


def test_changes_against_a_state_that_is_lost_are_an_error(desk: Desk) -> None:
    lost = Tree(head=desk.start.head, commit="0" * 40)
    with pytest.raises(WorkspaceFailed, match="no longer in the repository"):
        desk.trees.changed(desk.place, lost)
