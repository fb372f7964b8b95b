"""Document 002's story in its own words: a message that streams, a worker that takes over, and leaves.

A server that executes nothing shows what workers do. Its checkpoint is the progress of an open step, its lock
the worker that holds the run. That several workers share the jobs of one that died, and do none twice, is
tests/unit/test_stalled_jobs.py.
"""

from __future__ import annotations

import signal
from typing import Any

import pytest

from onward.testing.script import ScriptedReply, ScriptRule
from tests.cli.shell import Shell, Started, wait_until
from tests.server.serving import Serving, serving
from tests.unit.test_generation import endpoint
from tests.unit.test_resume_protocol import requests
from tests.worker.conftest import shell as shell

pytestmark = [pytest.mark.slow, pytest.mark.crash]
CHAT, JOB = "workspace-1", "m0"
PLAN, DRAFT = "First this, then that.", "A long draft that takes its time to come."
HALF = DRAFT[:20]
SLOW_S = 2
RULES = (
    ScriptRule(contains="Plan", reply=ScriptedReply(text=PLAN)),
    ScriptRule(contains="Draft", times=1, reply=ScriptedReply(text=DRAFT, break_after=5, break_with="stall")),
    ScriptRule(contains="Draft", reply=ScriptedReply(text=DRAFT)),
    ScriptRule(contains="Check", reply=ScriptedReply(text="Checked.", first_delay_s=SLOW_S)),
)
SOURCE = """digraph write {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  plan [prompt="Plan"]
  draft [prompt="Draft"]
  check [prompt="Check"]
  start -> plan -> draft -> check -> exit
}"""


def progress(server: Serving) -> list[Any]:
    """The open checkpoints, under the document's names."""
    found: list[Any] = server.get(f"/api/runs/{JOB}/progress")
    return found


def messages(server: Serving) -> list[tuple[str, str]]:
    """What a page that is opened now shows: each message's state and text."""
    reply = server.ask("GET", f"/api/chat?chat={CHAT}")
    found = reply.json["messages"] if reply.status == 200 else []
    return [(one["state"], one["text"]) for one in found]


def kill(worker: Started) -> None:
    worker.process.kill()
    worker.end()


def test_the_whole_story_of_document_002(shell: Shell) -> None:
    """S2-1, S2-2, S2-3, S2-6, S2-16, S2-18, S2-19, S2-20, S2-21, S2-25, S2-26, S2-28.

    The message is seen while it streams. Its worker is killed; another one continues after the last answer,
    and when it is asked to leave, it first finishes what it has.
    """
    with endpoint(shell, *RULES, default="Done.") as ledger, serving(shell, "--no-worker") as server:
        server.add("write", SOURCE)
        job = {"pipeline": "write", "run_id": JOB, "chat": CHAT, "on_owner_loss": "requeue"}
        server.post("/api/runs", job)
        assert server.get(f"/api/runs/{JOB}")["status"] == "queued"
        first = shell.start("worker")
        is_seen_while_it_streams(server)
        kill(first)
        second = shell.start("worker")
        is_continued_after_its_last_answer(server)
        wait_until(lambda: f"{JOB}/check#1/m1" in requests(ledger), "the last request")
        leaves_when_its_job_is_done(server, second)
        assert requests(ledger) == {f"{JOB}/plan#1/m1": 1, f"{JOB}/draft#1/m1": 2, f"{JOB}/check#1/m1": 1}
    assert shell.inside("verify", JOB).code == 0


def is_seen_while_it_streams(server: Serving) -> None:
    """Start a generation, refresh mid-stream, and the incomplete message is there with its checkpoint."""
    streaming = [("complete", PLAN), ("streaming", HALF)]
    wait_until(lambda: messages(server) == streaming, "the text so far")
    (shown,) = progress(server)
    assert (shown["status"], shown["textCollected"], shown["stepNumber"]) == ("processing", HALF, 0)
    assert shown["lockedBy"] is not None
    assert shown["lockedAt"] is not None


def is_continued_after_its_last_answer(server: Serving) -> None:
    wait_until(lambda: ("complete", DRAFT) in messages(server), "the whole draft")
    assert messages(server)[:3] == [("complete", PLAN), ("interrupted", HALF), ("complete", DRAFT)]


def leaves_when_its_job_is_done(server: Serving, worker: Started) -> None:
    """SIGTERM: the request under way is waited for, and nothing new is begun; exit 0."""
    worker.signal(signal.SIGTERM)
    done = worker.end()
    assert done.code == 0, done.err
    assert "draining: taking no new runs" in done.out
    assert "draining: 1 run remains" in done.out
    assert server.get(f"/api/runs/{JOB}")["status"] == "completed"
    assert progress(server) == []
