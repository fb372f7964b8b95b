"""The pages that a worker serves: its metrics with the database's, and its health."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from onward.clock import Clock
from onward.errors import OnwardError
from onward.observe.exposition import CONTENT_TYPE, Family, Sample, gauge, render
from onward.observe.figures import families_of
from onward.observe.health import Health
from onward.observe.metrics import Metrics
from onward.observe.serve import NOT_FOUND, PLAIN, Reply
from onward.store.port.runs import Measured

REFRESH_S = 5.0
PATIENCE_S = 3.0
"""After this time, a page is sent without the database's numbers."""


class Pages:
    """Serves `/metrics` and `/healthz`. A request measures the database, at most once per `REFRESH_S`."""

    def __init__(
        self,
        metrics: Metrics,
        health: Health,
        measure: Callable[[], Awaitable[Measured]],
        clock: Clock,
        version: str,
    ) -> None:
        self._metrics, self._health, self._measure, self._clock = metrics, health, measure, clock
        self._version, self._began_us = version, clock.now_us()
        self._found: Measured | None = None
        self._asked_s: float | None = None
        self._looking: asyncio.Task[None] | None = None

    async def answer(self, path: str) -> Reply:
        """The page of a path."""
        if path == "/metrics":
            return Reply(200, CONTENT_TYPE, await self._page())
        if path == "/healthz":
            fault = self._health.fault(self._clock.awake_s())
            return Reply(200, PLAIN, "ok\n") if fault is None else Reply(503, PLAIN, f"{fault}\n")
        return NOT_FOUND

    async def _page(self) -> str:
        await self._refresh()
        fault, found = self._health.fault(self._clock.awake_s()), self._found
        families = [
            Family("onward_build_info", "gauge", "Its version.", [Sample(1, {"version": self._version})]),
            gauge(
                "onward_start_time_seconds",
                "When this process started, in seconds since 1970.",
                self._began_us / 1_000_000,
            ),
            gauge("onward_healthy", "1 when /healthz says so, else 0.", fault is None),
            *self._metrics.families(),
            gauge("onward_database_up", "1 when the database could be measured, else 0.", found is not None),
        ]
        return render([*families, *(() if found is None else families_of(found))])

    async def _refresh(self) -> None:
        """Get recent numbers, or none; of many requests at once, one measures."""
        now_s = self._clock.awake_s()
        if self._looking is None and (self._asked_s is None or now_s - self._asked_s >= REFRESH_S):
            self._asked_s = now_s
            self._looking = asyncio.create_task(self._look())
        if self._looking is not None:
            done, _ = await asyncio.wait([self._looking], timeout=PATIENCE_S)
            if not done:
                self._found = None

    async def _look(self) -> None:
        try:
            self._found = await self._measure()
        except OnwardError:
            self._found = None  # onward_database_up becomes 0
        finally:
            self._looking = None

    async def aclose(self) -> None:
        """Stop looking."""
        looking = self._looking
        if looking is not None:
            looking.cancel()
            await asyncio.wait([looking])
