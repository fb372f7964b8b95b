"""Document 001's story in its own words: receipts, handoffs, `make stepwise-resume`, `make stepwise-retry`.

Its flow is a pipeline and its steps are called as it calls them. A graceful stop, two hard crashes and a step
that fails lie between the first command and the last; every command is the document's own, through make.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from onward.pipeline.build import build
from onward.receipts.audit import find_resume_point
from onward.testing.script import ScriptedReply, ScriptRule
from tests.cli.shell import PATIENCE_S, Done, Latch, Shell, wait_until
from tests.unit.test_generation import endpoint
from tests.unit.test_resume_protocol import requests
from tests.worker.conftest import shell as shell

pytestmark = [pytest.mark.slow, pytest.mark.crash]
ROOT = Path(__file__).parent.parent.parent
RUN, FLOW = "abc123", "build"
SLOW_S = 3
"""How long the first answer takes: the signal comes before it."""
NEVER = ScriptedReply(text="This never comes to its end.", break_after=2, break_with="stall")
RULES = (
    ScriptRule(contains="Plan it", reply=ScriptedReply(text="planned", first_delay_s=SLOW_S)),
    ScriptRule(contains="Write it", times=1, reply=NEVER),
)


def source(commit: str) -> str:
    """Two agents, a commit that must not be made twice, and a push that fails until its remote is there."""
    return f"""digraph {FLOW} {{
  start [shape=Mdiamond]
  exit [shape=Msquare]
  step_1 [prompt="Plan it"]
  step_2 [prompt="Write it"]
  step_3 [shape=parallelogram, repeatable=false, tool_command="{commit}"]
  step_4 [shape=parallelogram, tool_command="echo push >> pushes; test -e remote"]
  start -> step_1 -> step_2 -> step_3 -> step_4 -> exit
}}"""


def stepwise(shell: Shell, target: str, **words: str) -> subprocess.Popen[str]:
    """The document's command, in a process group of its own."""
    given = [f"{name}={word}" for name, word in {"RUN_ID": RUN, "FLOW": FLOW, **words}.items()]
    return subprocess.Popen(
        ["make", "--no-print-directory", "-o", ".venv/.installed", f"stepwise-{target}", *given],
        cwd=ROOT,
        env={**os.environ, **shell.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(started: subprocess.Popen[str]) -> Done:
    out, err = started.communicate(timeout=PATIENCE_S)
    return Done(started.returncode, out, err)


def crash(started: subprocess.Popen[str]) -> None:
    """Kill make and everything below it, without a word."""
    os.killpg(started.pid, signal.SIGKILL)
    started.communicate(timeout=PATIENCE_S)


def files(shell: Shell, what: str) -> dict[str, dict[str, Any]]:
    """What RUN_BASE/<flow>/receipts/<step_id>-<agent>.json have, or the same of handoffs, by step."""
    (where,) = shell.directory.rglob(f"{RUN}/{FLOW}/{what}")
    return {file.name.partition("-")[0]: json.loads(file.read_bytes()) for file in where.glob("*.json")}


def resume_point(shell: Shell) -> tuple[str | None, str]:
    """`find_resume_point(run_id, flow_key)`: where the receipts alone say that the run continues."""
    (where,) = shell.directory.rglob(f"{RUN}/{FLOW}/receipts")
    point = find_resume_point(
        where, build((shell.directory / "build.dot").read_text(), file="build.dot").graph
    )
    return point.step, point.action


def test_the_whole_story_of_document_001(shell: Shell) -> None:
    """S1-2, S1-4, S1-5, S1-6, S1-7, S1-8, S1-9, S1-12, S1-15, S1-16, S1-17, S1-18, S1-19,
    S1-20, S1-21, S1-22.

    Stopped with SIGTERM, killed twice, failed once: each time one command of the document goes on, and no
    request that was answered is made again.
    """
    latch = shell.latch("latch")
    shell.environment["ONWARD_RUNS"] = str(shell.directory / "runs")  # make runs elsewhere
    shell.write("build.dot", source(f"test -e commits || echo commit >> commits; {latch.command}"))
    with endpoint(shell, *RULES, default="written") as ledger:
        stops_gracefully(shell, ledger)
        dies_in_the_second_step(shell, ledger)
        dies_in_the_commit(shell, latch)
        assert requests(ledger) == {f"{RUN}/step_1#1/m1": 1, f"{RUN}/step_2#1/m1": 2}
    asks_whether_to_retry_skip_or_abort(shell)
    retries_the_step_that_was_cut_off(shell, latch)
    starts_at_the_step_that_a_person_names(shell)
    assert (shell.directory / "commits").read_text() == "commit\n", "the commit was made once"
    without = files(shell, "receipts").keys() - files(shell, "handoffs").keys()
    assert without == {"step_4"}, "only the visit that failed handed nothing on"
    assert shell.inside("verify", RUN).code == 0


def stops_gracefully(shell: Shell, ledger: Path) -> None:
    """Complete the current LLM call, write a partial receipt with status="interrupted", exit cleanly."""
    running = shell.start("run", "build.dot", "--run-id", RUN)
    wait_until(lambda: len(requests(ledger)) == 1, "the first request")
    running.signal(signal.SIGTERM)
    assert running.end().code == 75
    assert shell.read(RUN)["status"] == "paused"
    assert len(requests(ledger)) == 1
    assert resume_point(shell) == ("step_2#1", "continue")


def dies_in_the_second_step(shell: Shell, ledger: Path) -> None:
    """No receipt is written, and the next command detects the incomplete step."""
    resuming = stepwise(shell, "resume")
    wait_until(lambda: f"{RUN}/step_2#1/m1" in requests(ledger), "the second step's request")
    crash(resuming)
    assert "step_2" not in files(shell, "handoffs")
    assert resume_point(shell)[0] == "step_2#1"
    assert shell.read(RUN)["status"] == "interrupted"


def dies_in_the_commit(shell: Shell, latch: Latch) -> None:
    """Only the second step is made again; the process dies once more where nothing must be repeated."""
    resuming = stepwise(shell, "resume")
    latch.wait_reached()
    crash(resuming)
    receipts = files(shell, "receipts")
    assert [receipts[step]["status"] for step in ("step_1", "step_2")] == ["succeeded", "succeeded"]


def asks_whether_to_retry_skip_or_abort(shell: Shell) -> None:
    """What cannot be repeated without harm is not: a person decides, and sees what is there."""
    asked = ended(stepwise(shell, "resume"))
    assert asked.code != 0
    for choice in ("--retry", "--skip", "--abort"):
        assert choice in asked.out + asked.err
    assert (shell.read(RUN)["status"], shell.read(RUN)["reason"]) == ("interrupted", "in_doubt")
    assert (shell.directory / "commits").exists(), "files that were written stay"


def retries_the_step_that_was_cut_off(shell: Shell, latch: Latch) -> None:
    retrying = stepwise(shell, "retry", STEP="step_3")
    latch.wait_reached()
    latch.release()
    assert ended(retrying).code != 0, "the push fails"
    assert shell.read(RUN)["status"] == "failed"
    assert resume_point(shell) == ("step_4#1", "retry")


def starts_at_the_step_that_a_person_names(shell: Shell) -> None:
    (shell.directory / "remote").touch()
    done = ended(stepwise(shell, "resume", START_STEP="step_4"))
    assert done.code == 0, done.err
    assert resume_point(shell)[1] == "done"
    assert shell.read(RUN)["status"] == "completed"
