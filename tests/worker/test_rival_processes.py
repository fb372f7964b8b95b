"""Real processes that want the same run at the same moment: one wins, and the others say who did."""

from __future__ import annotations

import json
import time

import pytest

from tests.cli.shell import PATIENCE_S, Done, Shell, Started, pipeline
from tests.cli.turnstile import Turnstile

pytestmark = pytest.mark.slow
PROCESSES = 4
REVIEW = """digraph review {
  start [shape=Mdiamond]; exit [shape=Msquare]; ask [shape=hexagon, label="Ship it?"]
  ship [shape=parallelogram, tool_command="true"]; drop [shape=parallelogram, tool_command="true"]
  start -> ask; ask -> ship [label="[Y] Yes"]; ask -> drop [label="[N] No"]; ship -> exit; drop -> exit
}"""


def ended(processes: list[Started], number: int) -> list[Started]:
    """Those that have ended, when so many have."""
    deadline_s = time.monotonic() + PATIENCE_S
    while len(gone := [one for one in processes if one.process.poll() is not None]) < number:
        assert time.monotonic() < deadline_s, "they did not end"
        time.sleep(0.02)
    return gone


def test_of_several_processes_that_resume_a_stopped_run_one_wins(shell: Shell, turnstile: Turnstile) -> None:
    shell.write("job.dot", pipeline(("a", shell.noting(turnstile.command))))
    assert shell.inside("submit", "job.dot", "--run-id", "job").code == 0
    assert shell.inside("pause", "job").code == 0
    rivals = [shell.start("resume", "job", "--json") for _ in range(PROCESSES)]
    turnstile.arrival()
    losers = ended(rivals, PROCESSES - 1)
    (winner,) = [rival for rival in rivals if rival not in losers]
    assert turnstile.is_empty
    for loser in losers:
        done = loser.end()
        assert (done.code, done.error["code"]) == (1, "occupied")
        assert f"process {winner.process.pid} on " in done.error["message"]
    turnstile.let_through()
    assert winner.end().code == 0
    assert shell.ledger == ["a#1"]
    log = [event["kind"] for event in shell.log("job")]
    assert (log.count("RunResumed"), log.count("RunClaimed")) == (1, 1)


def test_of_approve_and_reject_by_two_processes_one_wins(shell: Shell) -> None:
    shell.write("review.dot", REVIEW)
    for number in range(2):
        run_id = f"job-{number}"
        assert shell.inside("run", "review.dot", "--run-id", run_id).code == 75
        started = {
            key: shell.start("answer", run_id, verdict, "--gate", "ask#1", "--json")
            for verdict, key in (("--approve", "Y"), ("--reject", "N"))
        }
        answers: dict[str, Done] = {key: one.end() for key, one in started.items()}
        (decided,) = [event for event in shell.log(run_id) if event["kind"] == "GateDecided"]
        key, label = decided["choice"]["key"], decided["choice"]["label"]
        won, lost = answers[key], answers["N" if key == "Y" else "Y"]
        assert (won.code, json.loads(won.out)["status"]) == (0, "completed")
        assert (lost.code, lost.error["code"]) == (1, "gate_decided")
        said = f"gate ask#1 is already decided: {label!r} by {decided['by']}."
        assert lost.error["message"] == said
