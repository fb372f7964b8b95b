"""What people see, word for word; only times are masked."""

from __future__ import annotations

import re

from onward.model.ids import called
from tests.cli.shell import Shell, pipeline

NAME = called("golden")
SOURCE = """
digraph golden {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  fetch [shape=parallelogram, tool_command="printf '%s' 'forty two'"]
  flaky [shape=parallelogram, max_retries=1, tool_command="test $ONWARD_ATTEMPT -ge 2"]
  write [prompt="Write it down"]
  ask [shape=hexagon, label="Send it?"]
  start -> fetch -> flaky -> write -> ask
  ask -> exit [label="[Y] Yes"]
  ask -> write [label="[N] Again"]
}
"""


def masked(text: str) -> str:
    """The text with its times, paths and hashes taken out."""
    text = re.sub(r"\d+ ms|\d+(\.\d)? s\b( ago)?", "TIME", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "WHEN", text)
    text = re.sub(r"(?m)^  file     .*$", "  file     FILE (HASH)", text)
    text = re.sub(r"(?m)^  cwd      .*$", "  cwd      DIRECTORY", text)
    return re.sub(r" +\n", "\n", text)


def test_a_run_on_a_pipe(shell: Shell) -> None:
    shell.write("golden.dot", SOURCE)
    done = shell.inside("run", "golden.dot", "--run-id", "golden", "--simulate", "--real-tools")
    assert done.err == ""
    assert (
        masked(done.out)
        == f"""\
run {NAME}: golden, simulated agents; everything else is executed
  finished  start#1  success
  started   fetch#1
  finished  fetch#1  success  TIME
  started   flaky#1
  retrying  flaky#1  attempt 1 failed: exit code 1; again in TIME
  started   flaky#1  attempt 2
  finished  flaky#1  success  TIME  2 attempts
  started   write#1
  finished  write#1  success  TIME
  asks      ask#1  Send it?
run {NAME} waits for an answer at ask#1
  ask#1: Send it?
    | [simulated] write done
    Y   Yes  → exit
    N   Again  → write
continue with: onward answer {NAME}
"""
    )
    assert (
        masked(shell.inside("status").out)
        == f"""\
RUN     PIPELINE  STATUS   STEPS  NEXT  CHANGED
{NAME}  golden    waiting  4      ask   TIME
"""
    )
    assert (
        masked(shell.inside("show", "golden").out)
        == f"""\
run {NAME}: golden
  status   waiting
  mode     simulated agents; everything else is executed
  started  WHEN (TIME)
  changed  WHEN (TIME)
  next     ask
  file     FILE (HASH)
  cwd      DIRECTORY
  continue onward answer {NAME}

STEP     OUTCOME  ATTEMPTS  TOOK
start#1  success  1         TIME
fetch#1  success  1         TIME
flaky#1  success  2         TIME
write#1  success  1         TIME
ask#1    waiting  1         -

ask#1 asks: Send it?
  | [simulated] write done
  Y   Yes  → exit
  N   Again  → write

CONTEXT
  last_response = [simulated] write done
  last_stage = write
  outcome = success
  tool.output =
"""
    )
    answered = shell.inside("answer", "golden", "n")
    assert answered.code == 75
    assert masked(answered.out).splitlines()[:4] == [
        "  answered  ask#1  [N] Again (by user)",
        "  finished  ask#1  success",
        "  started   write#2",
        "  finished  write#2  success  TIME",
    ]
    assert (
        masked(shell.inside("answer", "golden", "y").out)
        == f"""\
  answered  ask#2  [Y] Yes (by user)
  finished  ask#2  success
  finished  exit#1  success
run {NAME} completed: 8 steps in TIME
"""
    )
    assert (
        masked(shell.inside("status", "golden").out)
        == f"""\
run {NAME}: golden
  status   completed
  steps    8 finished
  changed  TIME
"""
    )


def test_a_failure_and_its_lineage(shell: Shell) -> None:
    shell.write("bad.dot", pipeline(("a", "true"), ("b", "echo no luck >&2; exit 3")))
    done = shell.inside("run", "bad.dot", "--run-id", "golden")
    assert done.code == 1
    assert (
        masked(done.out)
        == f"""\
run {NAME}: line
  finished  start#1  success
  started   a#1
  finished  a#1  success  TIME
  started   b#1
  failed    b#1  attempt 1: exit code 3: no luck
run {NAME} failed (step_failed): step b#1: exit code 3: no luck
its output: onward logs {NAME} 'b#1'
continue with: onward resume {NAME}
"""
    )
    fork = called("fork")
    assert (
        shell.inside("replay", "golden", "--checkpoint", "5", "--run-id", "fork", "--no-run").out
        == f"""\
run {fork}: line, forked from {NAME} at checkpoint 5
run {fork} queued; next is b
continue with: onward resume {fork}
"""
    )
    page = masked(shell.inside("show", "golden").out)
    assert "  status   failed (step_failed): step b#1: exit code 3: no luck\n" in page
    assert f"  fork     {fork} from checkpoint 5 (queued)\n" in page
    assert re.search(r"\nb#1      failed   1         TIME +exit code 3: no luck\n", page)
    assert f"  parent   {NAME} at checkpoint 5\n" in shell.inside("show", "fork").out
    assert (
        masked(shell.inside("resume", "golden", "--abort").out)
        == f"""\
cancelling run {NAME} (line)
run {NAME} cancelled for good
what its steps did stays as it is; nothing was undone
it cannot be resumed; a fork can continue from its last checkpoint: onward replay {NAME} --checkpoint 5
"""
    )


def test_a_run_in_a_terminal(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("work.dot", pipeline(("a", latch.command), ("b", "exit 3")))
    terminal = shell.terminal("run", "work.dot", "--run-id", "golden")
    latch.wait_reached()
    terminal.wait_for(r"running   a#1  attempt 1  ", times=3)
    assert b"\x1b[" in terminal.bytes
    latch.release()
    done = terminal.end()
    assert done.code == 1
    lines = masked(done.out).splitlines()
    kept = [line for line in lines if "running" not in line]
    assert kept[:2] == [f"run {NAME}: line", "  finished  start#1  success"]
    assert kept[-2:] == [
        f"run {NAME} failed (step_failed): step b#1: exit code 3",
        f"continue with: onward resume {NAME}",
    ]
    assert any("finished  a#1  success  TIME" in line for line in lines)


def test_a_terminal_that_cannot_move_gets_lines(shell: Shell) -> None:
    shell.write("work.dot", pipeline(("a", "true")))
    shell.environment["TERM"] = "dumb"
    terminal = shell.terminal("run", "work.dot", "--run-id", "golden")
    done = terminal.end()
    assert b"\x1b[" not in terminal.bytes
    assert "  started   a#1\n" in done.out
