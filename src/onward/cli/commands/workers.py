"""`onward worker`, `recover` and `workers`: commands for many runs and many processes.

A worker serves a page of metrics and writes a log for machines, if its operator wants them (`Watch`).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from onward.cli.operations import app_of, check_there, courier_of, lists_of
from onward.cli.options import COMMON, Common, LogFormat, Out, duration, number
from onward.cli.output import FAILED, FINE, Output, count, one_line, table
from onward.cli.signals import Force, on_signals
from onward.clock import SystemClock
from onward.config import load_settings
from onward.engine.engine import Engine, ignore
from onward.engine.stop import StopSwitch
from onward.handlers.port import Handler
from onward.machine.plan.planner import DRAIN
from onward.model.events import Event
from onward.model.ids import called
from onward.model.run import Run
from onward.model.values import CONCURRENCY, GRACE, LEASE
from onward.observe.log import log_events, log_json
from onward.observe.metrics import Health, Metrics, WatchedHandler, slow_after_s, watched_store
from onward.observe.pages import Pages, address_of, serving
from onward.operations.local.operations import LocalOperations
from onward.operations.requests import ListWorkers, RecoverRuns
from onward.store.owner import owner_label
from onward.store.port.store import Store
from onward.version import VERSION

if TYPE_CHECKING:
    from onward.app import Onward
    from onward.cli.replies import RunsRecovered, WorkerDone
    from onward.engine.claims import Observer
    from onward.notify.courier import Courier
    from onward.replies.database import WorkerListed
    from onward.worker import Shift


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

    def __init__(
        self, *, metrics: str | None, log_format: str | None, out: Output, is_counting: bool = False
    ) -> None:
        """`is_counting`: count even without an address of its own, because a server shows the figures."""
        self._clock, self._is_counting = SystemClock(), is_counting
        self._is_logging = speak(out, log_format)  # first, so that what is wrong is told in the right way
        self._address = None if metrics is None else address_of(metrics, METRICS)
        self._out = out
        self.metrics = Metrics()
        self._health = Health(self._clock.awake_s())

    @property
    def is_logging(self) -> bool:
        """Whether everything that is said is a log for machines."""
        return self._is_logging

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
        if self._address is None and not self._is_logging and not self._is_counting:
            return await app.engine(tool_env=tool_env, observe=also)

        def observe(run: Run, events: Sequence[Event]) -> None:
            self._observe(run, events)
            also(run, events)

        engine = await app.engine(
            tool_env=tool_env,
            observe=observe,
            around=self._around,
            watched=self._watched,
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
        pages = self.pages(store)
        async with aclosing(pages), serving(self._address, pages.answer, METRICS) as place:
            self._out.say(f"metrics at {place}/metrics, health at {place}/healthz")
            yield

    def pages(self, store: Store) -> Pages:
        """The pages about this process and its database."""
        return Pages(self.metrics, self._health, store.measures.measure, self._clock, VERSION)

    def fault(self) -> str:
        """What is wrong with the database, if something is."""
        return self._health.fault(self._clock.awake_s()) or ""

    def _observe(self, run: Run, events: Sequence[Event]) -> None:
        self.metrics.observe(run, events)
        if self._is_logging:
            log_events(run, events)

    def _around(self, kind: str, handler: Handler) -> Handler:
        return WatchedHandler(kind, handler, self.metrics, self._clock)

    def _watched(self, store: Store) -> Store:
        self._health.slow_s = slow_after_s(store.leases.lease_s)
        return watched_store(store, self.metrics, self._health, self._clock)


DRAINING = "draining: taking no new runs; a second signal stops immediately"


@asynccontextmanager
async def _engine(common: Common, out: Output, *, makes: bool = False) -> AsyncIterator[Engine]:
    settings = load_settings(db=common.db, app=common.app, runs=common.runs, files=common.files)
    app = app_of(settings)
    out.redactor = app.redactor
    if not makes:
        check_there(app.store)
    try:
        yield await app.engine(tool_env=settings.tool_env)
    finally:
        await app.close()


@asynccontextmanager
async def _worker_engine(
    common: Common, out: Output, lease_s: float | None, watch: Watch, stop: StopSwitch
) -> AsyncIterator[Engine]:
    """The engine of a worker, which also delivers notifications if somebody wants them."""
    settings = load_settings(db=common.db, app=common.app, runs=common.runs, files=common.files)
    app = app_of(settings)
    out.redactor = app.redactor
    app.lease_s = app.lease_s if lease_s is None else lease_s
    courier: Courier | None = None

    def observe(run: Run, events: Sequence[Event]) -> None:
        if courier is not None:
            courier.observe(run, events)

    try:
        engine = await watch.engine(app, settings.tool_env, observe if settings.notify else ignore)
        count = watch.metrics.notifications.add
        courier = courier_of(app, engine.store, settings, warn=watch.warn, stop=stop, count=count)
        async with nullcontext() if courier is None else courier.at_work():
            yield engine
    finally:
        await app.close()


async def worker(
    *,
    concurrency: Annotated[int, number(CONCURRENCY, help="How many runs to execute at once.")] = 4,
    lease: Annotated[
        float | None, duration(LEASE, help="How long a claim lasts without a renewal, such as 10s.")
    ] = None,
    grace: Annotated[
        float | None,
        duration(
            GRACE, help="How long steps may take to finish after a signal, such as 30s (ONWARD_GRACE; 30s)."
        ),
    ] = None,
    until_idle: Annotated[bool, Parameter(help="Stop when no run is due or in progress.")] = False,
    metrics: Annotated[
        str | None,
        Parameter(
            help="Serve /metrics for Prometheus and /healthz at this address; without a host, only on this "
            "machine.",
            metavar="[HOST:]PORT",
        ),
    ] = None,
    log_format: LogFormat = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Claim due runs and execute them, until stopped by a signal.

    Any number of workers may share a database. On SIGTERM or Ctrl-C a worker takes no new runs, lets each
    step finish, and returns its runs to the queue. A second signal, or the end of the grace time, stops it at
    once.
    """
    from onward.chats.dispatch import Dispatcher
    from onward.model.settings import DEFAULT_CHATS
    from onward.worker import Worker

    grace_s = load_settings().grace_s if grace is None else grace
    stop = StopSwitch(grace_s)
    watch = Watch(metrics=metrics, log_format=log_format, out=out)

    def asked() -> None:
        if stop.reason is None:
            out.say(DRAINING)
            watch.drain()
        stop.request(DRAIN)

    async with _worker_engine(common, out, lease, watch, stop) as engine, watch.serving(engine.store):
        hand = Worker(
            engine,
            SystemClock(),
            stop,
            concurrency=concurrency,
            say=out.say,
            warn=watch.warn,
            until_idle=until_idle,
            metrics=watch.metrics,
            chats=Dispatcher(engine, SystemClock(), load_settings().chats or DEFAULT_CHATS),
        )
        with on_signals(asked, Force(grace_s, FAILED)):
            out.say(
                f"worker {owner_label(engine.store.leases.owner)}: up to {count(concurrency, 'run')} at once"
            )
            shift = await hand.run()
    return _tell_stopped(shift, out)


