"""Commands for many runs and many processes: worker, recover, workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from onward.cli.exits import FAILED, FINE
from onward.cli.numbers import duration, number
from onward.cli.opening.app import app_of
from onward.cli.opening.database import check_there
from onward.cli.opening.looking import lists_of
from onward.cli.opening.operating import courier_of
from onward.cli.options import COMMON, Common, LogFormat, Out
from onward.cli.print.output import Output
from onward.cli.print.text import count, one_line, table
from onward.cli.replies import RunsRecovered, WorkerDone
from onward.cli.signals import Force, on_signals
from onward.clock import SystemClock
from onward.config import load_settings
from onward.engine.engine import Engine, ignore
from onward.engine.stop import StopSwitch
from onward.machine.plan.planner import DRAIN
from onward.model.events import Event
from onward.model.ids import called
from onward.model.run import Run
from onward.model.values import CONCURRENCY, GRACE, LEASE
from onward.operations.local.operations import LocalOperations
from onward.operations.replies.database import WorkerListed
from onward.operations.requests import ListWorkers, RecoverRuns
from onward.store.owner import owner_label

if TYPE_CHECKING:
    from onward.cli.commands.operate.watching import Watch
    from onward.notify.courier import Courier
    from onward.worker import Shift

DRAINING = "draining: taking no new runs; a second signal stops now"


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
        float | None, duration(LEASE, help="How long a claim is good for without a renewal, such as 10s.")
    ] = None,
    grace: Annotated[
        float | None,
        duration(
            GRACE, help="How long to let steps finish when asked to stop, such as 30s (ONWARD_GRACE; 30s)."
        ),
    ] = None,
    until_idle: Annotated[bool, Parameter(help="Stop when nothing is due and nothing is under way.")] = False,
    metrics: Annotated[
        str | None,
        Parameter(
            help="Serve /metrics for Prometheus and /healthz there; without a host, to this machine only.",
            metavar="[HOST:]PORT",
        ),
    ] = None,
    log_format: LogFormat = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Claim due runs and execute them, until asked to stop.

    Any number of workers may share a database. SIGTERM or Ctrl-C takes no new runs, lets each step finish,
    and hands the runs back to the queue; a second one, or the end of the grace time, stops now.
    """
    from onward.chats.dispatch import Dispatcher
    from onward.chats.settings import DEFAULT_CHATS
    from onward.cli.commands.operate.watching import Watch
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
    """Look once for runs whose process died, and stop or requeue them; servers and workers do it always."""
    from onward.cli.commands.operate.watching import speak

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
