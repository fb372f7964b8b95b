"""`make bench`: pipelines, steps and runs against the floor, resume, growth, files, `status`, models,
messages, streams, calls, agents, limits, workers, readers of a server, the page in a browser.

Each figure is the median of interleaved rounds; a ratio compares with a floor measured in the same round.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgspec.structs import astuple

from bench.agents import agent_rounds
from bench.calls import calls_cost
from bench.dialect import Timing, dialect_timings
from bench.feeds import feeds
from bench.figure import Figure
from bench.files import files_cost
from bench.floor import Row, postgres_rate, sqlite_rate
from bench.flows import flows_cost
from bench.hot_scope import hot_scope
from bench.messages import message_streams
from bench.models import model_streams
from bench.page import page_times
from bench.pipelines import engine_on, line, loop, looping_engine
from bench.rates import AT_A_TIME, RUNS, STEPS, runs_rate, steps_rate
from bench.streaming import durable_streams
from bench.takeover import takeovers
from bench.workers import workers
from onward.engine.control.requests import Resume, StartRequest
from onward.engine.engine import Engine
from onward.model.run import RunStatus
from onward.testing.postgres import PostgresServer
from onward.wiring import open_store

WRITES = 4  # of a run of three steps: its start, two steps on the way, and the last with the end
PARTS = (
    "dialect",
    "sqlite",
    "postgres",
    "resume",
    "growth",
    "files",
    "status",
    "models",
    "messages",
    "streaming",
    "calls",
    "flows",
    "agents",
    "limits",
    "workers",
    "takeover",
    "feeds",
    "page",
)


@dataclass(frozen=True, slots=True)
class Place:
    """A database to measure on."""

    name: str
    fresh: Callable[[], str]
    floor: Callable[[list[Row], int], Awaitable[float]]
    """Commits per second of these rows each, so many of them."""
    steps_ratio: float
    runs_per_s: float


async def steps_and_rows(engine: Engine) -> tuple[float, list[Row]]:
    """Steps per second of one run of no-op steps, and the rows that such a step writes."""
    rate, run_id = await steps_rate(engine)
    records = await engine.journal.read(run_id, after=500, limit=2)
    return rate, [astuple(record)[:8] for record in records]


async def throughput(place: Place, rounds: int) -> list[Figure]:
    """Steps against the floor, and runs beside a bare loop that commits as many rows of as many at a time."""
    ratios, rates, runs, bare = [], [], [], []
    for _ in range(rounds):
        store = await open_store(place.fresh())
        engine = engine_on(store)
        _, rows = await steps_and_rows(engine)
        # Before and after the steps that count, since the machine changes its mind within seconds.
        before = await place.floor(rows, STEPS)
        rate, rows = await steps_and_rows(engine)
        floor = (before + await place.floor(rows, STEPS)) / 2
        ratios.append(rate / floor)
        rates.append((rate, floor))
        runs.append(await runs_rate(engine))
        groups = await place.floor(rows * AT_A_TIME, RUNS * WRITES // AT_A_TIME)
        bare.append(groups * AT_A_TIME / WRITES)
        await store.close()
    rate, floor = sorted(rates)[len(rates) // 2]
    ratio, per_s, bare_per_s = (statistics.median(found) for found in (ratios, runs, bare))
    return [
        Figure(
            f"{place.name}: {STEPS} no-op steps in a line",
            f"{ratio:.2f} of the floor ({rate:,.0f} of {floor:,.0f} commits/s)",
            f">= {place.steps_ratio}",
            ratio >= place.steps_ratio,
        ),
        Figure(
            f"{place.name}: {RUNS} runs x 3 steps, {AT_A_TIME} at a time",
            f"{per_s:,.0f} runs/s ({min(runs):,.0f} to {max(runs):,.0f}; bare {bare_per_s:,.0f})",
            f">= {place.runs_per_s:,.0f}",
            per_s >= place.runs_per_s,
        ),
    ]


async def prepared(db: str, events: int) -> str:
    """A run of so many events, stopped before its last step."""
    store = await open_store(db)
    engine = looping_engine(store, events // 2, [])
    parked = await engine.start(engine.sources.prepare(loop(events // 2), "<loop>"), StartRequest())
    assert parked.run.status is RunStatus.WAITING
    await engine.answer(parked.run.id, "go", by="bench", run=False)
    await store.close()
    return parked.run.id


async def resume_ms(db: str, run_id: str, events: int) -> float:
    """Milliseconds from opening the database to the first new step."""
    performed: list[float] = []
    began = time.perf_counter()
    store = await open_store(db)
    engine = looping_engine(store, events // 2, performed)
    ended = await engine.resume(run_id, Resume(original=True))
    assert ended.run.status is RunStatus.COMPLETED
    await store.close()
    return (performed[0] - began) * 1_000


async def resume_cost(fresh: Callable[[], str], rounds: int) -> Figure:
    """How a long history changes the time to the first new step: copies of two databases, in turns."""
    lengths = (1_000, 100_000)
    made = {events: fresh() for events in lengths}
    runs = {events: await prepared(db, events) for events, db in made.items()}
    times: dict[int, list[float]] = {events: [] for events in lengths}
    for _ in range(2 * rounds):
        for events in lengths:
            copy = fresh()
            shutil.copy(made[events], copy)
            os.chmod(copy, 0o600)
            times[events].append(await resume_ms(copy, runs[events], events))
    short, long = (statistics.median(times[events]) for events in lengths)
    return Figure(
        "resume after 100,000 events against 1,000",
        f"{long / short:.2f} x ({long:.1f} ms of {short:.1f} ms)",
        "<= 2 x",
        long <= 2 * short,
    )


def dialect(rounds: int) -> list[Figure]:
    """How long a pipeline takes to be read, prepared, checked and planned."""
    return [_timed(timing) for timing in dialect_timings(rounds)]


def _timed(timing: Timing) -> Figure:
    value = f"{timing.took:.1f} {timing.unit}"
    return Figure(timing.what, value, f"< {timing.limit:g} {timing.unit}", timing.took < timing.limit)


async def growth(directory: str) -> Figure:
    """Bytes on disk per step of a conversation that grows by a kilobyte a step."""
    path = os.path.join(directory, "growth.db")
    store = await open_store(path)
    engine = engine_on(store)
    await engine.start(engine.sources.prepare(line(200, "speak"), "<talk>"), StartRequest())
    await store.close()
    size = _bytes(path)
    return Figure(
        "200 steps that each add 1 KB", f"{size / 200:,.0f} bytes/step", "<= 4,096", size / 200 <= 4096
    )


async def listing(directory: str) -> Figure:
    """`onward status` with ten thousand runs, start-up included."""
    path = os.path.join(directory, "status.db")
    store = await open_store(path)
    engine = engine_on(store)
    pipeline = engine.sources.prepare(line(1), "<one>")
    free = asyncio.Semaphore(200)

    async def one() -> None:
        async with free:
            await engine.start(pipeline, StartRequest())

    await asyncio.gather(*(one() for _ in range(10_000)))
    await store.close()
    command = [os.path.join(os.path.dirname(sys.executable), "onward"), "status", "--db", path]
    seconds = statistics.median(_seconds(command) for _ in range(7))
    return Figure("onward status with 10,000 runs", f"{seconds:.2f} s", "< 0.5 s", seconds < 0.5)


def _bytes(path: str) -> int:
    return sum(os.path.getsize(path + end) for end in ("", "-wal") if os.path.exists(path + end))


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


async def report(rounds: int, only: str | None) -> bool:
    """Measure and print; whether every goal was met."""
    figures: list[Figure] = []

    def add(*new: Figure) -> None:
        for figure in new:
            print(figure, flush=True)
        figures.extend(new)

    if only in (None, "dialect"):
        add(*dialect(rounds))
    if only == "dialect":  # needs no database
        return all(figure.met for figure in figures)
    if only in (None, "models"):
        with tempfile.TemporaryDirectory(prefix=".bench-", dir=os.getcwd()) as directory:
            add(*await model_streams(directory, rounds))
    if only == "models":  # nor does this
        return all(figure.met for figure in figures)
    with (
        tempfile.TemporaryDirectory(prefix=".bench-", dir=os.getcwd()) as directory,
        PostgresServer(fsync=True) as server,
    ):

        def fresh_file() -> str:
            return os.path.join(directory, f"{time.monotonic_ns()}.db")

        async def sqlite_floor(rows: list[Row], commits: int) -> float:
            return sqlite_rate(directory, rows, commits)

        async def postgres_floor(rows: list[Row], commits: int) -> float:
            return await postgres_rate(server.create_database(), rows, commits)

        sqlite = Place("SQLite", fresh_file, sqlite_floor, 0.75, 1_500)
        postgres = Place("PostgreSQL", server.create_database, postgres_floor, 0.7, 500)
        if only in (None, "sqlite"):
            add(*await throughput(sqlite, rounds))
        if only in (None, "postgres"):
            add(*await throughput(postgres, rounds))
        if only in (None, "resume"):
            add(await resume_cost(fresh_file, rounds))
        if only in (None, "growth"):
            add(await growth(directory))
        if only in (None, "files"):
            add(*await files_cost(fresh_file, rounds))
        if only in (None, "status"):
            add(await listing(directory))
        if only in (None, "messages"):
            for place in (sqlite, postgres):
                add(*await message_streams(place.fresh(), place.name))
        if only in (None, "streaming"):
            for place in (sqlite, postgres):
                add(*await durable_streams(place.name, place.fresh, directory, rounds))
        if only in (None, "calls"):
            for place in (sqlite, postgres):
                add(*await calls_cost(place.name, place.fresh, rounds))
        if only in (None, "flows"):
            for place in (sqlite, postgres):
                add(*await flows_cost(place.name, place.fresh, place.floor, rounds))
        if only in (None, "agents"):
            for place in (sqlite, postgres):
                add(*await agent_rounds(place.name, place.fresh, rounds))
        if only in (None, "limits"):
            add(await hot_scope(server.create_database, rounds))
        if only in (None, "workers"):
            add(*await workers(fresh_file, server.create_database, rounds))
        if only in (None, "takeover"):
            add(*await takeovers(directory, server.create_database()))
        if only in (None, "feeds"):
            for place in (sqlite, postgres):
                with tempfile.TemporaryDirectory(dir=directory) as project:
                    add(*await feeds(place.name, place.fresh, project, rounds))
        if only in (None, "page"):
            add(*await page_times(directory))
    return all(figure.met for figure in figures)


def main() -> int:
    """Exit 0 if every goal was met."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=PARTS)
    arguments = parser.parse_args()
    return 0 if asyncio.run(report(arguments.rounds, arguments.only)) else 1


if __name__ == "__main__":
    sys.exit(main())
