"""Document 001's whole story, on both databases: an agent with tools is stopped, killed, and continued.

Its words and ours: its flow is a pipeline, its receipt and handoff are files beside the log, which decides.
The processes, the endpoint, the signals and the kills are real ones.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from onward.agents.model import ToolCall
from onward.pipeline.build import build
from onward.receipts.audit import find_resume_point
from onward.testing.model_endpoint import read_ledger
from onward.testing.script import ScriptedReply, ScriptRule
from tests.cli.shell import Shell, wait_until
from tests.unit.test_generation import endpoint
from tests.worker.conftest import shell as shell

pytestmark = [pytest.mark.slow, pytest.mark.crash]
FLOW = """digraph build {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  plan [shape=parallelogram, tool_command="echo plan >> ledger; echo planned"]
  work [prompt="Do the work.", allowed_tools="write, read"]
  ship [shape=parallelogram, tool_command="echo ship >> ledger; test -e ready"]
  start -> plan -> work -> ship -> exit
}"""
FIRST, SECOND = "first part", "second part"
NEVER = ScriptedReply(text="This never comes to its end.", break_after=2, break_with="stall")
SLOW_S = 3
"""How long the first answer takes: the signal comes before it."""


def writes(path: str, content: str, delay_s: float = 0) -> ScriptedReply:
    call = ToolCall(path, "write", json.dumps({"path": path, "content": content}))
    return ScriptedReply(tool_calls=(call,), first_delay_s=delay_s)


RULES = (
    ScriptRule(nth=1, reply=writes("one.txt", FIRST, SLOW_S)),
    ScriptRule(nth=2, reply=writes("two.txt", SECOND)),
    ScriptRule(nth=3, reply=NEVER),
)
"""Two rounds with tools; the third answer breaks off with its process."""


def requests(ledger: Path) -> dict[str, int]:
    """How often each request reached the provider."""
    return Counter(entry.idempotency_key for entry in read_ledger(str(ledger)))


def kept(shell: Shell, what: str) -> dict[str, dict[str, Any]]:
    """The receipts or handoffs on disk, by step."""
    (where,) = shell.directory.rglob(f"job/build/{what}")
    return {
        file.name.partition("-")[0]: json.loads(file.read_bytes()) for file in sorted(where.glob("*.json"))
    }


def resume_point(shell: Shell) -> tuple[str | None, str]:
    """Where the receipts alone say that the run continues."""
    (where,) = shell.directory.rglob("job/build/receipts")
    point = find_resume_point(where, build(FLOW, file="build.dot").graph)
    return point.step, point.action


def test_the_whole_story_of_the_resume_protocol(shell: Shell) -> None:
    """S1-2, S1-5, S1-6, S1-7, S1-8, S1-10, S1-18, S1-20, S1-22.

    Stopped with a signal, it finishes its request. Killed in the middle of one, it repeats only that. Each
    time it continues by itself where it was, and so says whoever reads the receipts alone.
    """
    shell.write("build.dot", FLOW)
    with endpoint(shell, *RULES, default="Done.") as ledger:
        first = shell.start("run", "build.dot", "--run-id", "job")
        wait_until(lambda: len(requests(ledger)) == 1, "the first request")
        first.signal(signal.SIGINT)
        assert first.end().code == 75
        assert requests(ledger) == {"job/work#1/m1": 1}, "its answer was waited for"
        assert (shell.read("job")["status"], shell.read("job")["reason"]) == ("paused", "signal")
        assert "work" not in kept(shell, "handoffs"), "what was not finished hands nothing on"
        assert kept(shell, "receipts")["work"]["status"] == "interrupted"  # S1-18
        assert resume_point(shell) == ("work#1", "retry")

        second = shell.start("resume", "job")
        wait_until(lambda: len(requests(ledger)) == 3, "the third request")
        second.signal(signal.SIGKILL)
        second.end()
        assert shell.read("job")["status"] == "interrupted"
        assert (shell.directory / "two.txt").read_text() == SECOND, "what tools wrote stays"

        assert shell("resume", "job").code == 1, "ship fails"
        assert requests(ledger) == {"job/work#1/m1": 1, "job/work#1/m2": 1, "job/work#1/m3": 2}
    assert resume_point(shell) == ("ship#1", "retry")
    assert kept(shell, "receipts")["ship"]["status"] == "failed"
    (shell.directory / "ready").touch()
    assert shell("resume", "job").code == 0
    assert shell.ledger == ["plan", "ship", "ship"]
    assert resume_point(shell)[1] == "done"
    _leaves_everything(shell)


def _leaves_everything(shell: Shell) -> None:
    """A receipt and a handoff for every step, with what the agent's attempt came to."""
    receipts, handoffs = kept(shell, "receipts"), kept(shell, "handoffs")
    assert receipts.keys() == handoffs.keys() == {"start", "plan", "work", "ship", "exit"}
    assert {receipt["status"] for receipt in receipts.values()} == {"succeeded"}
    tried = [attempt["status"] for attempt in receipts["work"]["attempts"]]
    assert tried == ["interrupted", "lost", "succeeded"]
    work = receipts["work"]
    assert (work["schema_version"], work["models"], work["cost_micro"]) == (2, ["openai:small"], None)
    assert (work["calls"]["models"], work["calls"]["tools"], work["calls"]["lost"]) == (3, 2, 1)
    assert work["tokens"]["total"] == work["tokens"]["prompt"] + work["tokens"]["completion"] > 0
    assert work["transcript_path"] is not None
    assert (shell.directory / "one.txt").read_text() == FIRST
    calls = shell.inside("calls", "job", "--json").json
    uses = [call["name"] for call in calls if call["type"] == "tool"]
    assert uses == ["write", "write"], "no tool was used twice"
    assert all(call["usage"]["output"] for call in calls if call["type"] == "model" and call["state"] == "ok")
    assert shell.inside("receipts", "job").err == ""
    assert shell.inside("verify", "job").code == 0
