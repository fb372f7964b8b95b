"""`onward gc` and the work trees of runs: work that is nowhere else is never thrown away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workspace.test_runs import Desk

COMMIT = "git -c user.name=A -c user.email=a@example.org commit -qam work"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.close()


def kept(desk: Desk, command: str) -> None:
    """A run that is over, with its work tree still there."""
    line = desk.line(("work", command))
    done = desk.inside("run", line, "--run-id", "run", "--keep-workspace")
    assert done.code == 0, done.err
    assert desk.tree().is_dir()


def test_a_work_tree_with_changes_keeps_its_run_until_they_are_somewhere_else(desk: Desk) -> None:
    kept(desk, "echo new > note")
    for _ in range(2):
        done = desk.inside("gc", "--keep", "0", "--json")
        assert (done.json["runs"], done.json["directories"]) == ([], 0)
        (stays,) = done.json["unmerged"]
        assert stays == {
            "run": "run",
            "directory": str(desk.tree()),
            "why": "has uncommitted changes",
        }
        assert f"its work tree {desk.tree()} has uncommitted changes" in done.err
        assert (desk.tree() / "note").read_text() == "new\n"
        assert desk.inside("verify").code == 0
    desk.repository.git("add", "note", at=desk.tree())
    desk.repository.git("commit", "-qm", "work", at=desk.tree())
    assert desk.inside("gc", "--keep", "0", "--dry-run", "--json").json["unmerged"][0]["why"] == (
        "has commits that are not merged"
    )
    desk.repository.git("merge", "-q", "onward/run")
    assert desk.inside("gc", "--keep", "0", "--json").json["runs"] == ["run"]
    assert not desk.tree().parent.exists()
    assert desk.repository.trees == [str(desk.repository.path)]
    assert (desk.repository.path / "note").read_text() == "new\n"


def test_commits_that_are_on_no_other_branch_keep_the_run(desk: Desk) -> None:
    kept(desk, f"echo more > story; {COMMIT}")
    assert desk.inside("gc", "--keep", "0", "--json").json["unmerged"][0]["run"] == "run"
    desk.repository.git("branch", "mine", "onward/run")
    assert desk.inside("gc", "--keep", "0", "--json").json["runs"] == ["run"]
    assert desk.repository.read("story", "mine") == "more"


def test_a_work_tree_without_work_of_its_own_goes_with_its_run_and_the_repository_forgets_it(
    desk: Desk,
) -> None:
    kept(desk, "true")
    done = desk.inside("gc", "--keep", "0", "--json").json
    assert (done["runs"], done["directories"], done["unmerged"]) == (["run"], 1, [])
    assert not desk.tree().parent.exists()
    assert desk.repository.trees == [str(desk.repository.path)]


def test_a_work_tree_that_nobody_can_look_at_stays(desk: Desk) -> None:
    kept(desk, "true")
    desk.repository.path.rename(desk.directory / "elsewhere")
    (stays,) = desk.inside("gc", "--keep", "0", "--json").json["unmerged"]
    assert stays["why"].startswith("cannot be checked (git status in ")
    assert desk.tree().is_dir()


def test_a_repository_that_a_step_made_of_its_work_tree_stays(desk: Desk) -> None:
    kept(desk, "true")
    (desk.tree() / ".git").unlink()
    desk.repository.git("init", "-q", at=desk.tree())
    (stays,) = desk.inside("gc", "--keep", "0", "--json").json["unmerged"]
    assert stays["why"] == "is a separate repository"


def test_with_keep_files_only_the_database_forgets(desk: Desk) -> None:
    kept(desk, "echo new > note")
    done = desk.inside("gc", "--keep", "0", "--keep-files", "--json").json
    assert (done["runs"], done["directories"], done["unmerged"]) == (["run"], 0, [])
    assert (desk.tree() / "note").read_text() == "new\n"
    assert list((desk.tree().parent / "line/receipts").glob("*.json"))
    assert desk.inside("show", "run").code == 1


def test_without_keep_files_receipts_and_handoffs_go_with_their_run(desk: Desk) -> None:
    line = desk.line(("work", "true"), more="")
    assert desk.inside("run", line, "--run-id", "run").code == 0
    receipts = desk.tree().parent / "line/receipts"
    assert list(receipts.glob("*.json"))
    assert desk.inside("gc", "--keep", "0", "--json").json["directories"] == 1
    assert not receipts.exists()


def test_work_in_one_run_keeps_no_other(desk: Desk) -> None:
    kept(desk, "echo new > note")
    other = desk.write(
        "other.dot", "digraph other { start [shape=Mdiamond] exit [shape=Msquare] start -> exit }"
    )
    assert desk.inside("run", other, "--run-id", "other").code == 0
    assert desk.inside("gc", "--keep", "0", "--json").json["runs"] == ["other"]
