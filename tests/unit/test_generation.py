"""Document 002's test of progressive saving by its own name, and its whole story, on both databases.

Its words and ours: its checkpoint is the log of a run, its step a call, its message a message. The processes,
the endpoint and the kills are real ones.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onward.clock import SystemClock, SystemDice, SystemIds
from onward.engine.control.requests import StartRequest
from onward.engine.engine import Engine
from onward.handlers.function import FunctionHandler
from onward.testing.model_endpoint import read_ledger
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from onward.wiring import open_store
from tests.cli.shell import Shell, wait_until
from tests.worker.conftest import shell as shell
from tests.world import line

pytestmark = [pytest.mark.slow, pytest.mark.crash]
PLAN, DRAFT = "First this, then that.", "A long draft that takes its time to come."
HALF = DRAFT[:20]
ASKED = "Please write something nice."


@contextmanager
def endpoint(shell: Shell, *rules: ScriptRule, default: str) -> Iterator[Path]:
    """A provider on loopback that the shell's commands ask; gives its ledger."""
    script, ledger = shell.directory / "script.json", shell.directory / "requests"
    script.write_bytes(msgspec.json.encode(ModelScript(rules=rules, default=ScriptedReply(text=default))))
    command = (sys.executable, "-m", "onward.testing.model_endpoint", str(script), "--ledger", str(ledger))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            shell.environment |= {"OPENAI_BASE_URL": address, "ONWARD_MODEL": "small"}
            yield ledger
        finally:
            process.terminate()


def said(shell: Shell, of: str) -> list[tuple[str, str, str]]:
    """The messages of a run or chat, as whoever opens the page gets them: role, state, and text."""
    done = shell.inside("messages", of, "--json")
    found: dict[str, list[Any]] = {}
    for piece in map(msgspec.json.decode, done.out.splitlines() if done.code == 0 else ()):
        one = found.setdefault(piece["message"], [piece["role"], "streaming", ""])
        one[2] += piece["text"] if piece["kind"] in ("text", "reset") else ""
        one[1] = piece["state"] or one[1]
    return [(role, state, text) for role, state, text in found.values()]


def test_progressive_saving(shell: Shell) -> None:
    """S2-1, S2-12, S2-20, S2-23, S2-25: start generation, refresh mid-stream, see the unfinished message."""
    shell.write("write.dot", line("write"))
    stalls = ScriptedReply(text=DRAFT, break_after=5, break_with="stall")
    with endpoint(shell, ScriptRule(nth=1, reply=stalls), default=DRAFT):
        first = shell.start("run", "write.dot", "--run-id", "job")
        wait_until(lambda: said(shell, "job") == [("assistant", "streaming", HALF)], "the text so far")
        first.signal(signal.SIGKILL)
        first.end()
        assert shell("resume", "job").code == 0
    assert said(shell, "job") == [("assistant", "interrupted", HALF), ("assistant", "complete", DRAFT)]
    assert shell.inside("verify", "job").code == 0


async def _ask(db: str) -> None:
    """What a page does: store the user's message, then queue the run that answers it."""
    store = await open_store(db)
    handlers = {"codergen": FunctionHandler(lambda step: None)}
    engine = Engine(store, clock=SystemClock(), ids=SystemIds(), dice=SystemDice(), handlers=handlers)
    await engine.say("talk", ASKED)
    pipeline = engine.sources.prepare(line("plan", "draft"), "<page>")
    await engine.submit(pipeline, StartRequest(run_id="job", chat="talk", on_owner_loss="requeue"))
    await engine.close()


def test_the_whole_story_of_a_generation(shell: Shell) -> None:
    """S2-2, S2-3, S2-8, S2-9, S2-10, S2-11, S2-13, S2-16, S2-21, B2-4: asked, killed, taken over, done.

    The user's message is stored first. A worker is killed in the middle of the second answer; another one
    continues after the first, which is not asked for again.
    """
    asyncio.run(_ask(shell.db))
    assert said(shell, "talk") == [("user", "complete", ASKED)]
    stalls = ScriptedReply(text=DRAFT, break_after=5, break_with="stall")
    rules = ScriptRule(nth=1, reply=ScriptedReply(text=PLAN)), ScriptRule(nth=2, reply=stalls)
    with endpoint(shell, *rules, default=DRAFT) as ledger:
        first = shell.start("worker")
        so_far = [
            ("user", "complete", ASKED),
            ("assistant", "complete", PLAN),
            ("assistant", "streaming", HALF),
        ]
        wait_until(lambda: said(shell, "talk") == so_far, "the second answer")
        assert _held(shell) == {"status": "running", "is_held": True}
        (held,) = shell.read("job")["progress"]
        assert (held["step"], held["rounds"], held["rounds_max"]) == ("draft#1", 0, 10)
        assert (held["model"], held["text"]) == ("openai:small", HALF)
        assert held["held_by"] == shell.read("job")["holder"]
        assert held["held_since"] is not None
        first.signal(signal.SIGKILL)
        first.end()
        second = shell.start("worker")
        second.wait_for("run job completed")
        second.signal(signal.SIGTERM)
        assert second.end().code == 0
    cut, whole = ("assistant", "interrupted", HALF), ("assistant", "complete", DRAFT)
    assert said(shell, "talk") == [*so_far[:2], cut, whole]
    asked = Counter(entry.idempotency_key for entry in read_ledger(str(ledger)))
    assert asked == {"job/plan#1/m1": 1, "job/draft#1/m1": 2}
    assert _held(shell) == {"status": "completed", "is_held": False}
    assert shell.read("job")["progress"] == []
    assert shell.inside("verify", "job").code == 0


def _held(shell: Shell) -> dict[str, Any]:
    """What its document calls the status and the lock of the checkpoint."""
    shown = shell.read("job")
    return {"status": shown["status"], "is_held": shown["holder"] is not None}
