"""Two databases used from one directory: what is one's is never touched by the other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.model.ids import Identity
from tests.cli.shell import GATE, Shell, pipeline
from tests.store.test_migrations import WITHOUT_DUE, Database
from tests.workspace.repository import Repository

STORE = "mkdir -p $ONWARD_STEP_DIR/artifacts; echo kept > $ONWARD_STEP_DIR/artifacts/note"


class Neighbours:
    """Two shells in one directory whose databases share `.onward/runs`."""

    def __init__(self, directory: Path) -> None:
        self.here = Shell(directory, str(directory / ".onward/onward.db"))
        self.there = Shell(directory, str(directory / ".onward/other.db"))
        self.runs = directory / ".onward" / "runs"

    def copy(self) -> None:
        """Every run of the one, in the other too."""
        file = str(self.here.directory / "all.jsonl")
        assert self.here.inside("export", "--all", "--out", file).code == 0
        assert self.there.inside("import", file).code == 0

    def files(self, name: str = "run") -> dict[str, bytes]:
        """Everything in a run's directory, by its path."""
        root = self.runs / name
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def names(self) -> list[str]:
        return sorted(path.name for path in self.runs.iterdir())


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Neighbours]:
    two = Neighbours(tmp_path)
    yield two
    two.here.close()
    two.there.close()


def waiting(shell: Shell, run_id: str = "run", more: tuple[str, ...] = ()) -> None:
    """A run with an artifact and receipts that waits at a gate."""
    before = f'start -> store -> ask\n  store [shape=parallelogram, tool_command="{STORE}"]'
    shell.write("gate.dot", GATE.replace("start -> ask", before))
    assert shell.inside("run", "gate.dot", "--run-id", run_id, "--answers", "wait", *more).code == 75


def test_collecting_a_copy_takes_nothing_of_the_original(two: Neighbours) -> None:
    two.here.write("line.dot", pipeline(("store", STORE)))
    assert two.here.inside("run", "line.dot", "--run-id", "run").code == 0
    two.copy()
    before = two.files()
    gone = two.there.inside("gc", "--keep", "0", "--json").json
    assert (gone["runs"], gone["directories"]) == (["run"], 0)
    assert two.files() == before
    assert two.here.inside("gc", "--keep", "0", "--json").json["directories"] == 1
    assert two.names() == []


def test_a_copy_that_goes_on_has_a_directory_of_its_own(two: Neighbours) -> None:
    waiting(two.here)
    two.copy()
    before = two.files()
    assert two.there.inside("answer", "run", "No").code == 0
    assert two.files() == before
    (own,) = (name for name in two.names() if name != "run")
    assert own.startswith("run.of-")
    assert json.loads(two.files(own)["manifest.json"])["database"].endswith("/other.db")
    assert two.there.inside("receipts", "run", "--json").json["directory"].startswith(str(two.runs / own))
    assert two.files() == before
    assert two.there.inside("gc", "--keep", "0", "--json").json["directories"] == 1
    assert two.names() == ["run"]
    assert two.files() == before
    assert two.here.inside("answer", "run", "No").code == 0
    assert two.names() == ["run"]


def test_writing_the_files_of_a_copy_overwrites_nothing(two: Neighbours) -> None:
    waiting(two.here)
    two.copy()
    assert two.here.inside("answer", "run", "No").code == 0
    before = two.files()
    for command in ("files", "receipts"):
        assert two.there.inside(command, "run").code == 0
    assert two.files() == before


def test_cancelling_a_copy_leaves_the_work_tree_of_the_original(two: Neighbours) -> None:
    Repository.make(two.here.directory / "repo")
    waiting(two.here, more=("--workspace", "repo"))
    tree = two.runs / "run" / "workspace"
    (tree / "note").write_text("of the original")
    two.copy()
    assert two.there.inside("cancel", "run").code == 0
    assert two.there.inside("gc", "--keep", "0").code == 0
    assert (tree / "note").read_text() == "of the original"
    assert two.here.inside("answer", "run", "No").code == 0


def test_a_run_of_the_same_id_moves_nothing_of_the_other(two: Neighbours) -> None:
    waiting(two.here)
    before = two.files()
    waiting(two.there)
    assert two.files() == before
    assert two.there.inside("cancel", "run").code == 0
    assert two.there.inside("gc", "--keep", "0").code == 0
    assert two.names() == ["run"]
    assert two.files() == before


def test_what_the_other_began_to_collect_is_left_to_it(two: Neighbours) -> None:
    waiting(two.here)
    waiting(two.there, "else")
    mark = Identity(json.loads(two.files()["manifest.json"])["database"]).short
    for note in (".collecting.1.run", f".collecting.{mark}.1.run"):
        (two.runs / note).write_text('["run"]')
    before = two.files()
    assert two.there.inside("gc", "--keep", "0").code == 0
    assert two.files() == before


def test_a_copy_of_the_file_beside_it_is_another_database(two: Neighbours) -> None:
    waiting(two.here)
    shutil.copy(two.here.db, two.there.db)  # nobody is at it
    before = two.files()
    assert two.there.inside("cancel", "run").code == 0
    assert two.there.inside("gc", "--keep", "0").code == 0
    assert two.files() == before


def grown_old(two: Neighbours) -> None:
    """As an Onward left it that knew of no identity."""
    manifest = two.runs / "run" / "manifest.json"
    said = json.loads(manifest.read_bytes())
    del said["database"]
    manifest.write_text(json.dumps(said))
    Database(two.here.db).undo(f"DROP TABLE identity; {WITHOUT_DUE}; DELETE FROM migration WHERE number >= 6")


def test_a_directory_from_before_there_were_marks_is_gone_on_with_and_collected(two: Neighbours) -> None:
    waiting(two.here)
    grown_old(two)
    assert two.here.inside("answer", "run", "No").code == 0
    assert two.names() == ["run"]
    assert "database" in json.loads(two.files()["manifest.json"])
    assert two.here.inside("gc", "--keep", "0", "--json").json["directories"] == 1


def test_a_directory_without_a_mark_is_collected_by_the_database_it_was_made_in_alone(
    two: Neighbours,
) -> None:
    waiting(two.here)
    grown_old(two)
    two.copy()
    before = two.files()
    for shell in (two.there, two.here):
        assert two.files() == before
        assert shell.inside("cancel", "run").code == 0
        assert shell.inside("gc", "--keep", "0").code == 0
    assert two.names() == []
