"""Wrappers around the store and handlers that count and time; without them, counting costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar, cast

import msgspec

from onward.clock import Clock
from onward.errors import LeaseLost, RunUnreadable, StoreError
from onward.handlers.port import Handler, Postponed, StepContext
from onward.model.call import CallLost
from onward.model.events import RunClaimed
from onward.model.result import Result
from onward.observe.about import about
from onward.observe.health import Health
from onward.observe.metrics import Metrics
from onward.store.port.leases import Lease, Leases
from onward.store.port.log import (
    Controlled,
    Decide,
    DecideLoaded,
    Held,
    Loaded,
    RunLog,
    StoredEvent,
    TakeFilter,
    Write,
)
from onward.store.port.messages import Flushed, Growth, Messages
from onward.store.port.runs import Listed, Runs
from onward.store.port.store import Store

T = TypeVar("T")
CUT_OFF = "cut_off"
"""The result of an attempt that a stop, a time limit or a lost lease ended."""


def watched_store(store: Store, metrics: Metrics, health: Health, clock: Clock) -> Store:
    """The same store, with its important calls counted."""
    return cast("Store", _WatchedStore(store, _Watch(metrics, health, clock)))


class _Decision(msgspec.Struct):
    """What this process decided under a run's lock, and since when the run was due."""

    write: Write | None = None
    asker: str = ""
    due_us: int | None = None

    def note(self, write: Write | None, held: Held, due_us: int | None = None) -> Write | None:
        self.write, self.asker, self.due_us = write, held.asker, due_us
        return write


class _Around(Generic[T]):
    """Delegates everything; the methods of a subclass are watched."""

    def __init__(self, inner: T, watch: _Watch) -> None:
        self._inner, self._watch = inner, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _WatchedStore(_Around[Store]):
    def __init__(self, store: Store, watch: _Watch) -> None:
        super().__init__(store, watch)
        self.log = _WatchedLog(store.log, watch)
        self.leases = _WatchedLeases(store.leases, watch)
        self.runs = _WatchedRuns(store.runs, watch)
        self.messages = _WatchedMessages(store.messages, watch)


class _WatchedLog(_Around[RunLog]):
    async def append(self, write: Write, lease: Lease) -> None:
        watch = self._watch
        async with watch.asking() as began_s:
            try:
                await self._inner.append(write, lease)
            except LeaseLost:
                watch.metrics.fenced_writes.add()
                raise
            watch.metrics.commits.observe(watch.clock.awake_s() - began_s)
            watch.note_lost(write)

    async def take(self, wanted: TakeFilter, *, fold_version: int, decide: DecideLoaded) -> Controlled | None:
        seen = _Decision()

        def decided(held: Held, loaded: Loaded) -> Write | None:
            return seen.note(decide(held, loaded), held, loaded.row.wake_at_us)

        async with self._watch.asking():
            answer = await self._inner.take(wanted, fold_version=fold_version, decide=decided)
        self._note_claim(seen)
        return answer

    async def control(self, run_id: str, *, since: int, append_id: str, decide: Decide) -> Controlled:
        seen = _Decision()

        def decided(held: Held, tail: Sequence[StoredEvent]) -> Write | None:
            return seen.note(decide(held, tail), held)

        async with self._watch.asking():
            answer = await self._inner.control(run_id, since=since, append_id=append_id, decide=decided)
        if not answer.is_repeat:
            self._note_claim(seen)
            if seen.write is not None:
                self._watch.note_lost(seen.write)
        return answer

    def _note_claim(self, seen: _Decision) -> None:
        """Count a write that claimed the run; a claim from the queue also measures how long it was due."""
        write, due_us = seen.write, seen.due_us
        if write is None or write.row is None or write.row.owner != seen.asker:
            return
        if all(record.kind != RunClaimed.__name__ for record in write.records):
            return  # we already held it
        watch = self._watch
        watch.metrics.claims.add(write.row.pipeline)
        if due_us is not None:
            watch.metrics.claim_latency.observe(max(0, watch.clock.now_us() - due_us) / 1_000_000)


class _WatchedLeases(_Around[Leases]):
    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        async with self._watch.asking():
            return await self._inner.renew(leases)


class _WatchedRuns(_Around[Runs]):
    async def held(self) -> Sequence[Listed]:
        async with self._watch.asking():
            return await self._inner.held()


class _WatchedMessages(_Around[Messages]):
    async def flush(self, batch: Sequence[Growth], at_us: int) -> Sequence[Flushed]:
        watch = self._watch
        async with watch.asking() as began_s:
            try:
                answers = await self._inner.flush(batch, at_us)
            except Exception as error:
                watch.metrics.calls.flush_failures.add(type(error).__name__)
                raise
            watch.metrics.calls.flushed(batch, answers, watch.clock.awake_s() - began_s)
            return answers


class _Watch(msgspec.Struct, frozen=True):
    """Where the results of calls are counted."""

    metrics: Metrics
    health: Health
    clock: Clock

    def note_lost(self, write: Write) -> None:
        """Count the calls that a write lost: also those of a dead holder, which no observer sees."""
        for record in write.records:
            if record.kind == CallLost.__name__:
                self.metrics.calls.lost.add()

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[float]:
        """Record whether the database answers, and its errors. A refusal is an answer too."""
        began_s = self.clock.awake_s()
        call = self.health.asking(began_s)
        try:
            yield began_s
        except RunUnreadable as error:
            self.metrics.store_errors.add(type(error).__name__)
            self.health.answered(call, self.clock.awake_s())  # one run is damaged; others can be claimed
            raise
        except StoreError as error:
            self.metrics.store_errors.add(type(error).__name__)
            self.health.failed(call, str(error))
            raise
        except asyncio.CancelledError:
            self.health.dropped(call)
            raise
        except BaseException:
            self.health.answered(call, self.clock.awake_s())
            raise
        self.health.answered(call, self.clock.awake_s())


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
