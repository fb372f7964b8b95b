"""The command line, as a real process on real databases: status, resume and replay of sessions."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell, pipeline


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """A shell at a new database of each kind."""
    db = (
        str(tmp_path / "onward.db")
        if request.param == "sqlite"
        else request.getfixturevalue("postgres_emptied_url")
    )
    shell = Shell(tmp_path, db)
    yield shell
    shell.close()


def test_cli_status(shell: Shell) -> None:
    """S3-1, S3-12: runs are listed with id, pipeline and status, for people and for programs."""
    shell.write("one.dot", pipeline(("a", "true"), name="one"))
    shell.write("two.dot", pipeline(("a", "exit 3"), ("b", "true"), name="two"))
    assert shell.inside("run", "one.dot", "--run-id", "first").code == 0
    assert shell.inside("run", "two.dot", "--run-id", "second").code == 1

    listed = shell("status")
    assert listed.code == 0
    heading, *rows = [line.split() for line in listed.out.splitlines()]
    assert heading == ["RUN", "PIPELINE", "STATUS", "STEPS", "NEXT", "CHANGED"]
    assert [row[1:5] for row in rows] == [
        ["two", "failed", "(step_failed)", "1"],
        ["one", "completed", "3", "-"],
    ]

    second, first = shell.inside("status", "--json").json
    assert (first["id"], first["pipeline"], first["status"]) == ("first", "one", "completed")
    assert first["completed"] == ["start#1", "a#1", "exit#1"]
    assert (second["id"], second["status"], second["reason"]) == ("second", "failed", "step_failed")
    assert second["recoverable"]
    assert second["next"] == "a"
    assert second["completed"] == ["start#1"]
    assert rows[0][0] == "second"
    assert rows[1][0] == "first"

    one = shell.inside("status", second["display_id"])
    assert one.code == 0
    assert "failed (step_failed): step a#1: exit code 3" in one.out
    assert "onward resume second" in one.out


def test_cli_resume(shell: Shell) -> None:
    """S3-1, S3-12: a paused run continues after its last finished step and exits 0; no step runs again."""
    latch = shell.latch("latch")
    shell.write(
        "work.dot", pipeline(("a", shell.noting()), ("b", shell.noting(latch.command)), ("c", shell.noting()))
    )
    running = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    running.signal(signal.SIGINT)
    running.wait_for("stopping after the current step")
    latch.release()
    stopped = running.end()
    assert stopped.code == 75
    assert shell.read("work")["status"] == "paused"

    resumed = shell("resume", "work")
    assert resumed.code == 0, resumed.err
    assert "completed" in resumed.out
    assert shell.ledger == ["a#1", "b#1", "c#1"]
    assert shell.read("work")["completed"] == ["start#1", "a#1", "b#1", "c#1", "exit#1"]


def test_cli_resume_invalid(shell: Shell) -> None:
    """S3-12: what cannot be resumed is refused with a sentence that says why; nothing changes."""
    shell.write("work.dot", pipeline(("a", "true")))
    assert shell.inside("run", "work.dot", "--run-id", "work").code == 0
    before = shell.log("work")

    unknown = shell("resume", "nobody")
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err == "onward: no run 'nobody' in this database; `onward status` lists the runs.\n"

    finished = shell.inside("resume", "work", "--json")
    assert finished.code == 1
    assert finished.error["code"] == "invalid_state"
    assert "is completed and cannot be resumed" in finished.err
    assert shell.log("work") == before


def test_cli_replay(shell: Shell) -> None:
    """S3-1: a checkpoint is forked and executed with changed context; the original stays as it is."""
    shell.write("work.dot", pipeline(("a", shell.noting("printf one")), ("b", shell.noting("printf two"))))
    assert shell.inside("run", "work.dot", "--run-id", "work", "--set", "tone=plain").code == 0
    before = shell.log("work")
    checkpoint = next(
        c["seq"] for c in shell.inside("checkpoints", "work", "--json").json if c["current_node"] == "a"
    )

    replayed = shell(
        "replay", "work", "--checkpoint", str(checkpoint), "--set", "tone=formal", "--run-id", "fork"
    )
    assert replayed.code == 0, replayed.err
    fork = shell.read("fork")
    assert fork["status"] == "completed"
    assert fork["context"]["tone"] == "formal"
    assert fork["parent"] == {"run": "work", "seq": checkpoint}
    assert shell.ledger == ["a#1", "b#1", "b#1"]
    assert shell.log("work") == before
    assert [f["id"] for f in shell.read("work")["forks"]] == ["fork"]
