"""The pages of a worker: its numbers with the database's, which is not asked more often than it should be."""

from __future__ import annotations

import asyncio

import pytest

from onward.errors import StoreUnavailable
from onward.observe import pages as pages
from onward.observe.figures import CONTENT_TYPE
from onward.observe.metrics import Health, Metrics
from onward.observe.pages import REFRESH_S, Pages
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.runs import Measured
from onward.testing.clock import ManualClock
from tests.conformance.drafts import created, held

pytestmark = pytest.mark.anyio


class Database:
    """A database in memory whose measuring is counted and can be made to fail or to hang."""

    def __init__(self) -> None:
        self.store = MemoryDatabase().connect()
        self.looks = 0
        self.is_away = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def measure(self) -> Measured:
        self.looks += 1
        await self.gate.wait()
        if self.is_away:
            raise StoreUnavailable("away.")
        return await self.store.measures.measure()


class Site:
    def __init__(self) -> None:
        self.clock = ManualClock(autojump=False)
        self.database, self.health = Database(), Health(self.clock.awake_s())
        self.pages = Pages(Metrics(), self.health, self.database.measure, self.clock, "1.2.3")

    async def lines(self) -> list[str]:
        reply = await self.pages.answer("/metrics")
        assert (reply.status, reply.content_type) == (200, CONTENT_TYPE)
        return reply.body.splitlines()


async def test_the_page_has_the_databases_numbers() -> None:
    site = Site()
    await created(site.database.store, at_us=1)
    await held(site.database.store)
    lines = await site.lines()
    for line in (
        'onward_build_info{version="1.2.3"} 1',
        "onward_healthy 1",
        "onward_database_up 1",
        'onward_runs{status="queued",reason=""} 1',
        'onward_runs{status="running",reason=""} 1',
        'onward_runs{status="failed",reason=""} 0',
        "onward_runs_held 1",
        "onward_runs_stalled 0",
        "onward_queue_due 1",
        'onward_runs_ended_last_hour{status="completed"} 0',
    ):
        assert line in lines
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(series) == len(set(series))


async def test_the_database_is_measured_only_every_few_seconds_however_many_look() -> None:
    site = Site()
    await asyncio.gather(*(site.lines() for _ in range(10)))
    await site.lines()
    assert site.database.looks == 1
    site.clock.advance(REFRESH_S)
    await asyncio.gather(*(site.lines() for _ in range(10)))
    assert site.database.looks == 2


async def test_numbers_of_a_database_that_is_away_are_not_told() -> None:
    site = Site()
    assert "onward_database_up 1" in await site.lines()
    site.database.is_away = True
    site.clock.advance(REFRESH_S)
    lines = await site.lines()
    assert "onward_database_up 0" in lines
    assert not any(line.startswith(("onward_runs{", "onward_queue_due")) for line in lines)
    assert "onward_claim_latency_seconds_count 0" in lines


async def test_a_database_that_hangs_does_not_hold_the_page_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PATIENCE_S", 0.01)
    site = Site()
    site.database.gate.clear()
    assert "onward_database_up 0" in await site.lines()
    site.database.gate.set()
    assert "onward_database_up 1" in await site.lines()
    assert site.database.looks == 1
    site.database.gate.clear()
    site.clock.advance(REFRESH_S)
    await site.lines()
    await site.pages.aclose()


async def test_health_is_a_status_and_a_sentence_and_all_else_is_not_found() -> None:
    site = Site()
    assert (await site.pages.answer("/healthz")).status == 200
    site.health.is_draining = True
    reply = await site.pages.answer("/healthz")
    assert (reply.status, reply.body) == (503, "draining: this worker claims no new runs.\n")
    assert "onward_healthy 0" in await site.lines()
    for path in ("/", "/metrics/", "/healthz/x", "/../metrics"):
        assert (await site.pages.answer(path)).status == 404
