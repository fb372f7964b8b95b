"""Random programs come to what the model says, whatever happens to the processes that run them.

A program is drawn, written down as DOT and run; a model that knows the program and not the engine says which
steps every line finishes, with what context, after how many attempts. Branches finish in any order, so lines
are compared one by one, never across each other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, note
from hypothesis import strategies as st

from onward.engine.claims import Observer
from onward.engine.engine import ignore
from onward.engine.stop import StopSwitch
from onward.errors import RunNotFound
from onward.model.events import BranchFinished, Event, ParallelStarted, StepFinished, StepStarted
from onward.model.ids import branch_of
from onward.model.run import Run, RunStatus
from onward.wiring import open_store
from tests.chance import examples
from tests.conformance.faults import WRITES, Died, Fault, FaultyStore
from tests.conformance.handlers import Call
from tests.dialect.counting import Counting
from tests.dialect.predicted import Prediction, predict
from tests.dialect.program import Block, Choice, Goal, Loop, Work, answer_of, dot, numbered, programs
from tests.world import Process, World, in_memory

RESULTS = "parallel.results"
DEATHS = (Fault.DIE_BEFORE, Fault.DIE_AFTER)
SMALL = programs(depth=2, length=2)
# A goal sends the run back into a loop that a dead end had left in its middle.
REENTERED = numbered(
    (
        Loop(
            blocks=((Work(counter="a"), Choice(blocks=((Goal(),), ()), counter="a", even="dead_end")),),
            times=2,
        ),
    )
)


async def process_of(world: World, observe: Observer = ignore) -> Process:
    return await world.process(
        handlers={"count": Counting(world.ledger)},
        wrap=lambda store: FaultyStore(store, counted=WRITES),
        observe=observe,
    )


async def live(process: Process, source: str, run_id: str, stop: StopSwitch | None = None) -> Run:
    """Bring a run to its end from whatever state it is found in, answering what it asks by the rule.

    It ends before that if the process is asked to stop.
    """
    stop = stop or StopSwitch()
    try:
        run = (await process.load(run_id)).run
    except RunNotFound:
        run = await process.start(source, run_id, stop=stop)
    while not run.is_final and run.status is not RunStatus.FAILED and stop.reason is None:
        if run.status is RunStatus.WAITING:
            gate = next(gate.gate for gate in run.gates.values() if gate.decided is None)
            answer = answer_of(gate)
            run = (await process.engine.answer(run_id, answer, by="rule", gate=gate, stop=stop)).run
        else:
            run = await process.resume(run_id, stop=stop)
    return run


def by_line(steps: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for step in steps:
        path, _, name = step.rpartition("/")
        found.setdefault(path, []).append(name)
    return found


def without_reasons(value: Any) -> Any:
    """A context without the words in which failures are explained."""
    if isinstance(value, dict):
        return {key: without_reasons(one) for key, one in value.items() if key != "failure_reason"}
    return [without_reasons(one) for one in value] if isinstance(value, list) else value


async def check(process: Process, run_id: str, expected: Prediction, *, calls: list[Call]) -> None:
    """Everything that the model says, and that the log can be believed."""
    run = (await process.load(run_id)).run
    steps = await process.completed(run_id)
    assert by_line(steps) == expected.steps
    context = {key: value for key, value in run.context.items() if not key.startswith("graph.")}
    assert without_reasons(context) == expected.context
    assert (run.status.value, run.reason, run.reroutes) == (
        expected.status,
        expected.reason,
        expected.reroutes,
    )
    assert (run.parallels, list(run.branches)) == ({}, [""])
    outcomes = [event for event in await process.events(run_id) if isinstance(event, StepFinished)]
    finished = {event.step: event.attempt for event in outcomes}
    assert len(finished) == len(steps), "a step has two outcomes"
    assert {event.step: event.outcome.status.value for event in outcomes} == expected.statuses
    for step, attempts in expected.attempts.items():
        performed = {call.attempt for call in calls if call.step == step}
        tried = max(performed, default=0)
        assert performed == set(range(1, tried + 1)), step
        assert tried == finished.get(step, tried), step
        assert tried >= attempts if step in expected.hopeless else tried == attempts, step
    assert {call.step for call in calls} == expected.attempts.keys()
    assert await process.is_sound(run_id)


def calls_of(world: World, run_id: str) -> list[Call]:
    return [call for call in world.ledger.calls if call.run_id == run_id]


async def undisturbed(world: World, program: Block, run_id: str = "calm") -> int:
    """Run a program in one life; returns how often it wrote."""
    process, expected = await process_of(world), predict(program)
    await live(process, dot(program), run_id)
    calls = calls_of(world, run_id)
    await check(process, run_id, expected, calls=calls)
    assert len(calls) == sum(expected.attempts.values()), "an effect was performed twice without a reason"
    return len(process.store.calls)


async def disturbed(world: World, program: Block, run_id: str, deaths: list[tuple[int, Fault]]) -> None:
    """A life for every death, and one more to finish; no life performs what had been finished before it."""
    source = dot(program)
    for at, fault in deaths:
        process = await process_of(world)
        process.store.fail(fault, within=at)
        try:
            await one_life(world, process, source, run_id)
        except Died:
            await process.die()
    last = await process_of(world)
    await one_life(world, last, source, run_id)
    await check(last, run_id, predict(program), calls=calls_of(world, run_id))
    await last.die()


async def one_life(world: World, process: Process, source: str, run_id: str) -> None:
    before = len(calls_of(world, run_id))
    finished = await process.completed(run_id)
    try:
        await live(process, source, run_id)
    finally:
        again = [call.step for call in calls_of(world, run_id)[before:] if call.step in finished]
        assert again == [], "a finished step was performed again"


# -- a database for each example ---------------------------------------------------------------------


@asynccontextmanager
async def stored(db: str, kind: str) -> AsyncIterator[World]:
    world = World(lambda: open_store(db), kind)
    try:
        yield world
    finally:
        await world.close()


def run(scene: Callable[[World], Awaitable[None]], at: AbstractAsyncContextManager[World]) -> None:
    """Play a scene in an event loop of its own."""

    async def play() -> None:
        async with at as world:
            await scene(world)

    asyncio.run(play())


# -- the sentences -----------------------------------------------------------------------------------


@given(programs())
@example(REENTERED)
@examples(60)
def test_a_program_comes_to_what_the_model_says(program: Block) -> None:
    """P7 to P16, P20, D28 to D34, D43, D44: path and context of every line, attempts, results, the end.

    I38, O18, D26.
    """
    calmly(program)


@pytest.mark.slow
@given(programs(depth=4, length=3))
@examples(60)
def test_a_larger_program_comes_to_what_the_model_says(program: Block) -> None:
    calmly(program)


def calmly(program: Block) -> None:
    note(dot(program))

    async def scene(world: World) -> None:
        await undisturbed(world, program)

    run(scene, in_memory())


async def killed_at_every_write(world: World, program: Block) -> None:
    writes = await undisturbed(world, program)
    for number in range(1, writes + 1):
        for fault in DEATHS:
            run_id = f"{number}-{fault.name.lower().replace('_', '-')}"
            note(run_id)
            await disturbed(world, program, run_id, [(number, fault)])


@pytest.mark.slow
@given(SMALL)
@examples(12)
def test_a_death_at_any_write_changes_nothing_in_the_end(program: Block) -> None:
    """K1, K14, P17: before the effect of each write and after it, in memory."""
    note(dot(program))
    run(lambda world: killed_at_every_write(world, program), in_memory())


@pytest.mark.slow
@given(SMALL)
@examples(4)
def test_a_death_at_any_write_to_a_file_changes_nothing_in_the_end(program: Block) -> None:
    """K1, K14: the same on SQLite."""
    note(dot(program))
    with TemporaryDirectory() as directory:
        run(
            lambda world: killed_at_every_write(world, program),
            stored(str(Path(directory) / "onward.db"), "sqlite"),
        )


async def killed_at_random(world: World, program: Block, seed: int, run_id: str, lives: int) -> None:
    calm = await undisturbed(world, program, f"{run_id}-calm")
    chance = random.Random(seed)
    deaths = [(chance.randint(1, calm), chance.choice(DEATHS)) for _ in range(lives)]
    note(str(deaths))
    await disturbed(world, program, run_id, deaths)


@pytest.mark.slow
@given(programs(), st.integers(0, 2**32), st.integers(2, 4))
@examples(20)
def test_several_deaths_change_nothing_in_the_end(program: Block, seed: int, lives: int) -> None:
    """K1, K14: a process that goes on may die as well. Five in a row would be a crash loop."""
    note(dot(program))
    run(lambda world: killed_at_random(world, program, seed, "run", lives), in_memory())


async def stopped_at_every_event(world: World, program: Block) -> None:
    """One life for each thing that is written: a signal comes just then, and another process goes on."""
    await undisturbed(world, program)
    source, expected, is_over = dot(program), predict(program), False
    for number in count(1):
        if is_over:
            break
        run_id, stop, written = f"run-{number}", StopSwitch(), count(1)

        def observe(run: Run, events: Sequence[Event], after: int = number) -> None:
            if next(written) == after:  # noqa: B023 - it is called before the loop goes on
                stop.request("signal")  # noqa: B023

        await live(await process_of(world, observe), source, run_id, stop)
        is_over = stop.reason is None
        last = await process_of(world)
        await live(last, source, run_id)
        calls = calls_of(world, run_id)
        await check(last, run_id, expected, calls=calls)
        if expected.reason != "step_failed":  # whoever resumes tries a failed step once more
            assert len(calls) == sum(expected.attempts.values()), "a pause repeats and spends nothing"


@pytest.mark.slow
@given(SMALL)
@examples(12)
def test_a_signal_at_any_moment_changes_and_repeats_nothing(program: Block) -> None:
    """K16: what is under way ends by itself, in every branch; not even a retry is tried once more."""
    note(dot(program))
    run(lambda world: stopped_at_every_event(world, program), in_memory())


async def raced(world: World, program: Block, seed: int) -> None:
    """Who wins is chance, but whoever wins, the log tells a possible story, and nothing is done twice."""
    source = dot(program).replace("shape=component", "shape=component, join_policy=first_success")
    chance, faults = random.Random(seed), iter(DEATHS)
    for fault in faults:
        process = await process_of(world)
        process.store.fail(fault, within=chance.randint(1, 12))
        try:
            await one_life(world, process, source, "run")
        except Died:
            await process.die()
    last = await process_of(world)
    await one_life(world, last, source, "run")
    assert await last.is_sound("run")
    run = (await last.load("run")).run
    assert (run.parallels, list(run.branches), run.gates) == ({}, [""], {})
    events = await last.events("run")
    check_races(events)
    steps = [event.step for event in events if isinstance(event, StepFinished)]
    assert len(steps) == len(set(steps)), "a step has two outcomes"


def check_races(events: Sequence[Event]) -> None:
    fans: set[str] = set()
    ended: dict[str, str] = {}
    for event in events:
        match event:
            case ParallelStarted():
                fans.add(event.step)
            case BranchFinished():
                assert event.branch not in ended, "a branch ends once"
                ended[event.branch] = event.status
            case StepStarted() | StepFinished():
                assert branch_of(event.step) not in ended, "nothing happens in a branch that has ended"
        if isinstance(event, StepFinished) and event.step in fans:
            statuses = [result["status"] for result in event.context.get(RESULTS, ())]
            has_won = any(status in ("success", "partial_success") for status in statuses)
            assert event.outcome.status.value in ("success" if has_won else "fail", "skipped")


@pytest.mark.slow
@given(programs(), st.integers(0, 2**32))
@examples(30)
def test_a_race_has_a_winner_whoever_dies(program: Block, seed: int) -> None:
    """Branches of which the first success counts: losers end with the race, those inside them as well."""
    note(dot(program))
    run(lambda world: raced(world, program, seed), in_memory())


@pytest.mark.slow
@pytest.mark.postgres
def test_deaths_at_random_on_a_server_change_nothing_in_the_end(postgres_emptied_url: str) -> None:
    """K1, K14: on PostgreSQL, where every process has a connection of its own."""
    numbers = count(1)

    @given(programs(depth=2, length=3), st.integers(0, 2**32))
    @examples(8)
    def example(program: Block, seed: int) -> None:
        note(dot(program))
        run_id = f"run-{next(numbers)}"
        run(
            lambda world: killed_at_random(world, program, seed, run_id, 2),
            stored(postgres_emptied_url, "postgres"),
        )

    example()
