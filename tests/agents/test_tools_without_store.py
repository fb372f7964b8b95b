"""The store fails in the middle of a use of a tool: what was done and stored is not done again."""

from __future__ import annotations

from functools import partial

import pytest

from onward.agents.tools.port import ToolAnswer, ToolRules, ToolUse
from onward.errors import RunNotFound, StoreFull
from onward.machine.decide.calls import calls_in_doubt
from onward.model.run import Run, RunStatus
from onward.testing.script import ScriptedReply, ScriptRule
from tests.agents.test_agent_step import Scripted, calls, model
from tests.agents.tooling import Counting, wish, working
from tests.conformance.faults import Fault, FaultyStore
from tests.world import Process, World, line

WHOLE = "paid " * 1_000
SOURCE = line("work")
FULL = StoreFull("there is no space left")


def payer() -> Scripted:
    """A model that wants one payment, and ends when it is told of it."""
    return model(
        ScriptRule(contains="paid", reply=ScriptedReply(text="Done.")),
        ScriptRule(reply=ScriptedReply(tool_calls=(wish("pay"),))),
    )


async def long(use: ToolUse) -> ToolAnswer:
    """An answer of which the model sees a part; the whole is stored beside it."""
    return ToolAnswer(WHOLE)


async def settled(process: Process, run_id: str, tool: Counting) -> Run:
    """What a person does when there is space again: who finds that it was done, says so."""
    run = (await process.load(run_id)).run
    while run.status is not RunStatus.COMPLETED:
        doubtful = {call for opened in run.open_steps.values() for call in calls_in_doubt(opened)}
        if doubtful and tool.done:
            run = await process.resume(run_id, action="continue", answers=dict.fromkeys(doubtful, "paid"))
        else:
            run = await process.resume(run_id, action="retry" if doubtful else None)
    return run


@pytest.mark.parametrize("repeatable", [True, False])
@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.LOSE_REPLY])
async def test_a_full_disk_at_any_moment_of_a_use_loses_and_repeats_nothing(
    world: World, fault: Fault, repeatable: bool
) -> None:
    """Among them the moment at which its whole answer and the artifact of that are written."""
    rules = ToolRules(repeatable=repeatable, output_characters=1_000)
    failed, cut = 0, 0
    for nth in range(1, 60):
        run_id, tool = f"run-{nth}", Counting("pay", rules, long)
        full = partial(FaultyStore, fault=fault, at=nth, times=1_000_000, error=FULL)
        process = await working(world, payer(), tool, wrap=full)
        try:
            await process.start(SOURCE, run_id)
        except StoreFull:
            failed += 1
        else:
            assert len(process.store.calls) < nth, "whatever could not be stored is an error"
            break
        begun, process.store.fault = tool.begun.total(), None
        try:
            run = await settled(process, run_id, tool)
        except RunNotFound:
            continue
        cut += 0 < begun < tool.begun.total()
        assert tool.begun.total() <= (2 if repeatable else 1)
        assert tool.done.total() >= 1
        if "paid" not in [event.value for event in await calls(process, run_id)]:
            (kept,) = run.artifacts.values()
            assert kept.size == len(WHOLE)
        assert await process.is_sound(run_id)
    assert failed > 5
    assert (cut > 0) == (repeatable and fault is Fault.REFUSE), "only an answer that was lost is got again"
