"""What a command does for operators: the page of metrics, and the log for machines."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from onward.cli.print.output import Output
from onward.clock import SystemClock
from onward.config import load_settings
from onward.engine.engine import ignore
from onward.handlers.port import Handler
from onward.model.events import Event
from onward.model.run import Run
from onward.observe.log import log_events, log_json
from onward.observe.metrics import Health, Metrics, WatchedHandler, slow_after_s, watched_store
from onward.observe.pages import Pages, address_of, serving
from onward.store.owner import owner_label
from onward.store.port.store import Store
from onward.version import VERSION

if TYPE_CHECKING:
    from onward.app import Onward
    from onward.engine.appender import Observer
    from onward.engine.engine import Engine

METRICS = "--metrics"
log = logging.getLogger("onward.worker")


def speak(out: Output, log_format: str | None) -> bool:
    """Let everything that the command says be a log for machines, if that is wanted; says whether it is."""
    if load_settings(log=log_format).log != "json":
        return False
    log_json(redactor=lambda: out.redactor)
    out.voice = log.log
    return True


class Watch:
    """What watches a worker: nothing at all, unless somebody wants metrics or a log for machines."""

    def __init__(self, *, metrics: str | None, log_format: str | None, out: Output) -> None:
        self._clock = SystemClock()
        self._is_logging = speak(out, log_format)  # first, so that what is wrong is told in the right way
        self._address = None if metrics is None else address_of(metrics, METRICS)
        self._out = out
        self.metrics = Metrics()
        self._health = Health(self._clock.awake_s())

    def warn(self, line: str) -> None:
        """Something is wrong: for people a line like others, for machines one of its own level."""
        if self._is_logging:
            log.warning(line)
        else:
            self._out.say(line)

    def drain(self) -> None:
        """From now on no new runs are taken."""
        self._health.is_draining = True
        self.metrics.draining.set(1)

    async def engine(self, app: Onward, tool_env: tuple[str, ...], also: Observer = ignore) -> Engine:
        """The app's engine, with what watches it around it; `also` is another observer."""
        if self._address is None and not self._is_logging:
            return await app.engine(tool_env=tool_env, observe=also)

        def observe(run: Run, events: Sequence[Event]) -> None:
            self._observe(run, events)
            also(run, events)

        engine = await app.engine(
            tool_env=tool_env, observe=observe, around=self._around, watched=self._watched
        )
        self.metrics.calls.streams.follow(lambda: engine.flusher.streams)
        self.metrics.calls.waiting.follow(lambda: engine.waiting.number)
        if self._is_logging:
            worker = owner_label(engine.store.leases.owner)
            log_json(redactor=lambda: self._out.redactor, worker=worker)
        return engine

    @asynccontextmanager
    async def serving(self, store: Store) -> AsyncIterator[None]:
        """Serve the pages inside, if they are wanted."""
        if self._address is None:
            yield
            return
        pages = Pages(self.metrics, self._health, store.measures.measure, self._clock, VERSION)
        async with aclosing(pages), serving(self._address, pages.answer, METRICS) as place:
            self._out.say(f"metrics at {place}/metrics, health at {place}/healthz")
            yield

    def _observe(self, run: Run, events: Sequence[Event]) -> None:
        self.metrics.observe(run, events)
        if self._is_logging:
            log_events(run, events)

    def _around(self, kind: str, handler: Handler) -> Handler:
        return WatchedHandler(kind, handler, self.metrics, self._clock)

    def _watched(self, store: Store) -> Store:
        self._health.slow_s = slow_after_s(store.leases.lease_s)
        return watched_store(store, self.metrics, self._health, self._clock)
