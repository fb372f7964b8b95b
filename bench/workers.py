"""What workers come to: claims and steps per second for 1, 2, 4 and 8 of them, and how a claim is found.

Workers are processes of their own at one PostgreSQL. A claim is a run of one step that does nothing:
computing and committing is all there is to it. The other steps wait, as steps do that ask somebody, so that
more workers have more of them under way.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import psycopg

from bench.figure import Figure
from bench.pipelines import engine_on, line
from bench.rows import POSTGRES_ROWS, SQLITE_ROWS, finished
from onward.engine.control.requests import StartRequest
from onward.engine.engine import Engine
from onward.engine.stop import StopSwitch
from onward.store.postgres.connection import Address, connect
from onward.store.postgres.statements import QUERIES
from onward.store.queries import load_queries
from onward.wiring import open_store

CREWS = (1, 2, 4, 8)
AT_ONCE = 4
CLAIMS = 200
RUNS_EACH, STEPS, WAITING = 16, 10, "wait"  # so many that the last ones do not decide
CPU = Path("/proc/stat")
FEW, MANY, CLAIMED = 1_000, 1_000_000, 40


@dataclass
class Rates:
    """How much was done per second in each round, and how busy the whole machine was then."""

    per_s: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.per_s)


def cpu_times() -> tuple[int, int]:
    """The machine's ticks so far: all of them, and those in which a processor had nothing to do."""
    ticks = [int(word) for word in CPU.read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4]


