"""`onward verify` beside the files of a run: they tell of steps that were acknowledged."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.cli.shell import Shell, pipeline

SIDES = ("", "-wal")


def finished_with_a_copy_of_an_earlier_database(shell: Shell) -> Path:
    """A run of four steps, and the database as it was after the first two of them."""
    copy = shell.directory / "copy"
    copy.mkdir()
    save = f"cp {shell.db} {shell.db}-wal {copy}"
    shell.write("line.dot", pipeline(("first", "true"), ("save", save), ("last", "true")))
    assert shell.inside("run", "line.dot", "--run-id", "line").code == 0
    assert shell.inside("verify").out.endswith("0 problems\n")
    return copy


def put_back(shell: Shell, copy: Path) -> None:
    for side in SIDES:
        shutil.copy(copy / f"{os.path.basename(shell.db)}{side}", f"{shell.db}{side}")


def test_a_log_that_ends_before_what_was_acknowledged_is_a_problem(shell: Shell) -> None:
    """I2."""
    put_back(shell, finished_with_a_copy_of_an_earlier_database(shell))
    done = shell.inside("verify", "line", "--json")
    assert (done.code, done.json["problems"]) == (1, 1)
    (problem,) = done.json["runs"][0]["problems"]
    assert problem.startswith("the log has lost acknowledged steps: ")
    assert problem.endswith("checkpoint.json lists 5 finished steps, the last 'exit', and the log has 2")


def test_a_log_that_has_more_than_its_directory_is_sound(shell: Shell) -> None:
    """I2."""
    shell.write("line.dot", pipeline(("a", "true"), ("b", "test -e there")))
    assert shell.inside("run", "line.dot", "--run-id", "line").code == 1
    shell.write("there", "")
    assert shell.inside("resume", "line", "--files", "off").code == 0
    assert shell.inside("verify").out.endswith("0 problems\n")


def test_the_directory_of_an_earlier_run_of_the_same_id_says_nothing(shell: Shell) -> None:
    """I2."""
    shell.write("long.dot", pipeline(("a", "true"), ("b", "true")))
    shell.write("short.dot", pipeline(("a", "true")))
    assert shell.inside("run", "long.dot", "--run-id", "one").code == 0
    assert shell.inside("gc", "--keep", "0", "--keep-files").code == 0
    assert shell.inside("run", "short.dot", "--run-id", "one", "--files", "off").code == 0
    assert shell.inside("verify").out.endswith("0 problems\n")
