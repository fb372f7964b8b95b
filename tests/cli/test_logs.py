"""`onward logs`: what steps printed, from their files or from the log, also while they print it."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.cli.shell import Shell, pipeline, wait_until

RETRIED = "echo attempt $ONWARD_ATTEMPT; echo complaint >&2; exit 1"


def retried(shell: Shell) -> None:
    """A run whose step failed in two attempts."""
    shell.write("line.dot", pipeline(("test", RETRIED), more="  test [max_retries=1]\n"))
    assert shell.inside("run", "line.dot", "--run-id", "run").code == 1


def test_everything_that_was_printed_is_shown_under_its_step(any_shell: Shell) -> None:
    retried(any_shell)
    assert any_shell.inside("logs", "run").out == (
        "==> test#1, attempt 1: stdout <==\nattempt 1\n"
        "==> test#1, attempt 1: stderr <==\ncomplaint\n"
        "==> test#1, attempt 2: stdout <==\nattempt 2\n"
        "==> test#1, attempt 2: stderr <==\ncomplaint\n"
    )


def test_one_attempt_and_one_stream_are_printed_alone(shell: Shell) -> None:
    retried(shell)
    for step in ("test", "test#1"):
        assert shell.inside("logs", "run", step, "--attempt", "2", "--stdout").out == "attempt 2\n"
    assert shell.inside("logs", "run", "test", "--stderr").out == "complaint\ncomplaint\n"


def test_with_json_each_piece_says_where_it_is_from(shell: Shell) -> None:
    retried(shell)
    pieces = [json.loads(line) for line in shell.inside("logs", "run", "--json", "--stdout").out.splitlines()]
    assert pieces[1] == {
        "step": "test#1",
        "attempt": 2,
        "number": 1,
        "stream": "stdout",
        "text": "attempt 2\n",
        "source": "file",
    }


def test_without_the_files_the_log_has_the_last_lines(shell: Shell) -> None:
    """As on a machine that has only the database."""
    shell.write("line.dot", pipeline(("fine", "echo fine"), ("test", "seq 99; echo why >&2; exit 1")))
    shell.inside("run", "line.dot", "--run-id", "run")
    shutil.rmtree(shell.directory / "onward.db-runs")
    fine, found = shell.inside("logs", "run", "fine"), shell.inside("logs", "run", "test")
    assert fine.out == "fine\n"
    assert found.err == "==> test#1, attempt 1: last lines, from the log <==\n"
    assert found.out.splitlines()[-3:] == ["98", "99", "why"]
    assert shell.inside("logs", "run", "test", "--stderr").out == "why\n"


def test_a_link_in_the_way_is_not_followed(shell: Shell) -> None:
    secret = shell.write("secret", "do not print")
    command = f"ln -s {shell.directory / secret} $ONWARD_STEP_DIR/stdout.log; echo printed; exit 1"
    shell.write("line.dot", pipeline(("test", command)))
    shell.inside("run", "line.dot", "--run-id", "run")
    assert shell.inside("logs", "run", "test").out == "printed\n"
    assert "do not print" not in shell.inside("show", "run", "test").out


def test_a_fork_shows_what_the_steps_before_it_printed(shell: Shell) -> None:
    shell.write("line.dot", pipeline(("a", "echo from a"), ("b", "echo from b")))
    shell.inside("run", "line.dot", "--run-id", "run")
    seq = next(
        one["seq"] for one in shell.inside("checkpoints", "run", "--json").json if one["current_node"] == "a"
    )
    shell.inside("replay", "run", "--checkpoint", str(seq), "--run-id", "fork")
    assert shell.inside("logs", "fork", "a").out == "from a\n"
    assert shell.inside("logs", "fork", "b").out == "from b\n"


def test_every_visit_of_a_node_is_shown(shell: Shell) -> None:
    command = "echo $ONWARD_STEP; test $ONWARD_STEP = t#2"
    ends = "start [shape=Mdiamond]; exit [shape=Msquare]; start -> t"
    edges = 't -> t [condition="outcome=fail"]; t -> exit [condition="outcome=success"]'
    node = f't [shape=parallelogram, tool_command="{command}"]'
    shell.write("loop.dot", f"digraph g {{ {ends}; {node}; {edges} }}")
    shell.inside("run", "loop.dot", "--run-id", "run")
    assert shell.inside("logs", "run", "t", "--stdout").out == "t#1\nt#2\n"
    assert shell.inside("logs", "run", "t#2", "--stdout").out == "t#2\n"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("tset",), 1, "onward: this run has not started a step 'tset'; it has start#1, test#1.\n"),
        (("test", "--attempt", "3"), 2, "onward: there is no attempt 3 of test#1; the last is 2.\n"),
        (("start",), 0, "no output is stored here."),
    ],
)
def test_what_is_not_there_is_said(shell: Shell, words: tuple[str, ...], code: int, says: str) -> None:
    retried(shell)
    done = shell.inside("logs", "run", *words)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(says)


def test_following_shows_lines_as_they_come_and_ends_with_the_run(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("line.dot", pipeline(("test", f"echo early; {latch.command}; echo late")))
    running = shell.start("run", "line.dot", "--run-id", "run")
    latch.wait_reached()
    following = shell.start("logs", "run", "--follow")
    following.wait_for("early")
    latch.release()
    done = following.end()
    assert (done.code, done.out) == (0, "==> test#1, attempt 1: stdout <==\nearly\nlate\n")
    assert running.end().code == 0


def test_ctrl_c_ends_following(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("line.dot", pipeline(("test", f"echo early; {latch.command}")))
    running = shell.start("run", "line.dot", "--run-id", "run")
    latch.wait_reached()
    following = shell.start("logs", "run", "test", "-f")
    following.wait_for("early")
    following.signal(signal.SIGINT)
    assert following.end().code == 0
    latch.release()
    assert running.end().code == 0


@pytest.mark.crash
def test_what_a_killed_attempt_printed_is_kept_beside_that_of_its_next_try(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("line.dot", pipeline(("test", f"echo try; {latch.command}; echo done")))
    running = shell.start("run", "line.dot", "--run-id", "run")
    latch.wait_reached()
    printed = Path(shell.directory, "onward.db-runs", "run", "test", "1", "stdout.log")
    wait_until(lambda: printed.exists() and printed.read_text() == "try\n", str(printed))
    running.signal(signal.SIGKILL)
    running.end()
    resumed = shell.start("resume", "run")
    latch.wait_reached()
    latch.release()
    assert resumed.end().code == 0
    assert shell.inside("logs", "run").out == (
        "==> test#1, attempt 1: stdout <==\ntry\n==> test#1, attempt 1, try 2: stdout <==\ntry\ndone\n"
    )


def test_a_terminal_shows_the_escapes_of_a_command_and_obeys_none(shell: Shell) -> None:
    shell.write("print.py", "print('\\x1b[31mred\\x1b[0m \\x1b]0;owned\\x07 10%\\r20%')\n")
    shell.write("line.dot", pipeline(("test", "python3 print.py")))
    assert shell.inside("run", "line.dot", "--run-id", "run").code == 0
    terminal = shell.terminal("logs", "run", "test")
    assert terminal.end().code == 0
    assert "red \\x1b]0;owned\\x07 10%\r\n20%" in terminal.bytes.decode()
    assert b"\x1b" not in terminal.bytes
