"""Which answers an agent keeps when its step is tried anew, and when it must not go on with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onward.agents.model import FinishReason
from onward.engine.control.requests import StartRequest
from onward.model.run import RunStatus
from onward.testing.clock import ManualClock
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.agents.test_agent_step import Scripted, at, model
from tests.conformance.faults import Died
from tests.world import World, line

DAY_US = 86_400_000_000
CUT_SHORT = ScriptedReply(text="One, ", finish_reason=FinishReason.LENGTH)


class Dying(Scripted):
    """A model whose caller dies in the middle of an answer."""

    dies_at = 0

    async def stream(self, request: Any, **how: Any) -> Any:
        async for piece in super().stream(request, **how):
            if len(self.received) == self.dies_at:
                raise Died
            yield piece


def dying(*rules: ScriptRule, at: int) -> Dying:
    scripted = Dying(ModelScript(rules=rules, default=ScriptedReply(text="Fine.")), clock=ManualClock())
    scripted.dies_at = at
    return scripted


async def test_a_step_that_was_cut_off_continues_its_stored_conversation(world: World) -> None:
    """What it was answered so far is in it; its inputs alone would ask another question."""
    scripted = dying(ScriptRule(nth=1, reply=CUT_SHORT), at=2)
    first = await at(world, scripted)
    with pytest.raises(Died):
        await first.start(line("a"))
    await first.die()
    second = await at(world, scripted)
    assert (await second.resume()).status is RunStatus.COMPLETED
    _, lost, again = scripted.received
    assert again.request == lost.request
    assert len(again.request.messages) == 3, "the question, the half answer, and the wish to go on"


async def test_a_failure_of_the_provider_keeps_the_answers_so_far(world: World) -> None:
    """I30: the step is tried anew, and only the request that failed is made again."""
    failing = [ScriptRule(nth=nth, reply=ScriptedReply(status=503)) for nth in range(2, 7)]
    scripted = model(ScriptRule(nth=1, reply=CUT_SHORT), *failing, default="two.")
    process = await at(world, scripted)
    run = await process.start(line("a", a="max_retries=1"))
    assert run.status is RunStatus.COMPLETED
    assert run.context["last_response"] == "One, two."
    assert [one.idempotency_key for one in scripted.received].count("run/a#1/m1") == 1


async def test_an_agent_that_says_fail_asks_anew_under_a_new_key(world: World) -> None:
    """It is another question: a provider that knows the old key must not give its old answer again. I30."""
    scripted = model(ScriptRule(nth=1, reply=ScriptedReply(text="No.\nOUTCOME: fail")), default="Yes.")
    process = await at(world, scripted)
    assert (await process.start(line("a", a="max_retries=1"))).status is RunStatus.COMPLETED
    assert [one.idempotency_key for one in scripted.received] == ["run/a#1/m1", "run/a#1/m1~1"]


async def test_an_agent_whose_question_has_changed_is_not_continued(world: World, tmp_path: Path) -> None:
    """Its stored conversation is about another question: a person retries, or takes the original."""

    file, scripted = tmp_path / "a.dot", dying(at=1)
    file.write_text(line("a"))
    first = await at(world, scripted)
    with pytest.raises(Died):
        await first.engine.start(first.engine.sources.read(str(file)), StartRequest(run_id="run"))
    await first.die()
    file.write_text(line("a").replace("do it", "do something else"))
    second = await at(world, scripted)
    run = await second.resume(accept_changes=True)
    assert (run.status, run.reason) == (RunStatus.FAILED, "pipeline_error")
    assert "has changed since it was first sent" in run.detail
    assert len(scripted.received) == 1


async def test_a_run_that_the_limit_of_a_day_stopped_continues_by_itself_when_the_day_ends(
    world: World,
) -> None:
    """The wake time of a stopped run is the end of what holds it."""
    clock = ManualClock()
    scripted = model(clock=clock)
    process = await at(world, scripted, clock=clock)
    await process.store.limits.change("day", {"calls": 1})
    run = await process.start(line("a", "b"))
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "limit")
    assert run.wake_at_us == (clock.now_us() // DAY_US + 1) * DAY_US
