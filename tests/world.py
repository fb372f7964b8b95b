"""A database and the processes at it: what tests of the engine stand on.

Each `Process` is an engine with a store of its own, ids and dice of its own seed, and a faulty store around
the real one, so that it can die in any call. Each has a manual clock of its own, as processes do, unless the
test hands them one; all share one ledger of effects.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from onward.engine.claims import Observer
from onward.engine.control.requests import Resume, StartRequest
from onward.engine.engine import Engine, Extensions, Surroundings, ignore
from onward.engine.files.run_files import RunFiles
from onward.engine.log import Folded
from onward.engine.stop import StopSwitch
from onward.handlers.port import Handler
from onward.model.events import Event
from onward.model.run import Run
from onward.operations.here.verify import verify_run
from onward.pipeline.build import Pipeline, Transform
from onward.pipeline.rules.check import RULES
from onward.pipeline.rules.rule import Rule
from onward.read.lookup import completed_of, read_checkpoints
from onward.read.view import view_row
from onward.redact.redactor import NOTHING_SECRET, Redactor
from onward.replies.runs import RunListed
from onward.replies.steps import Checkpoint
from onward.store.codec import unseal
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.log import StoredEvent
from onward.store.port.store import Store
from onward.store.postgres.leases import PostgresWorkers
from onward.testing.clock import ManualClock, SeededDice, SeededIds
from onward.workspace.port import Trees
from tests.conformance.faults import FaultyStore
from tests.conformance.handlers import Act, Ledger, Scripted

Connect = Callable[[], Awaitable[Store]]
Script = Mapping[str, Sequence[Act]]
PATIENCE_S = 120  # threads and databases may be slow where others work too


def line(*nodes: str, **attrs: str) -> str:
    """A pipeline of nodes in a line; `attrs` are attributes of a node, as they are written in DOT."""
    declared = "\n".join(f'  {node} [prompt="do it", {attrs.get(node, "")}]' for node in nodes)
    ends = "  start [shape=Mdiamond]\n  exit [shape=Msquare]"
    return f"digraph line {{\n{ends}\n{declared}\n  {chain(*nodes)}\n}}"


def chain(*nodes: str) -> str:
    return " -> ".join(("start", *nodes, "exit"))


async def until(condition: Callable[[], bool]) -> None:
    """Give everybody turns until the condition holds; a test that waits in vain fails instead of hanging."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at, "waited in vain"
        await asyncio.sleep(0)


@dataclass(eq=False)
class Process:
    """One process at a database."""

    world: World
    store: FaultyStore
    engine: Engine
    agent: Scripted
    clock: ManualClock

    def pipeline(self, source: str) -> Pipeline:
        return self.engine.sources.prepare(source, "<test>")

    async def start(
        self, source: str, run_id: str = "run", *, stop: StopSwitch | None = None, **start: Any
    ) -> Run:
        """Create a run from a pipeline's text and drive it until it stops."""
        begun = StartRequest(run_id=run_id, **start)
        return (await self.engine.start(self.pipeline(source), begun, stop)).run

    async def resume(self, run_id: str = "run", *, stop: StopSwitch | None = None, **how: Any) -> Run:
        return (await self.engine.resume(run_id, Resume(**how), stop)).run

    async def load(self, run_id: str = "run") -> Folded:
        return await self.engine.journal.load(run_id)

    async def log(self, run_id: str = "run") -> Sequence[StoredEvent]:
        return await self.engine.journal.read(run_id)

    async def events(self, run_id: str = "run") -> list[Event]:
        return [unseal(record) for record in await self.log(run_id)]

    async def kinds(self, run_id: str = "run") -> list[str]:
        return [record.kind for record in await self.log(run_id)]

    async def completed(self, run_id: str = "run") -> list[str]:
        """The finished steps, in order."""
        return await completed_of(self.store.log, run_id)

    async def until_completed(self, step: str, run_id: str = "run") -> None:
        """Wait until the log says that a step has finished."""
        while step not in await self.completed(run_id):  # noqa: ASYNC110 - another task appends it
            await asyncio.sleep(0)

    async def checkpoints(self, run_id: str = "run") -> list[Checkpoint]:
        return [checkpoint async for checkpoint in read_checkpoints(self.store.log, run_id)]

    async def shown(self, run_id: str = "run") -> RunListed:
        """The run as `onward status` shows it."""
        (listed,) = await self.store.runs.find(run_id)
        return view_row(listed.row, listed.holder)

    async def is_sound(self, run_id: str = "run") -> bool:
        """Whether row and snapshot are what the log says; a problem fails the test with its text."""
        verified = await verify_run(self.store, run_id)
        assert verified.problems == ()
        return verified.events > 0

    async def die(self) -> None:
        """End without a word, as by `kill -9`."""
        self.store.is_dead = True
        await self.world.bury(self.store.store)


@dataclass(eq=False)
class World:
    """A database, and every process that was started at it."""

    connect: Connect
    kind: str
    ledger: Ledger = field(default_factory=Ledger)
    delay: Callable[[], Awaitable[None]] | None = None
    _stores: list[Store] = field(default_factory=list)
    _processes: int = 0

    async def process(
        self,
        script: Script | None = None,
        *,
        clock: ManualClock | None = None,
        handlers: Mapping[str, Handler] | None = None,
        wrap: Callable[[Store], FaultyStore] = FaultyStore,
        transforms: Sequence[Transform] = (),
        observe: Observer = ignore,
        rules: Sequence[Rule] = RULES,
        files: Callable[[Store], RunFiles] | None = None,
        trees: Trees | None = None,
        redactor: Redactor = NOTHING_SECRET,
    ) -> Process:
        """A new process; without `handlers` its agents, tools and `work` nodes play from `script`."""
        store = await self.connect()
        self._stores.append(store)
        self._processes += 1
        agent, faulty, clock = Scripted(script, self.ledger), wrap(store), clock or ManualClock()
        faulty.clock = clock if hasattr(clock, "busy") else None  # some tests run in real time
        faulty.delay = self.delay
        engine = Engine(
            faulty,
            clock=clock,
            ids=SeededIds(self._processes),
            dice=SeededDice(self._processes),
            handlers=handlers
            if handlers is not None
            else {kind: agent for kind in ("codergen", "tool", "work")},
            extensions=Extensions(transforms=transforms, rules=rules, observe=observe),
            surroundings=Surroundings(
                files=files(faulty) if files is not None else None, trees=trees, redactor=redactor
            ),
        )
        return Process(self, faulty, engine, agent, clock)

    async def bury(self, store: Store) -> None:
        """Let a process be dead for all the others. It has no time to say that it leaves."""
        self._stores.remove(store)
        if isinstance(store.workers, PostgresWorkers):
            await _expire(store.workers)
        await store.close()

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


async def _expire(workers: PostgresWorkers) -> None:
    """End its lease as a worker, as time would, so that its row stays and says that it is dead."""
    ownership = workers._ownership
    for one in await workers.read():
        if one.owner == ownership.owner:
            ownership.lease_us = 0
            await workers.register(one.offer)
    ownership.is_registered = False


def connect_to_memory(lease_s: float | None = None) -> Callable[[], Awaitable[Store]]:
    """Opens a store; each call is another process at the same new, empty database in memory."""
    database = MemoryDatabase()

    async def connect() -> Store:
        return database.connect(lease_s)

    return connect


@asynccontextmanager
async def in_memory(lease_s: float | None = None) -> AsyncIterator[World]:
    """A world in memory, closed afterwards. With a lease, owners are alive until its time is over."""
    world = World(connect_to_memory(lease_s), "memory")
    try:
        yield world
    finally:
        await world.close()
