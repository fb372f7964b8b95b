"""Where a run goes: the chosen edge, loops and ceilings, goal gates and the way back; also after crashes."""

from __future__ import annotations

import pytest

from onward.handlers.port import StepContext
from onward.model.events import GoalRedirected, StepFinished, StepStarted
from onward.model.result import Result
from onward.model.run import RunStatus
from tests.conformance.faults import Died
from tests.conformance.handlers import Act
from tests.engine.test_resume_doors import crashed
from tests.world import World

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
    """K11, O20, S3-5, B4-1: a redirect is in the log with its step, so no crash gives it back."""
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
    assert process.store.calls.count("log.append") == 2


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
    """O18: true conditions by weight, then label, then suggestions among edges, then weight, then name.

    D25, P8.
    """
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
