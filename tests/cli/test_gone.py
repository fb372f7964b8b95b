"""A database that is deleted under a process: it stops and says why, before it acknowledges more."""

from __future__ import annotations

import os

import pytest

from tests.cli.shell import Shell, pipeline

GONE = "was deleted or replaced while it was in use"


def delete(shell: Shell) -> None:
    for side in ("", "-wal", "-shm"):
        os.unlink(f"{shell.db}{side}")


def test_an_idle_worker_stops_and_says_why(shell: Shell) -> None:
    worker = shell.start("worker")
    worker.wait_for("up to 4 runs at once")
    delete(shell)
    ended = worker.end()
    assert ended.code == 1
    assert ended.err.count(GONE) == 1
    assert not os.path.exists(shell.db)


@pytest.mark.parametrize("command", [("worker",), ("run", "line.dot")])
def test_whoever_is_inside_a_step_stops_it_and_says_why(shell: Shell, command: tuple[str, ...]) -> None:
    latch = shell.latch("latch")
    shell.write("line.dot", pipeline(("hold", latch.command), ("then", "touch reached")))
    if command == ("worker",):
        assert shell.inside("submit", "line.dot").code == 0
    process = shell.start(*command)
    latch.wait_reached()
    delete(shell)
    ended = process.end()
    assert ended.code == 1
    assert ended.err.count(GONE) == 1, ended.err
    assert not (shell.directory / "reached").exists()
