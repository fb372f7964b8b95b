"""Hooks around tool calls: the one before may forbid the call, the one behind it is told the result."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from onward import Onward, Run, RunStatus
from onward.model.events import AttemptFailed, StepFinished
from onward.store.codec import unseal

CANARY = "$(touch hacked)"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Onward]:
    app = Onward(str(tmp_path / "runs.db"))
    yield app
    await app.close()


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


async def run_of(app: Onward, command: str, node: str = "", graph: str = "") -> Run:
    source = (
        f"digraph p {{ graph [{graph}]; start [shape=Mdiamond]; exit [shape=Msquare]; "
        f"a [shape=parallelogram, max_retries=1, tool_command={quoted(command)}, {node}]; "
        "start -> a -> exit }"
    )
    return await app.run(await app.pipeline(source), run_id="run", inputs={"evil": CANARY})


async def events(app: Onward, kind: type[Any]) -> list[Any]:
    found = [unseal(record) for record in await (await app.engine()).journal.read("run")]
    return [event for event in found if isinstance(event, kind)]


def hook(which: str, command: str) -> str:
    return f"tool_hooks.{which}={quoted(command)}"


async def test_a_hook_that_agrees_lets_the_call_be_made(app: Onward, tmp_path: Path) -> None:
    told, ran = tmp_path / "told", tmp_path / "ran"
    pre = f'cat > {told}; echo "$ONWARD_HOOK $ONWARD_TOOL_NAME $ONWARD_STEP $ONWARD_ATTEMPT" > {told}.env'
    run = await run_of(app, f"touch {ran}", hook("pre", pre))
    assert run.status is RunStatus.COMPLETED
    assert ran.exists()
    assert json.loads(told.read_text()) == {
        "hook": "pre",
        "run_id": "run",
        "step": "a#1",
        "node": "a",
        "attempt": 1,
        "tool": {"name": "shell", "call_id": "", "arguments": {"command": f"touch {ran}"}},
    }
    assert told.with_suffix(".env").read_text() == "pre shell a#1 1\n"


@pytest.mark.parametrize(
    ("pre", "timeout", "why"),
    [
        ("echo not on Fridays >&2; exit 3", "1m", "exit code 3: not on Fridays"),
        ("kill -9 $$", "1m", "signal 9"),
        ("exec sleep 60", "200ms", "it did not end within 0.2 s"),
        ("no-such-program-here", "1m", "exit code 127"),
    ],
)
async def test_a_hook_that_does_not_agree_keeps_the_call_from_being_made(
    app: Onward, tmp_path: Path, pre: str, timeout: str, why: str
) -> None:
    """It is recorded as a failure that names the hook, and nobody tries again."""
    ran = tmp_path / "ran"
    run = await run_of(app, f"touch {ran}", hook("pre", pre), f"tool_hooks.timeout={timeout}")
    assert run.status is RunStatus.FAILED
    (failed,) = await events(app, AttemptFailed)
    assert failed.reason.startswith(
        f"the tool shell was not called, because the hook tool_hooks.pre forbids it: {why}"
    )
    assert not ran.exists()


async def test_the_hook_behind_the_call_is_told_the_result(app: Onward, tmp_path: Path) -> None:
    told = tmp_path / "told"
    run = await run_of(
        app, "echo out; echo err >&2; exit 4", hook("post", f"cat > {told}") + ", max_retries=0"
    )
    assert run.status is RunStatus.FAILED
    result = json.loads(told.read_text())["result"]
    assert result.pop("duration_s") >= 0
    assert result == {
        "status": "fail",
        "exit_code": 4,
        "signal": None,
        "timed_out": False,
        "output": "out\n",
        "stderr": "err\n",
    }


async def test_a_failure_of_the_hook_behind_the_call_is_only_noted(app: Onward) -> None:
    run = await run_of(app, "true", hook("post", "echo broken >&2; exit 5"))
    assert run.status is RunStatus.COMPLETED
    (finished,) = [event for event in await events(app, StepFinished) if event.step == "a#1"]
    assert finished.outcome.notes == "the hook tool_hooks.post failed: exit code 5: broken"


async def test_the_note_stands_behind_the_reason_of_a_call_that_failed(app: Onward) -> None:
    run = await run_of(app, "exit 1", hook("post", "exit 5") + ", max_retries=0")
    assert run.detail == "step a#1: exit code 1; the hook tool_hooks.post failed: exit code 5"


async def test_a_hook_on_the_graph_serves_every_node_and_that_of_a_node_wins(
    app: Onward, tmp_path: Path
) -> None:
    graph = ", ".join(hook(which, f"echo {which} >> {tmp_path}/hooks") for which in ("pre", "post"))
    await run_of(app, "true", hook("pre", f"echo node >> {tmp_path}/hooks"), graph)
    assert (tmp_path / "hooks").read_text() == "node\npost\n"


async def test_nothing_from_the_context_gets_into_a_hook(app: Onward, tmp_path: Path) -> None:
    """A value that looks like a command stays a value."""
    run = await run_of(app, f"echo '{CANARY}'", hook("post", f"cd {tmp_path}; cat > told; echo $evil > evil"))
    assert run.status is RunStatus.COMPLETED
    assert (tmp_path / "evil").read_text() == "\n"
    assert json.loads((tmp_path / "told").read_text())["result"]["output"] == f"{CANARY}\n"
    assert not (tmp_path / "hacked").exists()