def _tell_stopped(shift: Shift, out: Output) -> int:
    left = f", {count(shift.left_behind, 'run')} cut off" if shift.left_behind else ""
    out.say(f"worker stopped: {count(shift.executed, 'run')} executed{left}")
    if out.is_json:
        done: WorkerDone = {"driven": shift.executed, "left_behind": shift.left_behind}
        out.value(done)
    return FAILED if shift.left_behind else FINE


async def recover(*, log_format: LogFormat = None, common: Common = COMMON, out: Out) -> int:
    """Find runs whose process died, and interrupt or requeue them; workers and servers do so too."""

    speak(out, log_format)
    async with _engine(common, out) as engine:
        found = await LocalOperations(engine, SystemClock()).decide.recover_runs(RecoverRuns())
    interrupted, requeued = found["interrupted"], found["requeued"]
    for run in (*interrupted, *requeued):
        because = f": {one_line(run['detail'])}" if run["detail"] else ""
        out.say(f"run {called(run['id'])} is {run['status']}{because}")
    for one in found["broken"]:
        out.say(f"run {called(one['run'])} could not be recovered: {one_line(one['error'], 500)}")
    out.say(
        f"{count(len(interrupted), 'run')} interrupted, {len(requeued)} requeued, "
        f"{len(found['waiting'])} waiting for an answer"
    )
    if out.is_json:
        recovered: RunsRecovered = {
            "interrupted": [run["id"] for run in interrupted],
            "requeued": [run["id"] for run in requeued],
            "waiting": found["waiting"],
            "broken": found["broken"],
        }
        out.value(recovered)
    return FAILED if found["broken"] else FINE


async def workers(*, common: Common = COMMON, out: Out) -> int:
    """List the workers and the processes that hold runs, and whether they are alive."""
    async with lists_of(common) as lists:
        found = await lists.list_workers(ListWorkers())
    if out.is_json:
        out.value(found)
        return FINE
    if not found:
        out.say("no worker is running, and no process holds a run")
        return FINE
    for line in table(("WORKER", "IS", "RUNS", "HANDLERS"), list(map(_worker_row, found))):
        out.say(line)
    return FINE


def _worker_row(one: WorkerListed) -> tuple[str, str, str, str]:
    is_idle = one["handlers"] is not None and not one["runs"]
    runs = "idle" if is_idle and one["is_alive"] else " ".join(one["runs"]) or "–"
    handlers = "–" if one["handlers"] is None else one_line(" ".join(one["handlers"]), 200)
    return one["worker"], "alive" if one["is_alive"] else "dead", runs, handlers
