"""Die at every call to the store, before and after its effect, and let a fresh process finish (K1, K2).

The calls of one undisturbed life are counted. Then, for every one of them and for both sides of its effect,
a process dies there and another one goes on. What comes of it must be what comes of an undisturbed life: the
same path, the same context, no finished step performed again, and a log that verifies. Faults that a process
survives, such as a commit that happened and was reported as a time-out, must not show at all.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from onward.errors import RunNotFound, StoreError
from onward.handlers.port import StepContext
from onward.model.events import StepStatus
from onward.model.result import Result
from onward.model.run import Run, RunStatus
from tests.conformance.faults import WRITES, Died, Fault, FaultyStore
from tests.conformance.handlers import Act, Call
from tests.world import Process, World

PIPELINE = """digraph story {
  graph [goal="a story", retry_target=publish]
  start [shape=Mdiamond]
  exit [shape=Msquare]
  draft [prompt="draft"]
  review [prompt="review", max_retries=2]
  choose [shape=diamond]
  ask [shape=hexagon, label="Publish?"]
  publish [prompt="publish"]
  proof [prompt="read", goal_gate=true, continue_on_fail=true]
  start -> draft -> review -> choose
  choose -> ask [condition="outcome=success"]
  choose -> draft [condition="outcome=fail"]
  ask -> publish [label="[Y] yes"]
  ask -> draft [label="[N] no"]
  publish -> proof -> exit
}"""
COUNTED = WRITES | {"log.load", "blobs.find"}
DEATHS = (Fault.DIE_BEFORE, Fault.DIE_AFTER)
SEEDS = {"memory": 100, "sqlite": 20, "postgres": 5}


def does(status: StepStatus = StepStatus.SUCCESS, *, retryable: bool = True) -> Act:
    """An act that adds its step to the story, so that the context tells the path."""

    async def act(step: StepContext) -> Result:
        story = [*step.get("story", []), step.step]
        updates = {"story": story, f"large.{step.node.id}": step.step * 2_000}
        return Result(status=status, context_updates=updates, failure_reason="as asked", retryable=retryable)

    return act


SCRIPT: dict[str, list[Act]] = {
    "draft": [does()],
    "review": [does(StepStatus.RETRY), does(StepStatus.FAIL, retryable=False), does()],
    "publish": [does()],
    "proof": [does(StepStatus.FAIL, retryable=False), does()],
}
PATH = (
    *("start#1", "draft#1", "review#1", "choose#1", "draft#2", "review#2", "choose#2", "ask#1"),
    *("publish#1", "proof#1", "publish#2", "proof#2", "exit#1"),
)


@dataclass(frozen=True)
class Story:
    """What became of a run, as far as it may not depend on accidents."""

    status: RunStatus
    completed: tuple[str, ...]
    context: dict[str, Any]
    outcomes: dict[str, str]
    reroutes: int
    effects: frozenset[tuple[str, int, str]]


def counting(store: Any) -> FaultyStore:
    return FaultyStore(store, counted=COUNTED)


async def live(process: Process, run_id: str) -> Run:
    """Bring a run to its end from whatever state it is found in: what a person with a terminal would do."""
    try:
        run = (await process.load(run_id)).run
    except RunNotFound:
        run = await process.start(PIPELINE, run_id)
    while not run.is_final:
        if run.status is RunStatus.WAITING:
            run = (await process.engine.answer(run_id, "yes", by="ann")).run
        else:
            run = await process.resume(run_id)
    return run


async def story_of(process: Process, run_id: str, calls: list[Call]) -> Story:
    run = (await process.load(run_id)).run
    assert await process.is_sound(run_id)
    return Story(
        run.status,
        tuple(await process.completed(run_id)),
        run.context.plain(),
        run.outcomes.plain(),
        run.reroutes,
        frozenset((call.step, call.attempt, call.idempotency_key.removeprefix(run_id)) for call in calls),
    )


def calls_of(world: World, run_id: str) -> list[Call]:
    return [call for call in world.ledger.calls if call.run_id == run_id]


async def undisturbed(world: World) -> tuple[Story, list[str]]:
    """The story that must come out, and the calls to the store that one life makes."""
    process = await world.process(SCRIPT, wrap=counting)
    await live(process, "calm")
    calls, effects = list(process.store.calls), calls_of(world, "calm")
    story = await story_of(process, "calm", effects)
    assert story.completed == PATH
    assert (story.status, story.reroutes) == (RunStatus.COMPLETED, 1)
    assert len(effects) == len(story.effects) == 9, "nothing is performed twice without a reason"
    return story, calls


async def disturbed(world: World, run_id: str, deaths: list[tuple[int, Fault]]) -> Story:
    """A life for every death, and one more to finish; checks after each what must hold then."""
    for at, fault in deaths:
        process = await world.process(SCRIPT, wrap=counting)
        process.store.fail(fault, within=at)
        try:
            await live(process, run_id)
        except Died:
            await process.die()
            await look_back(world, run_id)
            continue
        break
    last = await world.process(SCRIPT, wrap=counting)
    finished, performed = await look_back(world, run_id), len(calls_of(world, run_id))
    await live(last, run_id)
    again = [call.step for call in calls_of(world, run_id)[performed:] if call.step in finished]
    assert again == [], "a finished step was performed again"
    return await story_of(last, run_id, calls_of(world, run_id))


async def look_back(world: World, run_id: str) -> set[str]:
    """What the log says was finished; every effect that it knows of was really performed."""
    witness = await world.process()
    try:
        finished = await witness.completed(run_id)
        if finished:
            assert await witness.is_sound(run_id)
    finally:
        await witness.die()
    assert len(finished) == len(set(finished)), "a step has two outcomes"
    performed = {call.step for call in calls_of(world, run_id)}
    effects = {step for step in finished if step.partition("#")[0] in SCRIPT}
    assert effects <= performed, "the log knows of an effect that never happened"
    return set(finished)


@pytest.mark.parametrize("fault", DEATHS)
async def test_a_death_at_any_call_changes_nothing_in_the_end(world: World, fault: Fault) -> None:
    """K1, K2: memory and SQLite at every call; PostgreSQL, whose round trips take time, at every third.

    P22.
    """
    calm, calls = await undisturbed(world)
    points = range(1, len(calls) + 1, 3 if world.kind == "postgres" else 1)
    repeats: Counter[int] = Counter()
    for at in points:
        run_id = f"run-{at}"
        assert await disturbed(world, run_id, [(at, fault)]) == calm, f"{fault} at call {at}, {calls[at - 1]}"
        repeats[len(calls_of(world, run_id)) - 9] += 1
    print(f"{world.kind}: {len(points)} deaths of kind {fault!r}; repeated effects: {dict(repeats)}")
    assert set(repeats) <= {0, 1}, "one death repeats at most the one effect that was under way"
    assert repeats[0] > 0
    if fault is Fault.DIE_BEFORE:
        assert repeats[1] > 0, "no death hit an effect that was not recorded yet: this proves nothing"


async def test_several_deaths_in_a_row_change_nothing_in_the_end(world: World) -> None:
    """K1: every life may be short; a seed says where each ends."""
    calm, _ = await undisturbed(world)
    for seed in range(SEEDS[world.kind]):
        chance = random.Random(seed)
        deaths = [(chance.randint(2, 14), chance.choice(DEATHS)) for _ in range(chance.randint(2, 12))]
        assert await disturbed(world, f"run-{seed}", deaths) == calm, f"seed {seed}: {deaths}"


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.REFUSE])
async def test_an_ambiguous_commit_is_resolved_by_asking_again(world: World, fault: Fault) -> None:
    """I15, O16: a write that happened and was reported as failed, or did not happen, goes unnoticed. H1."""
    calm, calls = await undisturbed(world)
    writes = [call for call in calls if call in WRITES]
    for at in range(1, len(writes) + 1):
        process = await world.process(SCRIPT, wrap=lambda store: FaultyStore(store, counted=WRITES))
        process.store.fail(fault, within=at)
        run_id = f"run-{at}"
        assert (await live(process, run_id)).status is RunStatus.COMPLETED
        story = await story_of(process, run_id, calls_of(world, run_id))
        assert story == calm, f"{fault} at write {at}, {writes[at - 1]}"
        assert len(calls_of(world, run_id)) == 9, "no effect is performed twice"
        assert len(process.store.calls) == len(writes) + 1
        await process.die()


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.REFUSE])
async def test_a_long_outage_ends_the_life_and_the_same_process_goes_on_after_it(
    world: World, fault: Fault
) -> None:
    """O16: the store comes back; nobody has to end the process that owns the run for it to go on. H18."""
    calm, calls = await undisturbed(world)
    for at in range(2, len(calls) + 1, 3 if world.kind == "postgres" else 1):
        process, run_id = await world.process(SCRIPT, wrap=counting), f"run-{at}"
        process.store.fail(fault, within=at, times=1_000_000)
        with pytest.raises(StoreError):
            await live(process, run_id)
        process.store.fault = None
        await live(process, run_id)
        story = await story_of(process, run_id, calls_of(world, run_id))
        assert story == calm, f"{fault} from call {at} on, {calls[at - 1]}"
        assert len(calls_of(world, run_id)) in (9, 10)
        await process.die()
