"""A world in which time, ids and process names are fixed, so that every making gives the same rows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onward.engine.files.run_files import RunFiles
from onward.model.run import Run
from onward.store.port.store import Store
from onward.store.postgres.adapter import PostgresStore
from onward.store.sqlite.adapter import SqliteStore
from onward.testing.clock import ManualClock
from onward.wiring import runs_of
from tests.conformance.faults import Died
from tests.world import Process, Script, World

SEED_FIRST = 1_000_000
"""Tests count their processes from 1, and two processes must not share a seed."""
LEASE_S = 300.0
NO_BOOT = "00000000-0000-0000-0000-000000000000"


class Maker:
    """Makes runs in one database and notes what must become of each."""

    def __init__(self, db: str, directory: str) -> None:
        self.db, self.directory = db, directory
        self.clock = ManualClock(autojump=False)  # jumps would depend on how long the database takes
        self.due: dict[str, dict[str, Any]] = {}
        self._processes: list[Process] = []  # what the dead were about to do waits for ever, and must be kept
        self.world = World(self._connect, "golden", _processes=SEED_FIRST)

    async def _connect(self) -> Store:
        # The name of a process says on which machine it ran. That must not be in the files.
        name = f"{self.world._processes + 1}@golden/"
        store: SqliteStore | PostgresStore
        if self.db.startswith("postgres"):
            store = await PostgresStore.open(self.db, now_us=self.clock.now_us, lease_s=LEASE_S)
        else:
            store = SqliteStore(self.db, now_us=self.clock.now_us, lease_s=LEASE_S)
            assert store.leases.owner, "from now on it has announced itself"
        store.leases._ownership.owner = f"{name}{self.world._processes + 1:020x}:1:{NO_BOOT}:1-1"
        return store

    def expect(self, run_id: str, way: str, ends: str, executes: list[str], **how: Any) -> None:
        """Note what a later version does with the run, what that comes to, and which steps it executes."""
        self.due[run_id] = {"way": way, "how": how, "ends": ends, "executes": executes}

    async def process(self, script: Script | None = None, *, files: bool = False, **how: Any) -> Process:
        made = await self.world.process(script, clock=self.clock, files=self._files if files else None, **how)
        self._processes.append(made)
        return made

    def _files(self, store: Store) -> RunFiles:
        return RunFiles(runs_of(self.db) or "", store.identity, mode="full", warn=_refuse)

    async def die(self, process: Process) -> None:
        """End a process without a word, and wait until its leases have run out."""
        await process.die()
        self.clock.advance(LEASE_S + 1)

    async def died(
        self, source: str, at: str, run_id: str, before: Mapping[str, Any] | None = None, **start: Any
    ) -> None:
        """A run whose process died inside node `at`."""
        process = await self.process({**(before or {}), at: [Died("here")]})
        try:
            await process.start(source, run_id, **start)
        except Died:
            await self.die(process)
        else:
            raise AssertionError(f"{run_id} never came to {at}")

    async def die_under(self, process: Process, running: asyncio.Task[Run]) -> None:
        """Let a process die inside the step that it is at."""
        await self.die(process)
        running.cancel()
        await asyncio.wait([running])

    def write(self, name: str, text: str) -> str:
        """Put a pipeline into the directory; its path."""
        path = Path(self.directory, name)
        path.write_text(text)
        return str(path)


def _refuse(text: str) -> None:
    raise AssertionError(text)
