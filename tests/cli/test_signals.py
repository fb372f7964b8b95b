"""Ctrl-C and its relatives, sent to a real process: during a step, a back-off and a gate; once and twice."""

from __future__ import annotations

import signal

import pytest

from tests.cli.shell import GATE, Shell, pipeline

# The first test sends each of them; after the handler the code is the same for all three.
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
BACK_OFF = """
digraph back_off {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  flaky [shape=parallelogram, max_retries=2, retry_policy=patient, tool_command="test $ONWARD_ATTEMPT -ge 2"]
  start -> flaky -> exit
}
"""

# Waits in a pipe when Python takes its modules apart.
SLOW_END = """
import os
from onward import Onward

app = Onward()

class Last:
    def __del__(self, open=os.open, read=os.read, flags=os.O_RDONLY):
        read(open({path!r}, flags), 1)

last = Last()
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_lets_the_step_finish_and_pauses_the_run(
    shell: Shell, number: signal.Signals
) -> None:
    """K16, S3-6, B1-3: SIGTERM is a pause, and so is a closed terminal's SIGHUP."""
    latch = shell.latch("latch")
    shell.write("work.dot", pipeline(("a", shell.noting(latch.command)), ("b", shell.noting())))
    running = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    running.signal(number)
    running.wait_for("stopping after the current step; press Ctrl-C again to stop now")
    latch.release()
    done = running.end()
    assert done.code == 75
    stopped = shell.read("work")
    assert (stopped["status"], stopped["reason"], stopped["next"]) == ("paused", "signal", "b")
    assert stopped["completed"] == ["start#1", "a#1"]
    assert done.out.endswith("continue with: onward resume work\n")
    assert shell.inside("resume", "work").code == 0
    assert shell.ledger == ["a#1", "b#1"]


