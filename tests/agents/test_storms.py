"""Agents of several processes that share limits, die, wait for each other and are raised: never oversold,
never stuck, and in the end the tables are what the logs add up to."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onward.engine.control.limits import LimitChanges
from onward.errors import Refused, RunNotFound
from onward.model.call import CallStarted, call_key
from onward.model.limits import NO_AMOUNTS
from onward.model.run import RunStatus
from onward.store.port.log import RunLog
from onward.store.port.store import Store
from onward.testing.postgres import PostgresServer
from onward.wiring import open_store
from tests.agents.test_agent_step import Scripted, at, model
from tests.chance import examples
from tests.conformance.faults import Around, Died, Fault, FaultyStore
from tests.conftest import Counted
from tests.crash.agents.judging import charged
from tests.world import Process, World, in_memory

CHAT, PROJECT = "chat/c", "project/p"
RUNS = ("one", "two", "three")
SOURCE = """digraph g { start [shape=Mdiamond]; exit [shape=Msquare];
  a [prompt="do it"]; left [prompt="l"]; right [prompt="r"]
  fan [shape=component]; join [shape=tripleoctagon]
  start -> a -> fan; fan -> left -> join; fan -> right -> join; join -> exit }"""
ROUNDS_MAX = 60
DEATHS = (Fault.DIE_BEFORE, Fault.DIE_AFTER)


class Checked(Around[RunLog]):
    """A log after each of whose commits no limit is oversold."""

    async def append(self, *values: Any, **named: Any) -> Any:
        return await self._checked(self.part.append(*values, **named))

    async def control(self, *values: Any, **named: Any) -> Any:
        return await self._checked(self.part.control(*values, **named))

    async def _checked(self, commit: Any) -> Any:
        answer = await commit
        for scope in await self.store.store.limits.read([CHAT, PROJECT]):
            for limit, spent, reserved in zip(scope.limit, scope.spent, scope.reserved, strict=True):
                assert not limit or spent + reserved <= limit, f"{scope.id} is oversold"
        return answer


class Mortal(FaultyStore):
    """Says when its process has died, in whatever task that was; all its tasks end then."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, log=Checked)
        self.died = asyncio.Event()

    async def call(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if self.died.is_set():
            raise Died
        try:
            return await super().call(name, call)
        except Died:
            self.died.set()
            raise


async def live(process: Process, run_id: str) -> None:
    """Start or resume a run; one that a limit stops stays stopped until that is raised."""
    try:
        run = (await process.load(run_id)).run
    except RunNotFound:
        run = await process.start(SOURCE, run_id, chat="c", project="p")
    while not run.is_final:
        try:
            run = await process.resume(run_id)
        except Refused as refused:
            if refused.code not in ("limit_exceeded", "occupied"):
                raise
            return


async def storm(world: World, scripted: Scripted, dice: random.Random) -> Counter[str]:
    """Processes live and die until every run has ended; returns what happened how often."""
    told = Counter[str]()
    admin = await at(world, scripted)
    limits = {"tokens": dice.randint(8_500, 30_000), "calls": dice.randint(2, 6)}
    await admin.store.limits.change(CHAT, {"tokens": limits["tokens"]})
    await admin.store.limits.change(PROJECT, {"calls": limits["calls"]})
    left = [*RUNS]
    for _ in range(ROUNDS_MAX):
        left = [run_id for run_id in RUNS if not await _is_done(admin, run_id)]
        if not left:
            return told
        dice.shuffle(left)
        crews = (left[::2], left[1::2])
        died = await asyncio.gather(*(_crew(world, scripted, dice, crew) for crew in crews))
        told["deaths"] += sum(died)
        if not any(died):
            # A death costs what was reserved, so both may be spent.
            limits["calls"] += dice.randint(1, 4)
            limits["tokens"] += 8_500
            changes = LimitChanges(admin.store, admin.clock)
            await changes.change(PROJECT, {"calls": limits["calls"]}, by="pat")
            await changes.change(CHAT, {"tokens": limits["tokens"]}, by="pat")
            told["raises"] += 1
    raise AssertionError(f"stuck: {left}")


async def _is_done(process: Process, run_id: str) -> bool:
    with suppress(RunNotFound):
        return (await process.load(run_id)).run.status is RunStatus.COMPLETED
    return False


async def _crew(world: World, scripted: Scripted, dice: random.Random, run_ids: list[str]) -> bool:
    """One process with some of the runs; whether it died."""
    stores: list[Mortal] = []

    def wrap(store: Store) -> Mortal:
        stores.append(Mortal(store))
        return stores[0]

    process = await at(world, scripted, wrap=wrap)
    if dice.random() < 0.7:
        process.store.fail(dice.choice(DEATHS), within=dice.randint(2, 40))
    living = [asyncio.create_task(live(process, run_id)) for run_id in run_ids]
    dying = asyncio.create_task(stores[0].died.wait())
    while not all(task.done() for task in living) and not dying.done():
        left = {task for task in living if not task.done()}
        await asyncio.wait({dying, *left}, return_when=asyncio.FIRST_COMPLETED)
    if stores[0].died.is_set():
        await process.die()
        for task in living:
            task.cancel()
    dying.cancel()
    ended = await asyncio.gather(*living, return_exceptions=True)
    problems = [one for one in ended if isinstance(one, Exception)]
    assert stores[0].died.is_set() or problems == []
    return stores[0].died.is_set()


@pytest.mark.parametrize("seeds", [range(0, 15), range(15, 30)])
async def test_agents_that_share_limits_and_die_are_never_oversold_and_never_stuck(
    seeds: range, count: Counted
) -> None:
    """I30, I32, I33, I36: on real engines, with two processes at a time."""
    told = Counter[str]()
    for seed in seeds:
        async with in_memory() as world:
            scripted = model(default="Some words of an answer.")
            told += await storm(world, scripted, random.Random(seed))
            await judge(world, scripted, seed)
    count(f"{len(seeds)} storms of agents: {dict(told)}")
    assert told["deaths"] > 0
    assert told["raises"] > 0


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[int], str]]:
    """The address of a new database, by its number."""
    if request.param == "sqlite":
        yield lambda number: str(tmp_path / f"{number}.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    template: str = request.getfixturevalue("postgres_template")
    made: list[str] = []

    def make(number: int) -> str:
        made.append(server.create_database(template=template))
        return made[-1]

    yield make
    for url in made:
        server.drop_database(url)


@pytest.mark.timeout(300)
async def test_agents_that_share_limits_and_die_are_never_oversold_at_a_database(
    new_database: Callable[[int], str], count: Counted
) -> None:
    """I30, I32, I33, I36: the same storms, where commits of two processes come between each other."""
    told, seeds = Counter[str](), range(examples(3).max_examples)
    for seed in seeds:
        world = World(partial(open_store, new_database(seed)), "database")
        scripted = model(default="Some words of an answer.")
        try:
            told += await storm(world, scripted, random.Random(seed))
            await judge(world, scripted, seed)
        finally:
            await world.close()
    count(f"{len(seeds)} storms of agents at a database: {dict(told)}")
    assert told["deaths"] > 0


async def judge(world: World, scripted: Scripted, seed: int) -> None:
    """No request was made without a start in the log, and what was spent is what the logs add up to."""
    witness, total = await world.process(), NO_AMOUNTS
    asked = Counter(one.idempotency_key for one in scripted.received)
    for run_id in RUNS:
        assert await witness.is_sound(run_id)
        events = await witness.events(run_id)
        total = total.plus(charged(events))
        begun = Counter(
            call_key(run_id, event.step, event.call, 0) for event in events if isinstance(event, CallStarted)
        )
        for key, number in begun.items():
            assert asked[key] <= number, f"seed {seed}: {key} was asked without a start"
    for scope in await witness.store.limits.read([CHAT, PROJECT]):
        assert (scope.spent, scope.reserved) == (total, NO_AMOUNTS), f"seed {seed}"
