"""The disk is full, or the database goes away, while a tool of an agent is at work: judged by its ledger."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.testing.postgres import PostgresServer
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.cli.agents import with_model
from tests.cli.shell import Latch, Shell, wait_until
from tests.cli.test_agent_tools import wishes

WORK = """digraph work {
  start [shape=Mdiamond]; exit [shape=Msquare]
  a [prompt="Work", allowed_tools="shell"]
  start -> a -> exit
}"""
FREELY = "[tools.shell]\napproval = false\noutput_characters = 1000\n"


def paying(shell: Shell, command: str) -> ModelScript:
    """A model that wants one command, which writes into a ledger that it ran."""
    shell.write("onward.toml", FREELY)
    shell.write("work.dot", WORK)
    wanted = wishes(("shell", {"command": f"echo begun >> ledger; {command}; echo done >> ledger"}))
    return ModelScript(
        rules=(ScriptRule(contains="Work", reply=wanted.rules[0].reply),), default=ScriptedReply(text="Done.")
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that holds a megabyte; only root can make one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root can make a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.slow
def test_a_disk_that_is_full_when_a_whole_answer_comes_stops_the_run_and_nothing_is_repeated(
    tmp_path: Path, small_disk: Path
) -> None:
    """The command printed more than fits. With space again, a person says that it was done."""
    shell = Shell(tmp_path, str(small_disk / "onward.db"))
    flood = "od -An -tx1 -v /dev/urandom | head -c 900000"  # nothing that can be compressed to little
    with with_model(shell, paying(shell, flood)):
        stopped = shell("run", "work.dot", "--run-id", "it")
        assert stopped.code == 1, stopped.out + stopped.err
        assert "no space left" in stopped.err
        assert "Traceback" not in stopped.err
        assert shell.ledger == ["begun", "done"]
        subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
        refused = shell("resume", "it")
        assert refused.code == 1
        assert "(in doubt: m1.t1: shell " in refused.err
        done = shell("resume", "it", "--continue", "--answer", "m1.t1=it is done")
        assert done.code == 0, done.out + done.err
    assert shell.ledger == ["begun", "done"]
    assert shell("verify", "it").code == 0


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer(fsync=True) as server:
        yield server


@pytest.mark.postgres
@pytest.mark.slow
def test_a_database_that_is_restarted_while_a_tool_works_costs_nothing(
    tmp_path: Path, server: PostgresServer
) -> None:
    shell = Shell(tmp_path, server.create_database())
    latch = Latch(tmp_path / "latch")
    try:
        with with_model(shell, paying(shell, latch.command)):
            running = shell.start("run", "work.dot", "--run-id", "it")
            latch.wait_reached()
            server.restart()
            latch.release()
            ended = running.end()
    finally:
        shell.close()
    assert ended.code == 0, ended.out + ended.err
    assert shell.ledger == ["begun", "done"]
    assert shell.inside("verify", "it").code == 0


@pytest.mark.postgres
@pytest.mark.slow
def test_a_database_that_is_gone_when_a_tool_answers_leaves_its_use_in_doubt(
    tmp_path: Path, server: PostgresServer
) -> None:
    """The answer could not be stored: it is not guessed, and the tool not used again."""
    shell = Shell(tmp_path, server.create_database())
    latch = Latch(tmp_path / "latch")
    try:
        with with_model(shell, paying(shell, latch.command)):
            running = shell.start("run", "work.dot", "--run-id", "it")
            latch.wait_reached()
            os.kill(server.pid, signal.SIGQUIT)
            server.wait()
            latch.release()
            wait_until(lambda: shell.ledger == ["begun", "done"], "the end of the command")
            ended = running.end()
            assert ended.code == 1, ended.out + ended.err
            assert "Traceback" not in ended.err
            server.restart()
            refused = shell.inside("resume", "it")
            assert refused.code == 1
            assert "(in doubt: m1.t1: shell " in refused.err
            done = shell.inside("resume", "it", "--continue", "--answer", "m1.t1=it is done")
            assert done.code == 0, done.out + done.err
    finally:
        shell.close()
    assert shell.ledger == ["begun", "done"]
    assert shell.inside("verify", "it").code == 0
