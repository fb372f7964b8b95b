"""One life of a process that executes a run of agents, and kills itself at a chosen point.

A point is either side of every write to the store (appends, claims, flushes), every boundary of a request to
a model: before it is sent, pieces of its answer, and its end; and every boundary of a use of a tool, and of
an approval (`points.py`, `tools.py`). Hours pass in seconds (`HastyClock`), so that pauses which a provider
asks for cost little.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

from onward.agents import http as http  # imported here, so that a forked process has it
from onward.agents.model import ModelRequest, Streamed
from onward.agents.models import Models
from onward.agents.prices import read_prices
from onward.agents.step.handler import AgentHandler
from onward.clock import SystemClock, SystemDice, SystemIds
from onward.engine.control.requests import Resume, StartRequest
from onward.engine.engine import Engine
from onward.errors import RunNotFound
from onward.machine.decide.calls import calls_in_doubt, is_in_doubt
from onward.model.call import call_key
from onward.model.run import OpenStep, Run, RunStatus
from onward.wiring import open_store
from tests.agents.asking import NAME, models_at
from tests.crash.agents.points import DoomedStore, Points
from tests.crash.agents.tools import ECHO, NOTE, PAY, SAID, ServerLedger, UseLedger, toolbox

HASTE = 40
LEASE_S = 3_600.0
"""Long, because hours pass in seconds; a dead process of the same host is noticed at once."""
EVERY_PIECE = 25
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
    tools = server.tools(points)
    points.watch_names(NOTE)
    agent = AgentHandler(models, prices, clock, SystemDice(), toolbox(ledger, tools, points))
    engine = Engine(store, clock=clock, ids=SystemIds(), dice=SystemDice(), handlers={"codergen": agent})
    try:
        run = (await engine.journal.load(run_id)).run
    except RunNotFound:
        start = StartRequest(run_id=run_id, chat=CHAT, project=PROJECT, workdir=str(ledger.workspace))
        run = (await engine.start(engine.sources.prepare(source, "<crash>"), start)).run
    while not run.is_final:
        run = await _continued(engine, run, ledger, server, points)
    await models.close()
    await tools.close()
    await engine.close()
    return run


async def _continued(
    engine: Engine, run: Run, ledger: UseLedger, server: ServerLedger, points: Points
) -> Run:
    """Do what people do: allow what is asked, and look up what came of a use that is in doubt.

    They wait while the commands of a process that was killed are being killed, too: that takes real time, and
    the seconds for which a resume waits by itself are over in a moment here (`HASTE`).
    """
    if run.status is RunStatus.WAITING:
        (gate,) = run.gates.values()
        points.store_next(f"the approval of {gate.metadata['tool']}")
        return (await engine.answer(run.id, "yes", by="ann")).run
    for opened in run.open_steps.values():
        if is_in_doubt(opened):
            return await _settled(engine, run, opened, ledger, server)
    return (await engine.resume(run.id, Resume(wait=True))).run


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
    action = "continue" if answers else "retry"
    how = Resume(action=action, answers=answers, wait=True)
    return (await engine.resume(run.id, how)).run
