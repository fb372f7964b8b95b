"""Watching from outside: around the store and around handlers, so that what is not watched pays nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from onward.clock import Clock
from onward.errors import LeaseLost, RunUnreadable, StoreError
from onward.handlers.port import Handler, Postponed, StepContext
from onward.model.event import RunClaimed
from onward.model.result import Result
from onward.observe.about import about
from onward.observe.health import Health
from onward.observe.metrics import Metrics
from onward.store.port import Controlled, Decide, DecideLoaded, Held, Lease, Listed, Store, Wanted, Write

CUT_OFF = "cut_off"
"""An attempt that was ended from outside, by a stop, a time limit or a lost lease."""


def watched_store(store: Store, metrics: Metrics, health: Health, clock: Clock) -> Store:
    """The same store, with what happens to the calls that matter counted."""
    return cast("Store", _WatchedStore(store, metrics, health, clock))


class _WatchedStore:
    """Passes everything on; the methods that are here are looked at on the way."""

    def __init__(self, store: Store, metrics: Metrics, health: Health, clock: Clock) -> None:
        self._store, self._metrics, self._health, self._clock = store, metrics, health, clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, write: Write, lease: Lease) -> None:
        async with self._asking() as began_s:
            try:
                await self._store.append(write, lease)
            except LeaseLost:
                self._metrics.fenced_writes.add()
                raise
            self._metrics.commits.observe(self._clock.awake_s() - began_s)

    async def take(self, wanted: Wanted, *, fold_version: int, decide: DecideLoaded) -> Controlled | None:
        claimed: Write | None = None
        due_us: int | None = None

        def decided(held: Held, loaded: Any) -> Write | None:
            nonlocal claimed, due_us
            claimed, due_us = decide(held, loaded), loaded.row.wake_at_us
            return claimed

        async with self._asking():
            answer = await self._store.take(wanted, fold_version=fold_version, decide=decided)
        self._note_claim(claimed, due_us)
        return answer

    async def control(self, run_id: str, *, since: int, append_id: str, decide: Decide) -> Controlled:
        written: Write | None = None

        def decided(held: Held, tail: Any) -> Write | None:
            nonlocal written
            written = decide(held, tail)
            return written

        async with self._asking():
            answer = await self._store.control(run_id, since=since, append_id=append_id, decide=decided)
        if not answer.is_repeat:
            self._note_claim(written, None)
        return answer

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        async with self._asking():
            return await self._store.renew(leases)

    async def held(self) -> Sequence[Listed]:
        async with self._asking():
            return await self._store.held()

    def _note_claim(self, write: Write | None, due_us: int | None) -> None:
        """Count a write that made the run ours; one that came by its turn tells since when it was due."""
        if write is None or write.row is None or write.row.owner != self._store.me:
            return
        if all(record.kind != RunClaimed.__name__ for record in write.records):
            return  # it was ours already
        self._metrics.claims.add(write.row.pipeline)
        if due_us is not None:
            self._metrics.claim_latency.observe(max(0, self._clock.now_us() - due_us) / 1_000_000)

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[float]:
        """Whether the database answers, and what it fails with. A refusal is an answer too."""
        began_s = self._clock.awake_s()
        call = self._health.asking(began_s)
        try:
            yield began_s
        except RunUnreadable as error:
            self._metrics.store_errors.add(type(error).__name__)
            self._health.answered(call, self._clock.awake_s())  # one run is damaged; others can be taken
            raise
        except StoreError as error:
            self._metrics.store_errors.add(type(error).__name__)
            self._health.failed(call, str(error))
            raise
        except asyncio.CancelledError:
            self._health.dropped(call)
            raise
        except BaseException:
            self._health.answered(call, self._clock.awake_s())
            raise
        self._health.answered(call, self._clock.awake_s())


class WatchedHandler:
    """A handler whose attempts are timed, and whose log lines name the run and the step."""

    def __init__(self, kind: str, handler: Handler, metrics: Metrics, clock: Clock) -> None:
        self._kind, self._handler, self._metrics, self._clock = kind, handler, metrics, clock

    @property
    def keeps_time(self) -> bool:
        return self._handler.keeps_time

    async def run(self, step: StepContext) -> Result:
        began_s, result = self._clock.awake_s(), CUT_OFF
        with about(run=step.run_id, pipeline=step.pipeline, step=step.step):
            try:
                returned = await self._handler.run(step)
                result = returned.status.value
                return returned
            except Postponed:
                raise
            except Exception:
                result = "fail"  # as the engine records it
                raise
            finally:
                self._metrics.steps.observe(self._clock.awake_s() - began_s, step.pipeline, self._kind)
                self._metrics.attempts.add(step.pipeline, self._kind, result)
