"""Driving a run: what is on disk before an effect begins, what becomes of its end, and where it leads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onward.engine.stop import StopSwitch
from onward.errors import StoreError
from onward.handlers.port import StepContext
from onward.model.event import AttemptFailed, GoalRedirected, StepFinished, StepStarted, StepStatus
from onward.model.result import Result
from onward.model.run import RunStatus
from onward.testing.faults import Died, Fault, FaultyStore
from onward.testing.handlers import Act
from tests.engine.test_resume_doors import crashed
from tests.world import World, line


async def test_an_attempt_is_on_disk_before_its_work_begins(world: World) -> None:
    """O1: the number of the attempt is stored before the effect, not after it."""
    witness, seen = await world.process(), []

    async def look(step: StepContext) -> Result:
        opened = (await witness.load(step.run_id)).run.open_steps[step.step]
        seen.append((opened.step, opened.attempt, step.attempt))
        return Result.retry("again") if step.attempt < 3 else Result.success()

    process = await world.process({"a": [look]})
    await process.start(line("a", a="max_retries=5"))
    assert seen == [("a#1", 1, 1), ("a#1", 2, 2), ("a#1", 3, 3)]


async def test_a_step_and_the_start_of_the_next_are_one_append(world: World) -> None:
    """One commit per step: what finished, the chosen edge, and what begins behind it."""
    process = await world.process()
    await process.start(line("a", "b", "c"))
    assert process.store.calls.count("append") == 3
    assert process.store.calls.count("create") == 1


async def test_a_crash_inside_a_step_repeats_only_that_step_and_keeps_its_number(world: World) -> None:
    """K2: a crash keeps the attempt's number and spends none of `max_retries`."""
    await crashed(world, line("a", "b", "c", b="max_retries=1"), at="b")
    process = await world.process({"b": [Result.retry("once"), Result.success()]})
    assert (await process.resume()).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "b#1", "b#1", "c#1"]
    assert world.ledger.attempts("b") == [1, 1, 2]


async def test_an_effect_has_the_same_idempotency_key_on_every_attempt(world: World) -> None:
    await crashed(world, line("a", a="max_retries=2"))
    process = await world.process({"a": [Result.retry("once"), Result.success()]})
    await process.resume()
    assert {call.idempotency_key for call in world.ledger.calls} == {"run/a#1"}
    assert len(world.ledger.calls) == 3


class Odd(Exception):
    """An error of a user's own."""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("bad value"), "ValueError: bad value"),
        (Odd(), "Odd"),
        (KeyError("key"), "KeyError: 'key'"),
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "the handler waited for something that was cancelled"),
    ],
)
async def test_an_error_of_a_handler_is_a_failure_of_its_step(
    world: World, error: BaseException, told: str
) -> None:
    """O2: whatever a handler raises, the run ends as failed and says why; nobody reads "running" for ever."""
    process = await world.process({"a": [error]})
    run = await process.start(line("a"))
    assert (run.status, run.reason, run.detail) == (RunStatus.FAILED, "step_failed", f"step a#1: {told}")
    assert (await process.load()).holder is None


async def test_an_error_of_a_handler_is_tried_again_like_any_failure(world: World) -> None:
    process = await world.process({"a": [ValueError("once"), Result.success()]})
    assert (await process.start(line("a", a="max_retries=1"))).status is RunStatus.COMPLETED


async def test_an_error_of_ours_is_not_worth_another_try(world: World) -> None:
    process = await world.process({"a": [StoreError("no"), Result.success()]})
    assert (await process.start(line("a", a="max_retries=5"))).status is RunStatus.FAILED
    assert world.ledger.attempts("a") == [1]


async def test_a_step_that_takes_too_long_is_ended_and_failed(world: World) -> None:
    cancelled: list[str] = []

    async def hang(step: StepContext) -> Result:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(step.step)
            raise
        return Result.success()

    process = await world.process({"a": [hang]})
    run = await process.start(line("a", a='timeout="5ms"'))
    assert run.detail == "step a#1: timed out after 0.005 s"
    assert cancelled == ["a#1"]


async def test_a_pause_is_not_a_failure_anywhere_in_the_log(world: World) -> None:
    """O15: a paused run has a status of its own, and no step of it failed."""
    stop = StopSwitch()
    stop.request("signal")
    process = await world.process()
    run = await process.start(line("a"), stop=stop)
    assert run.status is RunStatus.PAUSED
    assert not [event for event in await process.events() if isinstance(event, AttemptFailed)]
    assert "fail" not in str(await process.events()).lower()


