"""What one process counts about itself, and the wrappers around its store and handlers that count.

The wrappers also measure time; without them, counting costs nothing. Of calls it counts how they end, what
they cost, and the text that streams from them. A process is healthy if it reaches its database and claims
runs (`Health`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar, cast

import msgspec

from onward.clock import Clock
from onward.errors import LeaseLost, RunUnreadable, StoreError
from onward.handlers.port import Handler, Postponed, StepContext
from onward.model.call import AttemptHeld, CallFinished, CallLost
from onward.model.events import AttemptFailed, AttemptInterrupted, Event, RunClaimed
from onward.model.result import Result
from onward.model.run import Run, RunStatus
from onward.observe.figures import Counter, Family, Gauge, Histogram
from onward.observe.log import about
from onward.store.port import log as logs
from onward.store.port.leases import Lease, Leases
from onward.store.port.messages import Flushed, Growth, Messages
from onward.store.port.runs import Listed, Runs
from onward.store.port.store import Store

CALLS_S = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
FLUSHES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
REFUSED = "refused"
"""The error of a flush whose message is not streaming under the writer's lease any more."""


class CallMetrics:
    """Counters of a worker's calls. `observe` sees what was committed, `flushed` what was streamed."""

    def __init__(self) -> None:
        self.calls = Counter(
            "onward_calls_total",
            "Calls that ended in this worker, by kind, model and status: ok or error.",
            *("kind", "model", "status"),
        )
        self.seconds = Histogram(
            "onward_call_seconds", "How long calls took, by kind and model.", "kind", "model", buckets=CALLS_S
        )
        self.lost = Counter(
            "onward_calls_lost_total",
            "Calls that will never finish, because their attempt, process or run ended first.",
        )
        self.tokens = Counter(
            "onward_tokens_total",
            "Tokens of model requests, by model and kind: reasoning is part of output, others of input.",
            *("model", "kind"),
        )
        self.cost = Counter("onward_cost_dollars_total", "What calls with a known price cost.", "model")
        self.holds = Counter(
            "onward_holds_total",
            "Attempts that stopped between two calls, by reason: limit, rate_limit, gate or pause.",
            "reason",
        )
        self.waiting = Gauge(
            "onward_reservations_waiting", "Calls that wait for the reservations of other calls."
        )
        self.streams = Gauge("onward_streams_open", "Messages into which calls of this worker stream.")
        self.chunks = Counter("onward_flushed_chunks_total", "Chunks of messages that were stored.")
        self.bytes = Counter("onward_flushed_bytes_total", "Bytes of text that were stored in messages.")
        self.flushes = Histogram(
            "onward_flush_seconds", "Flushes of streams, until the database confirmed.", buckets=FLUSHES_S
        )
        self.flush_failures = Counter(
            "onward_flush_failures_total",
            "Flushes that failed, by error; refused: the message's call has ended, or its lease was lost.",
            "error",
        )

    def observe(self, event: Event) -> None:
        """Count an event that was committed."""
        if isinstance(event, CallFinished):
            if not event.by:  # else a person said what came of a lost call
                self._finished(event)
        elif isinstance(event, AttemptHeld):
            self.holds.add(event.reason)

    def _finished(self, event: CallFinished) -> None:
        self.calls.add(event.type, event.model, event.status.value)
        self.seconds.observe(event.duration_us / 1_000_000, event.type, event.model)
        usage = event.usage
        if usage is not None:
            for kind in ("input", "output", "cached", "reasoning", "cache_write"):
                self.tokens.add(event.model, kind, by=getattr(usage, kind))
        if event.cost_micro is not None:
            self.cost.add(event.model, by=event.cost_micro / 1_000_000)

    def flushed(self, batch: Sequence[Growth], answers: Sequence[Flushed], took_s: float) -> None:
        """Count a flush that was answered. What was put off for the next one is counted there."""
        self.flushes.observe(took_s)
        for sent, came in zip(batch, answers, strict=True):
            if came is Flushed.STORED:
                self.chunks.add(by=len(sent.chunks))
                self.bytes.add(by=sum(_size(text) for _, text in sent.chunks))
            elif came is Flushed.REFUSED:
                self.flush_failures.add(REFUSED)

    def families(self) -> Iterator[Family]:
        """All of them, in the order of the page."""
        for series in vars(self).values():
            yield series.family()


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


WAITS_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)
STEPS_S = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
COMMITS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)


