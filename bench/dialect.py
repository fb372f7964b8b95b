"""How long a definition takes: reading, preparing and checking it, and planning a step of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from onward.machine.definition import Definition
from onward.machine.lifecycle import apply
from onward.machine.plan.action import Execute
from onward.machine.plan.planner import advance
from onward.machine.plan.results import finish
from onward.model.events import RunClaimed, RunCreated
from onward.model.result import Result
from onward.pipeline.build import build
from onward.pipeline.dot import read

STEPS = 200


@dataclass(frozen=True, slots=True)
class Timing:
    """One measurement, and the most that it may be."""

    what: str
    took: float
    limit: float
    unit: str


def written(nodes: int) -> str:
    """A pipeline as people write them: prompts, classes, time limits, conditions, a way back now and then."""
    names = [f"n{number}" for number in range(nodes - 2)]
    lines = ['goal = "Ship it"', 'model_stylesheet = "* { llm_model: m } .deep { llm_model: d }"']
    lines += ["start [shape=Mdiamond]", "exit [shape=Msquare]"]
    lines += [f'{name} [label="Step {name}", prompt="Do {name} of $goal", class=deep]' for name in names]
    lines += [f"start -> {names[0]}", f"{names[-1]} -> exit"]
    for place, (name, following) in enumerate(pairwise(names)):
        lines.append(f'{name} -> {following} [condition="outcome=success"]')
        if place % 5 == 4:
            lines.append(f'{name} -> {names[place - 3]} [condition="outcome=fail", label="again"]')
    return "digraph written {\n  " + "\n  ".join(lines) + "\n}\n"


def dialect_timings(rounds: int) -> list[Timing]:
    """The median of so many rounds each, in time of the processor: all of this is computing."""
    thousand, large = written(1_000), written(5_000)
    small_step, large_step = step_us(written(50), rounds), step_us(large, rounds)
    return [
        Timing("reading 1,000 nodes", median_ms(lambda: read(thousand, file="<b>"), rounds), 100, "ms"),
        Timing("reading and checking 5,000 nodes", median_ms(lambda: built(large), rounds), 1_000, "ms"),
        Timing("planning a step of 5,000 nodes against 50", large_step / small_step, 2, "x"),
    ]


def built(source: str) -> Definition:
    return Definition(build(source, file="<bench>").graph)


def median_ms(work: Callable[[], object], rounds: int) -> float:
    return statistics.median(_seconds(work) for _ in range(rounds)) * 1_000


def step_us(source: str, rounds: int) -> float:
    """Microseconds that the planner needs for one step, without store and handler."""
    definition = built(source)
    plan_steps(definition)  # what is looked up once is looked up now
    return median_ms(lambda: plan_steps(definition), rounds) * 1_000 / STEPS


def plan_steps(definition: Definition) -> None:
    """Walk in the first loop of the pipeline, through plan, finish and fold."""
    first = RunCreated(pipeline="b", pipeline_hash="h", start_node="n0", context={})
    run = apply(None, first, run_id="r", at_us=0, token=0)
    run = apply(run, RunClaimed(token=1, worker="w"), run_id="r", at_us=0, token=1)
    for _ in range(STEPS):
        ahead = advance(definition, run, (), now_us=0, stop_reason=None)
        assert isinstance(ahead.action, Execute)
        fails = ahead.action.started.node == "n4"
        result = Result.fail("again", retryable=False) if fails else Result.success()
        ended = finish(definition, ahead.run, ahead.action.started.step, result, now_us=0, jitter=0.5)
        run = ahead.run
        for event in ended:
            run = apply(run, event, run_id="r", at_us=0, token=1)


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
