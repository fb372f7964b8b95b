"""How long a run stands still when its worker is killed: from SIGKILL to the start of its step on another.

Two workers are at work; the one that has the run is killed, the other goes on, and a new one takes the place
of the dead. On the same machine the death is seen; of another machine nothing is seen, and the lease has to
run out. Workers of another machine are real processes that take themselves for such (`bench/elsewhere.py`).
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import bench.elsewhere
from bench.figure import Figure
from bench.pipelines import engine_on
from onward.engine.control.requests import StartRequest
from onward.wiring import open_store
from onward.worker import SWEEP_S

KILLS, KILLS_ELSEWHERE = 10, 5
LEASE_S = 2
SAME_S_MAX, ELSEWHERE_S_MAX = 0.5, LEASE_S + 1.0
PATIENCE_S = 60.0
STAND = """digraph stand {
  start [shape=Mdiamond]; exit [shape=Msquare]; stand [type=stand]
  start -> stand -> exit
}"""


class Begun(NamedTuple):
    """A step that began: in which run and process, and when by a clock that all processes share."""

    run_id: str
    pid: int
    at_s: float


class Post:
    """Two workers at a database, and the ledger in which their steps write down when they begin."""

    def __init__(self, directory: Path, db: str, *, is_elsewhere: bool) -> None:
        self._directory, self._is_elsewhere = directory, is_elsewhere
        self.ledger = directory / "ledger"
        self.ledger.touch()
        self._environment = {
            **os.environ,
            "ONWARD_DB": db,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "STANDING": str(directory),
        }
        self._workers: dict[int, subprocess.Popen[str]] = {}
        for _ in range(2):
            self._hire()

    def _hire(self) -> None:
        script = str(Path(sys.executable).with_name("onward"))
        command = [sys.executable, script]
        if self._is_elsewhere:
            boot = self._directory / uuid.uuid4().hex
            boot.write_text(boot.name)
            command = [sys.executable, bench.elsewhere.__file__, str(boot), script]
        words = ["worker", "--app", "bench.standing:app", "--lease", f"{LEASE_S}s", "--concurrency", "1"]
        worker = subprocess.Popen(
            [*command, *words], cwd=self._directory, env=self._environment, stdout=subprocess.PIPE, text=True
        )
        assert worker.stdout is not None
        assert "at once" in worker.stdout.readline()
        self._workers[worker.pid] = worker

    def take_over_s(self, run_id: str, after_s: float) -> float:
        """Kill the worker that has the run; seconds until the run's step begins on another one."""
        first = self._begun(run_id, 1)
        victim = self._workers.pop(first.pid)
        time.sleep(after_s)
        killed_s = time.monotonic()
        victim.kill()
        second = self._begun(run_id, 2)
        victim.communicate()
        assert second.pid != first.pid
        (self._directory / run_id).touch()  # it may go on
        self._hire()
        return second.at_s - killed_s

    def _begun(self, run_id: str, number: int) -> Begun:
        """The beginning of that number of the run's step."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            lines = [line.split() for line in self.ledger.read_text().splitlines()]
            found = [Begun(name, int(pid), float(at_s)) for name, pid, at_s in lines if name == run_id]
            if len(found) >= number:
                return found[number - 1]
            time.sleep(0.005)
        raise AssertionError(f"run {run_id} did not begin")

    def dismiss(self) -> None:
        for worker in self._workers.values():
            worker.terminate()
        for worker in self._workers.values():
            worker.communicate()


@contextmanager
def post(db: str, *, is_elsewhere: bool) -> Iterator[Post]:
    with tempfile.TemporaryDirectory() as directory:
        workers = Post(Path(directory), db, is_elsewhere=is_elsewhere)
        try:
            yield workers
        finally:
            workers.dismiss()


async def submitted(db: str, run_id: str) -> None:
    store = await open_store(db)
    engine = engine_on(store)
    await engine.submit(
        engine.sources.prepare(STAND, "<stand>"), StartRequest(run_id=run_id, on_owner_loss="requeue")
    )
    await engine.close()


async def measured(name: str, db: str, *, is_elsewhere: bool) -> Figure:
    """The median and the worst of some kills."""
    await (await open_store(db)).close()
    kills = KILLS_ELSEWHERE if is_elsewhere else KILLS
    times_s = []
    with post(db, is_elsewhere=is_elsewhere) as workers:
        for number in range(kills):
            run_id = f"{'far' if is_elsewhere else 'near'}-{number}"
            await submitted(db, run_id)
            # Spread over the survivor's sweep interval: the end of the last run also sets the sweep's phase.
            after_s = SWEEP_S * number / kills
            times_s.append(await asyncio.to_thread(workers.take_over_s, run_id, after_s))
    limit_s = ELSEWHERE_S_MAX if is_elsewhere else SAME_S_MAX
    where = f"other host, lease {LEASE_S} s" if is_elsewhere else "same host"
    return Figure(
        f"{name}: take-over after kill -9, {where}",
        f"median {statistics.median(times_s):.2f} s, worst {max(times_s):.2f} s of {kills}",
        f"< {limit_s:g} s",
        max(times_s) < limit_s,
    )


async def takeovers(directory: str, postgres: str) -> list[Figure]:
    """Both databases, from the same machine and from another."""
    sqlite = os.path.join(directory, "takeover.db")
    return [
        await measured("SQLite", sqlite, is_elsewhere=False),
        await measured("PostgreSQL", postgres, is_elsewhere=False),
        await measured("SQLite", sqlite, is_elsewhere=True),
        await measured("PostgreSQL", postgres, is_elsewhere=True),
    ]