class Crew:
    """Worker processes that stand ready."""

    def __init__(self, db: str, number: int, at_once: int) -> None:
        command = [sys.executable, "-m", "bench.hand", db, str(at_once)]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(number)
        ]
        assert {self._hear(process) for process in self._processes} == {"ready"}

    def shift_s(self, runs: int) -> float:
        """How many seconds all of them together take until every run is done."""
        began = time.perf_counter()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        driven = sum(int(self._hear(process)) for process in self._processes)
        took_s = time.perf_counter() - began
        assert driven == runs, f"{driven} runs were driven of {runs}"
        return took_s

    def dismiss(self) -> None:
        for process in self._processes:
            process.communicate()

    @staticmethod
    def _hear(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()


@contextmanager
def crew_of(db: str, number: int, *, at_once: int = AT_ONCE) -> Iterator[Crew]:
    """So many worker processes, each of which drives so many runs at once."""
    crew = Crew(db, number, at_once)
    try:
        yield crew
    finally:
        crew.dismiss()


async def submitted(db: str, source: str, runs: int) -> None:
    """Runs that wait for workers."""
    store = await open_store(db)
    engine = engine_on(store)
    pipeline = engine.sources.prepare(source, "<work>")
    begun = StartRequest(on_owner_loss="requeue")
    await asyncio.gather(*(engine.submit(pipeline, begun) for _ in range(runs)))
    await engine.close()


async def shift(db: str, crew: Crew, source: str, runs: int, steps: int, rates: Rates) -> None:
    """Let the crew drive so many runs, and note how many steps it finished per second."""
    await submitted(db, source, runs)
    total, idle = cpu_times()
    rates.per_s.append(runs * steps / await asyncio.to_thread(crew.shift_s, runs))
    total_then, idle_then = cpu_times()
    rates.busy.append(1 - (idle_then - idle) / max(1, total_then - total))


async def scaling(fresh: Callable[[], str], rounds: int) -> list[Figure]:
    """Claims and steps per second as workers are added: the medians of interleaved rounds."""
    claims = {number: Rates() for number in CREWS}
    steps = {number: Rates() for number in CREWS}
    for _ in range(rounds):
        for number in CREWS:
            db = fresh()
            await (await open_store(db)).close()
            with crew_of(db, number) as crew:
                await shift(db, crew, line(1), 8 * number, 1, Rates())  # what is done once is done now
                await shift(db, crew, line(1), CLAIMS, 1, claims[number])
                await shift(db, crew, line(STEPS, WAITING), RUNS_EACH * number, STEPS, steps[number])
    return [*_rates("claims/s", claims, 1.0), *_rates("steps/s of 20 ms", steps, 1.5)]


def _rates(what: str, measured: dict[int, Rates], grows: float) -> list[Figure]:
    """Two workers do more than one, and more of them never do much less than fewer did."""
    figures = []
    for number, rates in measured.items():
        ratio = rates.median / measured[1].median
        best = max(fewer.median for crew, fewer in measured.items() if crew <= number)
        goal, met = ">= 0.7 of the best before", rates.median >= 0.7 * best
        if number <= 2:
            goal, met = (f">= {grows} x", ratio >= grows) if number == 2 else ("to compare with", True)
        busy = f"machine {statistics.median(rates.busy):.0%} busy"
        value = f"{rates.median:,.0f}/s, {ratio:.2f} x one worker, {busy}"
        figures.append(Figure(f"{number} worker{'s' if number > 1 else ''}: {what}", value, goal, met))
    return figures


# -- the claim among many finished runs ----------------------------------------------------------------


async def filled_postgres(url: str, rows: int) -> None:
    await (await open_store(url)).close()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(POSTGRES_ROWS, finished(rows))
        await connection.execute("VACUUM ANALYZE run")


async def filled_sqlite(path: str, rows: int) -> None:
    store = await open_store(path)
    await store.runs.count()
    await store.close()
    database = apsw.Connection(path)
    database.execute(SQLITE_ROWS, finished(rows))
    database.close()


async def postgres_index(url: str) -> str:
    """The plan of a claim, as a worker's session makes it: which index it reads."""
    statement = QUERIES["run_due"]
    async with await connect(Address.parse(url)) as connection:
        await connection.execute(b"PREPARE planned AS " + statement.sql)
        nulls = ", ".join(["NULL"] * len(statement.parameters))
        cursor = await connection.execute(f"EXPLAIN EXECUTE planned ({nulls})".encode())
        return next((line for (line,) in await cursor.fetchall() if "Scan" in line), "no scan").strip(" ->")


async def sqlite_index(path: str) -> str:
    query = load_queries("onward.store.sqlite")["run_due"]
    values = {"now_us": None, "skipped": "[]", "unserved": "[]", "full": "[]"}
    database = apsw.Connection(path)
    found = [detail for *_, detail in database.execute(f"EXPLAIN QUERY PLAN {query}", values)]
    database.close()
    return str(found[0])


async def claim_times_ms(engine: Engine) -> tuple[list[float], list[float]]:
    """Milliseconds for each of some claims, and for as many looks for runs that lost their owner."""
    pipeline = engine.sources.prepare(line(1), "<one>")
    for _ in range(CLAIMED):
        await engine.submit(pipeline, StartRequest(on_owner_loss="requeue"))
    claims, sweeps = [], []
    for _ in range(CLAIMED):
        began = time.perf_counter()
        taken = await engine.take(StopSwitch())
        claims.append((time.perf_counter() - began) * 1_000)
        assert taken is not None
        began = time.perf_counter()
        await engine.sweep()
        sweeps.append((time.perf_counter() - began) * 1_000)
        await taken[1]
    return claims, sweeps


async def history(name: str, fresh: Callable[[], str], rounds: int) -> list[Figure]:
    """A claim, and a look for lost runs, among a million finished runs against a thousand."""
    is_file = name == "SQLite"
    engines, index = {}, ""
    for rows in (FEW, MANY):
        db = fresh()
        await (filled_sqlite if is_file else filled_postgres)(db, rows)
        index = await (sqlite_index if is_file else postgres_index)(db)
        engines[rows] = engine_on(await open_store(db))
    claims: dict[int, list[float]] = {FEW: [], MANY: []}
    sweeps: dict[int, list[float]] = {FEW: [], MANY: []}
    for _ in range(rounds):
        for rows, engine in engines.items():
            claimed, swept = await claim_times_ms(engine)
            claims[rows] += claimed
            sweeps[rows] += swept
    for engine in engines.values():
        await engine.close()
    return [
        Figure(f"{name}: claim at {MANY:,} finished runs", index[:44], "index run_due", "run_due" in index),
        _grown(f"{name}: claim at {MANY:,} finished against {FEW:,}", claims),
        _grown(f"{name}: sweep at {MANY:,} finished against {FEW:,}", sweeps),
    ]


def _grown(what: str, times_ms: dict[int, list[float]]) -> Figure:
    few, many = (statistics.median(times_ms[rows]) for rows in (FEW, MANY))
    return Figure(what, f"{many / few:.2f} x ({many:.2f} ms of {few:.2f} ms)", "< 2 x", many < 2 * few)


async def workers(fresh_file: Callable[[], str], fresh_url: Callable[[], str], rounds: int) -> list[Figure]:
    """Everything about workers."""
    rounds = min(rounds, 3)
    return [
        *await history("SQLite", fresh_file, rounds),
        *await history("PostgreSQL", fresh_url, rounds),
        *await scaling(fresh_url, rounds),
    ]
