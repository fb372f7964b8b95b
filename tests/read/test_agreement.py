"""Pages, receipts and progress lines say the same about a run's steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from onward.cli.options import COMMON
from onward.cli.print.progress import Narrator
from onward.cli.print.run import run_page
from onward.engine.files.receipts import Definitions, leavings
from onward.handlers.port import StepContext
from onward.model.events import Event
from onward.model.result import Result
from onward.model.run import Run
from onward.operations.local.operations import LocalOperations
from onward.operations.requests import ShowRun
from onward.receipts.receipt import Receipt
from onward.receipts.trail import Trail
from onward.testing.clock import ManualClock
from tests.conformance.faults import Died
from tests.world import Process, World, line

FAN = """digraph fan {
  start [shape=Mdiamond]; exit [shape=Msquare]
  fan [shape=component]; join [shape=tripleoctagon]
  a [prompt="do"]; b [prompt="do"]
  start -> fan; fan -> a -> join; fan -> b -> join; join -> exit
}"""


class Told:
    """What a foreground process prints while it drives a run."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._narrator = Narrator()

    def __call__(self, run: Run, events: Sequence[Event]) -> None:
        self.lines += [line.text for line in self._narrator.lines(run, events)]

    def finished(self, step: str) -> str:
        (found,) = [line for line in self.lines if line.startswith(f"  finished  {step} ")]
        return found.removeprefix(f"  finished  {step}  ")


def lasting(
    clock: ManualClock, seconds: float, *, dies: bool = False, fails: bool = False
) -> Callable[[StepContext], Any]:
    async def act(step: StepContext) -> Result:
        clock.advance(seconds)
        if dies:
            raise Died("here")
        return Result.fail("broken") if fails else Result.success()

    return act


async def shown(process: Process, step: str) -> dict[str, Any]:
    view = await LocalOperations(process.engine, process.clock).look.show_run(ShowRun(run="run"))
    (found,) = [one for one in view["steps"] if one["step"] == step]
    row = next(text for text in run_page(view, COMMON, 0) if text.startswith(f"{step} "))
    return {**found, "row": row.split()}


async def receipt(process: Process, step: str) -> Receipt:
    run = (await process.load()).run
    found = leavings(process.store.log, Definitions(process.engine.sources), run, Trail("run", run.pipeline))
    (only,) = [left.receipt async for left in found if left.receipt.step_id == step]
    return only


async def test_a_resumed_step_has_the_same_attempts_and_duration_everywhere(world: World) -> None:
    """A crash after 6 s, 10 s in which no process holds the run, and 5 s of work: one attempt in two tries.

    When the lost try ended is not known, so only the 5 s count as work; the 21 s are said beside them.
    """
    clock, told = ManualClock(), Told()
    process = await world.process({"a": [lasting(clock, 6, dies=True)]}, clock=clock)
    with pytest.raises(Died):
        await process.start(line("a"))
    await process.die()
    clock.advance(10)
    process = await world.process({"a": [lasting(clock, 5)]}, clock=clock, observe=told)
    await process.resume()
    left, view = await receipt(process, "a#1"), await shown(process, "a#1")
    assert ([(one.attempt, one.number) for one in left.attempts], left.duration_ms) == (
        [(1, 1), (1, 2)],
        5_000,
    )
    assert (view["attempts"], view["duration_s"], view["elapsed_s"]) == (1, 5.0, 21.0)
    assert view["row"] == ["a#1", "success", "1", "(2", "tries)", "5.0", "s"]
    assert [one["duration_s"] for one in view["tries"]] == [None, 5.0]
    assert told.finished("a#1") == "success  5.0 s  2 tries"


async def test_the_pause_before_a_retry_is_not_time_that_a_step_took(world: World) -> None:
    clock, told = ManualClock(), Told()
    process = await world.process(
        {"a": [lasting(clock, 2, fails=True), lasting(clock, 3)]}, clock=clock, observe=told
    )
    await process.start(line("a", a="max_retries=1"))
    left, view = await receipt(process, "a#1"), await shown(process, "a#1")
    assert (view["attempts"], view["duration_s"], left.duration_ms) == (2, 5.0, 5_000)
    assert view["elapsed_s"] > 5.0
    assert view["row"] == ["a#1", "success", "2", "5.0", "s"]
    assert told.finished("a#1") == "success  5.0 s  2 attempts"


async def test_a_step_that_failed_shows_how_long_it_took(world: World) -> None:
    clock = ManualClock()
    process = await world.process({"a": [lasting(clock, 2, fails=True)]}, clock=clock)
    await process.start(line("a"))
    view = await shown(process, "a#1")
    assert (view["status"], view["duration_s"], view["finished_at"]) == ("failed", 2.0, None)


async def test_a_fan_out_takes_as_long_as_its_branches(world: World) -> None:
    clock, told = ManualClock(), Told()
    script = {"a": [lasting(clock, 4)], "b": [lasting(clock, 3)]}
    process = await world.process(script, clock=clock, observe=told)
    await process.start(FAN)
    left, view = await receipt(process, "fan#1"), await shown(process, "fan#1")
    assert left.duration_ms == 7_000
    assert (view["attempts"], view["duration_s"]) == (1, 7.0)
    assert told.finished("fan#1") == "success  7.0 s"


@pytest.mark.parametrize(("attribute", "state"), [("repeatable=false", "in_doubt"), ("", "interrupted")])
async def test_a_step_whose_process_died_is_not_running(world: World, attribute: str, state: str) -> None:
    process = await world.process({"a": [Died("here")]})
    with pytest.raises(Died):
        await process.start(line("a", a=attribute))
    await process.die()
    process = await world.process()
    assert (await shown(process, "a#1"))["status"] == state


async def test_a_step_at_work_is_running(world: World) -> None:
    seen: list[str] = []

    async def look(step: StepContext) -> Result:
        seen.append((await shown(process, "a#1"))["status"])
        return Result.success()

    process = await world.process({"a": [look]})
    await process.start(line("a", a="repeatable=false"))
    assert seen == ["running"]


async def test_nothing_that_failed_is_printed_as_if_it_went_well(world: World) -> None:
    tones: dict[str, str] = {}
    narrator = Narrator()

    def look(run: Run, events: Sequence[Event]) -> None:
        tones.update({line.text.split()[1]: line.tone for line in narrator.lines(run, events)})

    script = {"a": [Result.fail("broken")], "b": [Result.success()]}
    process = await world.process(script, observe=look)
    await process.start(FAN)
    assert (tones["fan#1.a/a#1"], tones["fan#1.a"], tones["fan#1.b/b#1"]) == ("failed", "failed", "finished")