LOOP = """digraph loop {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  work [prompt="work"]
  left [prompt="left"]
  right [prompt="right"]
  start -> work
  work -> left [condition="context.turn=1"]
  work -> right [condition="context.turn=2"]
  work -> exit [condition="context.turn=3"]
  left -> work
  right -> work
}"""


async def counting(step: StepContext) -> Result:
    return Result.success(turn=step.execution)


@pytest.mark.parametrize(("at", "visit"), [("left", 1), ("right", 1), ("work", 2), ("work", 3)])
async def test_a_loop_goes_on_by_its_newest_transition(world: World, at: str, visit: int) -> None:
    """K10: after a crash anywhere in a loop the way on is the last one chosen, never an older one."""

    async def die_at_visit(step: StepContext) -> Result:
        if step.step == f"{at}#{visit}":
            raise Died("here")
        return await counting(step) if step.node.id == "work" else Result.success()

    script: dict[str, list[Act]] = {node: [die_at_visit] for node in ("work", "left", "right")}
    process = await world.process(script)
    with pytest.raises(Died):
        await process.start(LOOP)
    await process.die()
    again = await world.process({"work": [counting]})
    await again.resume()
    path = [step for step in await again.completed() if step[0] in "wlr"]
    assert path == ["work#1", "left#1", "work#2", "right#1", "work#3"]


REDIRECTED = """digraph redirected {
  graph [retry_target=work, max_reroutes=2]
  start [shape=Mdiamond]
  exit [shape=Msquare]
  work [prompt="work", goal_gate=true, continue_on_fail=true]
  start -> work -> exit
}"""


async def test_the_budget_of_redirects_survives_crashes(world: World) -> None:
    """K11, O20: a redirect is in the log with the step that it follows from, so no crash gives it back."""
    fail = Result.fail("poor", retryable=False)
    for life in range(3):
        process = await world.process({"work": [fail] * life + [Died("here")]})
        with pytest.raises(Died):
            await (process.resume() if life else process.start(REDIRECTED))
        await process.die()
    last = await world.process({"work": [fail]})
    run = await last.resume()
    assert (run.status, run.reason, run.reroutes) == (RunStatus.FAILED, "goal_unmet", 2)
    assert "after 2 redirects" in run.detail
    assert world.ledger.steps == ["work#1", "work#1", "work#2", "work#2", "work#3", "work#3"]


async def test_a_redirect_is_one_append_with_the_step_that_it_follows_from(world: World) -> None:
    """O20: there is no moment at which the gate was judged and the redirect not stored."""
    process = await world.process({"work": [Result.fail("poor", retryable=False), Result.success()]})
    await process.start(REDIRECTED)
    events = await process.events()
    index = next(n for n, event in enumerate(events) if isinstance(event, GoalRedirected))
    assert isinstance(events[index - 1], StepFinished)
    assert isinstance(events[index + 1], StepStarted)
    assert process.store.calls.count("append") == 2


async def test_a_goal_gate_that_failed_for_good_can_be_tried_again_by_a_person(world: World) -> None:
    fail = Result.fail("poor", retryable=False)
    process = await world.process({"work": [fail, fail, fail, Result.success()]})
    assert (await process.start(REDIRECTED)).reason == "goal_unmet"
    assert (await process.resume()).status is RunStatus.COMPLETED


@pytest.mark.parametrize(("ceiling", "told"), [("max_visits=4", "max_visits"), ("max_steps=9", "max_steps")])
async def test_a_loop_without_end_meets_a_ceiling_that_is_part_of_its_state(
    world: World, ceiling: str, told: str
) -> None:
    source = f"""digraph endless {{
      graph [{ceiling}]
      start [shape=Mdiamond]
      exit [shape=Msquare]
      a [prompt="a"]
      b [prompt="b"]
      start -> a -> b
      b -> a
      b -> exit [condition="context.never=true"]
    }}"""
    await crashed(world, source, at="b")
    process = await world.process()
    run = await process.resume()
    assert (run.status, run.reason) == (RunStatus.FAILED, "pipeline_error")
    assert told in run.detail
    assert run.steps_finished == 9