def test_the_second_signal_stops_now_and_the_step_is_made_again(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("work.dot", pipeline(("a", shell.noting(latch.command)), ("b", shell.noting())))
    running = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    running.signal(signal.SIGINT)
    running.wait_for("press Ctrl-C again")
    running.signal(signal.SIGINT)
    running.wait_for("stopping now")
    assert running.end().code == 75
    stopped = shell.read("work")
    assert (stopped["status"], stopped["completed"]) == ("paused", ["start#1"])
    assert [step["state"] for step in stopped["open_steps"]] == ["interrupted"]
    going = shell.start("resume", "work")
    latch.wait_reached()
    latch.release()
    assert going.end().code == 0
    assert shell.ledger == ["a#1", "a#1", "b#1"]


def test_a_step_that_the_second_signal_left_in_doubt_is_named_with_the_flags_that_decide(
    shell: Shell,
) -> None:
    """A plain resume is refused then, so it is not what the command says to type."""
    latch = shell.latch("latch")
    text = pipeline(("a", shell.noting(latch.command)))
    shell.write("work.dot", text.replace("a [", "a [repeatable=false, ", 1))
    running = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    running.signal(signal.SIGINT)
    running.wait_for("press Ctrl-C again")
    running.signal(signal.SIGINT)
    done = running.end()
    flags = "onward resume work --retry|--skip|--continue|--abort"
    cut = "step a#1 was cut off and must not be repeated blindly"
    assert done.out.endswith(f"continue with: {flags}\n")
    assert cut in done.out
    stopped = shell.read("work")
    assert (stopped["status"], stopped["step_in_doubt"]) == ("paused", "a#1")
    told = shell.inside("status", "work").out
    assert f"  continue {flags}\n" in told
    assert cut in told
    assert shell.inside("resume", "work").code == 1
    assert shell.inside("skip", "work").code == 0
    assert shell.read("work")["step_in_doubt"] is None


def test_a_signal_during_a_back_off_pauses_at_once_and_keeps_the_retry(shell: Shell) -> None:
    """K15: nobody waits for the next attempt; what was spent of the retries stays spent."""
    shell.write("work.dot", BACK_OFF)
    running = shell.start("run", "work.dot", "--run-id", "work")
    running.wait_for("retrying")
    running.signal(signal.SIGTERM)
    assert running.end().code == 75
    stopped = shell.read("work")
    assert (stopped["status"], stopped["reason"]) == ("paused", "signal")
    assert [(step["step"], step["state"]) for step in stopped["open_steps"]] == [("flaky#1", "retrying")]
    assert stopped["retry_counters"] == {"flaky": 1}
    assert shell.inside("resume", "work").code == 0
    attempts = [event["attempt"] for event in shell.log("work") if event["kind"] == "StepStarted"]
    assert attempts == [1, 2]


@pytest.mark.parametrize("twice", [False, True])
def test_ctrl_c_at_a_question_leaves_the_run_waiting(shell: Shell, twice: bool) -> None:
    shell.write("gate.dot", GATE)
    terminal = shell.terminal("run", "gate.dot", "--run-id", "gate")
    terminal.wait_for(r"your answer \(Y/N\): ")
    terminal.type("\x03\x03" if twice else "\x03")
    done = terminal.end()
    assert done.code == 75
    waiting = shell.read("gate")
    assert waiting["status"] == "waiting"
    assert "continue with: onward answer gate" in done.out


def test_a_signal_to_a_process_that_is_ending_does_not_change_its_exit_code(shell: Shell) -> None:
    """Python takes its signal handlers away before it takes its modules apart, which lasts a while."""
    latch, ending = shell.latch("latch"), shell.latch("ending")
    shell.write("slow_end.py", SLOW_END.format(path=str(shell.directory / "ending")))
    shell.write("work.dot", pipeline(("a", latch.command), ("b", "true")))
    running = shell.start("run", "work.dot", "--run-id", "work", "--app", "slow_end:app")
    latch.wait_reached()
    running.signal(signal.SIGINT)
    running.wait_for("stopping after the current step")
    latch.release()
    ending.wait_reached()
    for number in SIGNALS:
        running.signal(number)
    ending.release()
    assert running.end().code == 75


def test_a_signal_to_a_process_at_a_question_leaves_the_run_waiting(shell: Shell) -> None:
    shell.write("gate.dot", GATE)
    terminal = shell.terminal("run", "gate.dot", "--run-id", "gate")
    terminal.wait_for("your answer")
    terminal.process.send_signal(signal.SIGHUP)
    assert terminal.end().code == 75
    assert shell.read("gate")["status"] == "waiting"


def test_ctrl_c_typed_in_a_terminal_reaches_the_run_and_not_its_commands(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("work.dot", pipeline(("a", shell.noting(latch.command)), ("b", shell.noting())))
    terminal = shell.terminal("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    terminal.type("\x03")
    terminal.wait_for("stopping after the current step")
    latch.release()
    done = terminal.end()
    assert done.code == 75
    assert shell.read("work")["completed"] == ["start#1", "a#1"]
    assert "continue with: onward resume" in done.out


def test_ctrl_c_typed_twice_stops_now(shell: Shell) -> None:
    """O14."""
    latch = shell.latch("latch")
    shell.write("work.dot", pipeline(("a", latch.command)))
    terminal = shell.terminal("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    terminal.type("\x03")
    terminal.wait_for("press Ctrl-C again")
    terminal.type("\x03")
    assert terminal.end().code == 75
    assert shell.read("work")["open_steps"][0]["state"] == "interrupted"


def test_a_run_under_nohup_does_not_care_about_the_terminal(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("work.dot", pipeline(("a", latch.command), ("b", shell.noting())))
    running = shell.start("run", "work.dot", "--run-id", "work", before=("nohup",))
    latch.wait_reached()
    running.signal(signal.SIGHUP)
    latch.release()
    assert running.end().code == 0
    assert shell.ledger == ["b#1"]


def test_ctrl_c_ends_the_wait_for_a_holder(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("work.dot", pipeline(("a", latch.command)))
    running = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    waiting = shell.start("resume", "work", "--wait")
    waiting.wait_for(f"waiting for process {running.process.pid} on ")
    waiting.signal(signal.SIGINT)
    refused = waiting.end()
    assert refused.code == 1
    assert f"is held by process {running.process.pid} on " in refused.err
    latch.release()
    assert running.end().code == 0


def test_a_closed_terminal_pauses_the_run(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("work.dot", pipeline(("a", latch.command), ("b", "true")))
    terminal = shell.terminal("run", "work.dot", "--run-id", "work", "--json", has_pipe=True)
    latch.wait_reached()
    terminal.hang_up().wait_for("stopping after the current step")
    latch.release()
    assert terminal.process.wait(30) == 75
    assert shell.read("work")["completed"] == ["start#1", "a#1"]


def test_a_thread_that_cannot_be_ended_does_not_hold_up_the_exit(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write(
        "mine.py",
        "import subprocess\nfrom onward import Onward\napp = Onward()\n"
        f"@app.handler('stuck')\ndef stuck(step):\n    subprocess.run({latch.command!r}, shell=True)\n",
    )
    shell.write(
        "work.dot",
        "digraph g { start [shape=Mdiamond]; exit [shape=Msquare]; a [type=stuck]; start -> a -> exit }",
    )
    running = shell.start("run", "work.dot", "--run-id", "work", "--app", "mine:app")
    latch.wait_reached()
    running.signal(signal.SIGINT)
    running.wait_for("press Ctrl-C again")
    running.signal(signal.SIGINT)
    assert running.process.wait(30) == 75
    latch.release()
    running.end()
    assert shell.read("work")["status"] == "paused"
