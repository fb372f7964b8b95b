"""Edits of agents through crashes: the file is changed once, whatever was recorded."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from pathlib import Path

import pytest

from onward.agents.model import ToolCall
from onward.agents.tools.files import file_tools
from onward.errors import RunNotFound
from onward.model.run import RunStatus
from onward.testing.script import ScriptedReply, ScriptRule
from tests.agents.test_agent_step import Scripted, model
from tests.agents.tooling import working
from tests.conformance.faults import Died, Fault, FaultyStore
from tests.world import World, line

BEFORE, AFTER = "import a\n", "import a\nimport b\n"
SOURCE = line("work")


def editor() -> Scripted:
    """A model that wants one edit, whose result holds the old text, and ends when it is told of it."""
    wanted = ToolCall("c1", "edit", json.dumps({"path": "x.py", "old": BEFORE, "new": AFTER}))
    return model(
        ScriptRule(contains="`old`", reply=ScriptedReply(text="Done.")),
        ScriptRule(reply=ScriptedReply(tool_calls=(wanted,))),
    )


@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER])
async def test_a_crash_at_any_call_of_the_store_edits_a_file_once(
    world: World, fault: Fault, tmp_path: Path
) -> None:
    """Also when the file was written and its process died before that was recorded."""
    deaths, repeated = 0, 0
    for nth in range(1, 60):
        run_id, directory, scripted = f"run-{nth}", tmp_path / str(nth), editor()
        directory.mkdir()
        (directory / "x.py").write_text(BEFORE)
        tools = file_tools(())
        first = await working(world, scripted, *tools, wrap=partial(FaultyStore, fault=fault, at=nth))
        with contextlib.suppress(Died):
            await first.start(SOURCE, run_id, workdir=str(directory))
        if len(first.store.calls) < nth:
            break
        await first.die()
        second = await working(world, scripted, *tools)
        try:
            run = (await second.load(run_id)).run
        except RunNotFound:
            continue
        if run.status is not RunStatus.COMPLETED:
            run = await second.resume(run_id)
        assert run.status is RunStatus.COMPLETED, (nth, run.reason)
        assert (directory / "x.py").read_text() == AFTER, nth
        repeated += "nothing was changed: x.py has `new` already" in str(
            scripted.received[-1].request.messages
        )
        deaths += 1
    assert deaths > 5
    assert fault is Fault.DIE_AFTER or repeated, "a process died between the file and the record"