ROUTES: list[tuple[str, Result, str]] = [
    # A condition that holds beats a suggestion, and a suggestion may not name a node without an edge.
    ("conditions first", Result(suggested_next_ids=("plain",)), "guarded"),
    ("no jump", Result(suggested_next_ids=("far",), context_updates={"flag": "off"}), "heavy"),
    ("suggestion", Result(suggested_next_ids=("plain",), context_updates={"flag": "off"}), "plain"),
    ("label", Result(preferred_label="Plain", context_updates={"flag": "off"}), "plain"),
    ("weight", Result(context_updates={"flag": "off"}), "heavy"),
]


@pytest.mark.parametrize(("case", "result", "target"), ROUTES, ids=[case for case, _, _ in ROUTES])
async def test_a_way_is_chosen_as_the_dialect_says(
    world: World, case: str, result: Result, target: str
) -> None:
    """O18: true conditions by weight, then label, then suggestions among edges, then weight, then name."""
    source = """digraph routes {
      start [shape=Mdiamond]
      exit [shape=Msquare]
      pick [prompt="pick"]
      guarded [prompt="1"]
      weaker [prompt="2"]
      plain [prompt="3"]
      heavy [prompt="4"]
      far [prompt="5"]
      start -> pick
      pick -> weaker [condition="context.flag=on", weight=1]
      pick -> guarded [condition="context.flag=on", weight=5]
      pick -> plain [label="[P] plain"]
      pick -> heavy [weight=9]
      guarded -> exit
      weaker -> exit
      plain -> exit
      heavy -> far -> exit
    }"""
    process = await world.process({"pick": [result]})
    await process.start(source, inputs={"flag": "on"})
    assert world.ledger.steps[1] == f"{target}#1"


async def test_conditions_that_are_all_false_lead_nowhere(world: World) -> None:
    """O18: an edge whose condition does not hold is never taken."""
    source = """digraph nowhere {
      start [shape=Mdiamond]
      exit [shape=Msquare]
      a [prompt="a"]
      b [prompt="b"]
      start -> a
      a -> b [condition="context.flag=on"]
      b -> exit
    }"""
    process = await world.process()
    run = await process.start(source)
    assert run.status is RunStatus.COMPLETED, "no edge leads on after success: the end"
    assert world.ledger.steps == ["a#1"]


async def test_a_stop_names_the_step_and_the_reason(world: World) -> None:
    process = await world.process({"b": [Result.fail("the moon is full", retryable=False)]})
    run = await process.start(line("a", "b"))
    assert (run.stopped_step, run.detail) == ("b#1", "step b#1: the moon is full")
    (failed,) = [event for event in await process.events() if isinstance(event, AttemptFailed)]
    assert (failed.status, failed.reason, failed.retry_at_us) == (StepStatus.FAIL, "the moon is full", None)


async def test_a_holder_that_finds_the_log_grown_plans_again(world: World) -> None:
    """Never appends blindly: the pause that came first is honoured by the very next append."""
    other = await world.process()

    class Overtaken(FaultyStore):
        async def append(self, *arguments: Any) -> None:
            if self.calls.count("append") == 0:
                await other.engine.pause("run", by="ann")
            await super().append(*arguments)

    process = await world.process(wrap=Overtaken)
    run = await process.start(line("a", "b"))
    assert (run.status, run.reason) == (RunStatus.PAUSED, "operator")
    assert world.ledger.steps == ["a#1"]
    kinds = await process.kinds()
    assert kinds[-3:] == ["PauseRequested", "StepFinished", "RunPaused"]
    assert "StepStarted" not in kinds[kinds.index("PauseRequested") :]


async def test_a_run_whose_task_is_cancelled_counts_as_crashed_and_goes_on(world: World) -> None:
    """Cancellation counts as a crash: nothing that correctness needs happens in a `finally`."""
    started = asyncio.Event()

    async def hang(step: StepContext) -> Result:
        started.set()
        await asyncio.Event().wait()
        return Result.success()

    process = await world.process({"b": [hang]})
    driving = asyncio.create_task(process.start(line("a", "b")))
    await started.wait()
    process.store.fail(Fault.REFUSE, times=1_000_000)  # not even a word can be said to the store
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    await process.die()
    assert (await (await world.process()).resume()).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "b#1"]