class Metrics:
    """Counters of a worker. `observe` is an observer of the engine; other code counts the rest."""

    def __init__(self) -> None:
        self.claims = Counter(
            "onward_claims_total", "Runs that this worker claimed from the queue, by pipeline.", "pipeline"
        )
        self.claim_latency = Histogram(
            "onward_claim_latency_seconds",
            "From the moment a run was due to its claim by this worker.",
            buckets=WAITS_S,
        )
        self.driving = Gauge(
            "onward_runs_driving", "Runs that this worker is executing, or whose files it is still writing."
        )
        self.draining = Gauge("onward_draining", "1 when this worker claims no new runs, else 0.")
        self.lease_losses = Counter(
            "onward_lease_losses_total", "Runs that this worker held and lost to another process."
        )
        self.fenced_writes = Counter(
            "onward_fenced_writes_total", "Writes that the database refused because the lease was lost."
        )
        self.commits = Histogram(
            "onward_commit_seconds",
            "Appends for steps, until the database confirmed.",
            buckets=COMMITS_S,
        )
        self.store_errors = Counter(
            "onward_store_errors_total", "Calls that the database failed, by error.", "error"
        )
        self.steps = Histogram(
            "onward_step_seconds",
            "Attempts of steps, by pipeline and kind of node.",
            "pipeline",
            "kind",
            buckets=STEPS_S,
        )
        self.attempts = Counter(
            "onward_attempts_total",
            "Attempts that ended, by pipeline, kind of node and result.",
            "pipeline",
            "kind",
            "result",
        )
        self.retries = Counter(
            "onward_retries_total", "Attempts that failed and are retried, by pipeline.", "pipeline"
        )
        self.interrupted = Counter(
            "onward_attempts_interrupted_total",
            "Attempts that were interrupted from outside before they had a result, by pipeline.",
            "pipeline",
        )
        self.stops = Counter(
            "onward_runs_stopped_total",
            "Runs that stopped in this worker, by status and reason.",
            "status",
            "reason",
        )
        self.sweeps = Counter(
            "onward_sweeps_total", "Sweeps for runs whose holder died, by result: ok or failed.", "result"
        )
        self.swept = Counter(
            "onward_swept_runs_total",
            "Runs found without a live process, by their status afterwards, or broken.",
            "became",
        )
        self.notifications = Counter(
            "onward_notification_tries_total",
            "Tries to deliver a notification, by result: delivered, again or failed.",
            "result",
        )
        self.calls = CallMetrics()

    def observe(self, run: Run, events: Sequence[Event]) -> None:
        """Count what was committed for a run."""
        for event in events:
            if isinstance(event, AttemptFailed):
                if event.retry_at_us is not None:
                    self.retries.add(run.pipeline)
            elif isinstance(event, AttemptInterrupted):
                self.interrupted.add(run.pipeline)
            else:
                self.calls.observe(event)
        if run.status is not RunStatus.RUNNING:
            self.stops.add(run.status.value, run.reason)

    def families(self) -> Iterator[Family]:
        """All metrics, in the order of the page."""
        for series in vars(self).values():
            yield from series.families() if isinstance(series, CallMetrics) else (series.family(),)


SLOW_S_MIN, SLOW_S = 1.0, 5.0
STALE_S = 30.0


def slow_after_s(lease_s: float | None) -> float:
    """How long a call may take before the database counts as unreachable: the interval between heartbeats.

    A worker whose heartbeats get no answer is about to lose its runs. The store itself waits longer for a
    server to come back before a call fails.
    """
    return SLOW_S if lease_s is None else min(SLOW_S, max(SLOW_S_MIN, lease_s / 3))


class Health:
    """The state of the calls to the database. `fault` is None if all is well, else a sentence."""

    def __init__(self, now_s: float) -> None:
        self.is_draining, self.slow_s = False, SLOW_S
        self._reached_s = now_s
        self._failure = ""
        self._waiting: dict[int, float] = {}
        self._calls = itertools.count()

    def asking(self, now_s: float) -> int:
        """A call begins; returns its number, to report its end."""
        call = next(self._calls)
        self._waiting[call] = now_s
        return call

    def answered(self, call: int, now_s: float) -> None:
        """The database answered, perhaps with a refusal."""
        del self._waiting[call]
        self._reached_s, self._failure = now_s, ""

    def failed(self, call: int, why: str) -> None:
        """The database did not answer, or it answered that it cannot do its work."""
        del self._waiting[call]
        self._failure = why

    def dropped(self, call: int) -> None:
        """The caller no longer waits for the answer."""
        del self._waiting[call]

    def fault(self, now_s: float) -> str | None:
        """What is wrong; a call that hangs is noticed before it fails."""
        if self.is_draining:
            return "draining: this worker claims no new runs."
        if self._failure:
            return f"the database cannot be reached: {self._failure}"
        slowest_s = max((now_s - began_s for began_s in self._waiting.values()), default=0.0)
        if slowest_s > self.slow_s:
            return f"the database has not responded for {slowest_s:.0f} s."
        if now_s - self._reached_s > STALE_S:
            return f"no response from the database for {now_s - self._reached_s:.0f} s."
        return None


T = TypeVar("T")
CUT_OFF = "cut_off"
"""The result of an attempt that a stop, a time limit or a lost lease ended."""


def watched_store(store: Store, metrics: Metrics, health: Health, clock: Clock) -> Store:
    """The same store, with its important calls counted."""
    return cast("Store", _WatchedStore(store, _Watch(metrics, health, clock)))


class _Decision(msgspec.Struct):
    """What this process decided under a run's lock, and since when the run was due."""

    write: logs.Write | None = None
    asker: str = ""
    due_us: int | None = None

    def note(self, write: logs.Write | None, held: logs.Held, due_us: int | None = None) -> logs.Write | None:
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


class _WatchedLog(_Around[logs.RunLog]):
    async def append(self, write: logs.Write, lease: Lease) -> None:
        watch = self._watch
        async with watch.asking() as began_s:
            try:
                await self._inner.append(write, lease)
            except LeaseLost:
                watch.metrics.fenced_writes.add()
                raise
            watch.metrics.commits.observe(watch.clock.awake_s() - began_s)
            watch.note_lost(write)

    async def take(
        self, wanted: logs.TakeFilter, *, fold_version: int, decide: logs.DecideLoaded
    ) -> logs.Controlled | None:
        seen = _Decision()

        def decided(held: logs.Held, loaded: logs.Loaded) -> logs.Write | None:
            return seen.note(decide(held, loaded), held, loaded.row.wake_at_us)

        async with self._watch.asking():
            answer = await self._inner.take(wanted, fold_version=fold_version, decide=decided)
        self._note_claim(seen)
        return answer

    async def control(
        self, run_id: str, *, since: int, append_id: str, decide: logs.Decide
    ) -> logs.Controlled:
        seen = _Decision()

        def decided(held: logs.Held, tail: Sequence[logs.StoredEvent]) -> logs.Write | None:
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

    def note_lost(self, write: logs.Write) -> None:
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
