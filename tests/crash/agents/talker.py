"""One life of a process that executes a run of agents, and kills itself at a chosen point.

A point is either side of every write to the store (appends, claims, flushes), and every boundary of a request
to a model: before it is sent, pieces of its answer, and its end. Hours pass in seconds (`HastyClock`), so
that pauses which a provider asks for cost little.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

from onward.agents import formats as formats  # imported here, so that a forked process has it
from onward.agents.model.request import ModelRequest
from onward.agents.model.stream import Streamed
from onward.agents.models import Models
from onward.agents.prices import read_prices
from onward.agents.step.handler import AgentHandler
from onward.agents.wire import client as client  # and this
from onward.clock import SystemClock, SystemDice, SystemIds
from onward.engine.engine import Engine, Resume, Start
from onward.errors import RunNotFound
from onward.machine.decide.doubt import calls_in_doubt, is_in_doubt
from onward.model.call import call_key
from onward.model.run import OpenStep, Run, RunStatus
from onward.store.port.store import Store
from onward.testing.faults import WRITES, FaultyStore
from onward.wiring import open_store
from tests.agents.asking import NAME, models_at
from tests.crash.agents.tools import ECHO, PAY, SAID, ServerLedger, UseLedger, toolbox

HASTE = 40
LEASE_S = 3_600.0
"""Long, because hours pass in seconds; a dead process of the same host is noticed at once."""
EVERY_PIECE = 25
POINTS = WRITES | {"messages.flush"}
CHAT, PROJECT = "crash", "storms"


class HastyClock(SystemClock):
    """The machine's clocks, `HASTE` times as fast from the moment that it is made."""

    def __init__(self) -> None:
        self._began_us, self._began_s = super().now_us(), super().awake_s()

    def now_us(self) -> int:
        return self._began_us + (super().now_us() - self._began_us) * HASTE

    def awake_s(self) -> float:
        return self._began_s + (super().awake_s() - self._began_s) * HASTE

    async def wait_s(self, seconds: float, woken: asyncio.Event) -> None:
        await super().wait_s(seconds / HASTE, woken)


class Points:
    """Counts the points that this process passes, says so in a file, and dies at the one that was chosen."""

    def __init__(self, file: Path, die_at: int | str | None) -> None:
        self._file, self._die_at, self._passed = file, die_at, 0

    def at(self, name: str) -> None:
        """Pass a point, or die at it."""
        self._passed += 1
        if self._die_at in (self._passed, name):
            self._file.write_text(name)
            os.kill(os.getpid(), signal.SIGKILL)


class DoomedStore(FaultyStore):
    """A store whose writes are points."""

    def __init__(self, store: Store, points: Points) -> None:
        super().__init__(store)
        self._points = points

    async def call(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if name not in POINTS:
            return await call()
        self._points.at(f"before {name}")
        answer = await call()
        self._points.at(f"after {name}")
        return answer


class DoomedModels:
    """Models whose requests and answers are points."""

    def __init__(self, models: Models, points: Points) -> None:
        self._models, self._points = models, points

    def full_name(self, model: str = "", *, provider: str = "") -> str:
        return self._models.full_name(model or NAME, provider=provider)

    def takes_prefix(self, model: str) -> bool:
        return self._models.takes_prefix(model)

    async def stream(
        self, request: ModelRequest, *, idempotency_key: str | None = None
    ) -> AsyncGenerator[Streamed, None]:
        self._points.at("before a request")
        number = 0
        async for piece in self._models.stream(request, idempotency_key=idempotency_key):
            number += 1
            if number % EVERY_PIECE == 1:
                self._points.at("a piece")
            yield piece
        self._points.at("after an answer")

    async def close(self) -> None:
        await self._models.close()


def live(
    db: str, url: str, run_id: str, source: str, died: Path, uses: Path, die_at: int | str | None
) -> None:
    """Start the run, or resume it, and execute it until it has ended: the main function of a process."""
    run = asyncio.run(_live(db, url, run_id, source, uses, Points(died, die_at)))
    assert run.is_final, f"{run.status}: {run.reason} {run.detail}"


async def _live(db: str, url: str, run_id: str, source: str, uses: Path, points: Points) -> Run:
    clock = HastyClock()
    models = DoomedModels(models_at(url, clock=clock, between_s=40, first_byte_s=120), points)
    prices = read_prices({NAME: {"input": 1, "output": 2}})
    store = DoomedStore(await open_store(db, lease_s=LEASE_S), points)
    ledger = UseLedger(uses)
    server = ServerLedger(uses.with_suffix(".server"))
    tools = server.tools()
    agent = AgentHandler(models, prices, clock, SystemDice(), toolbox(ledger, tools, points.at))
    engine = Engine(store, clock=clock, ids=SystemIds(), dice=SystemDice(), handlers={"codergen": agent})
    try:
        run = (await engine.journal.load(run_id)).run
    except RunNotFound:
        start = Start(run_id=run_id, chat=CHAT, project=PROJECT)
        run = (await engine.start(engine.sources.prepare(source, "<crash>"), start)).run
    while not run.is_final:
        run = await _continued(engine, run, ledger, server)
    await models.close()
    await tools.close()
    await engine.close()
    return run


async def _continued(engine: Engine, run: Run, ledger: UseLedger, server: ServerLedger) -> Run:
    """Do what people do: allow what is asked, and look up what came of a use that is in doubt."""
    if run.status is RunStatus.WAITING:
        return (await engine.answer(run.id, "yes", by="ann")).run
    for opened in run.open_steps.values():
        if is_in_doubt(opened):
            return await _settled(engine, run, opened, ledger, server)
    return (await engine.resume(run.id, Resume())).run


async def _settled(
    engine: Engine, run: Run, opened: OpenStep, ledger: UseLedger, server: ServerLedger
) -> Run:
    """What was begun was done; what was not is done when the step is retried."""
    generation = 0 if opened.calls is None else opened.calls.generation
    answers = {}
    for call in calls_in_doubt(opened):
        if ledger.has_begun(call_key(run.id, opened.step, call, generation)):
            answers[call] = SAID[PAY]
        elif (generation, call) == (0, "m1.t1") and server.uses:
            answers[call] = SAID[ECHO]
    how = Resume(action="continue", answers=answers) if answers else Resume(action="retry")
    return (await engine.resume(run.id, how)).run
