"""`python -m tests.golden.make`: keep databases of this version for the tests of later ones.

Run it once for a released version, before its number is raised, and commit the new folder. What a version has
written is never made again by a newer one: that is the point of it.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import psycopg

from onward.machine.catalogue import CATALOGUE
from onward.model.run import FOLD_VERSION
from onward.store.port.runs import RunQuery
from onward.testing.postgres import PostgresServer
from onward.version import VERSION
from onward.wiring import open_store
from tests.golden.files import FOLDER, pack_postgres, pack_sqlite, write_manifest
from tests.golden.maker import Maker
from tests.golden.stories import STORIES
from tests.world import World

DIRECTORY = Path(tempfile.gettempdir(), "onward-golden")
"""Paths of pipelines are in the logs, so the place has the same name on every machine."""
SAME_EVERYWHERE = "UPDATE identity SET name = 'golden'; UPDATE migration SET applied_at_us = 0"
RUNS_MAX = 10_000


async def make(db: str) -> dict[str, Any]:
    """Fill a new database; the manifest of what is in it."""
    await (await open_store(db)).close()
    _run(db, SAME_EVERYWHERE)
    maker = Maker(db, str(DIRECTORY))
    for story in STORIES:
        await story(maker)
        maker.clock.advance(1)
    await maker.world.close()
    return await described(maker)


async def described(maker: Maker) -> dict[str, Any]:
    """How every run stands, and what is due from it."""
    world = World(maker.world.connect, "golden", _processes=maker.world._processes + 1)
    process = await world.process(clock=maker.clock)
    runs: dict[str, Any] = {}
    kinds: Counter[str] = Counter()
    for listed in await process.store.runs.list(RunQuery((), limit=RUNS_MAX)):
        row, log = listed.row, await process.log(listed.row.id)
        finished = await process.completed(row.id)
        kinds.update(record.kind for record in log)
        runs[row.id] = {"status": row.status.value, "reason": row.reason, "finished": finished}
        runs[row.id] |= maker.due.pop(row.id, {"way": "none"})
    assert not maker.due, f"these were never made: {sorted(maker.due)}"
    missing = sorted({kind.__name__ for kind in CATALOGUE} - kinds.keys())
    assert not missing, f"no run has an event of these kinds: {missing}"
    await world.close()
    return {"version": VERSION, "fold_version": FOLD_VERSION, "runs": runs}


def _run(db: str, statements: str) -> None:
    if db.startswith("postgres"):
        with psycopg.connect(db) as connection:
            connection.execute(statements.encode())
        return
    file = apsw.Connection(db)
    file.execute(statements)
    file.close()


def _empty(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()


async def main() -> None:
    """Make both databases, whose runs must be the same."""
    with PostgresServer(fsync=False) as server:
        url, db = server.create_database(), str(DIRECTORY / "onward.db")
        manifests = []
        for address in (url, db):
            _empty(DIRECTORY)
            manifests.append(await make(address))
        assert manifests[0] == manifests[1], "the two databases differ"
        _empty(FOLDER / VERSION)
        pack_postgres(VERSION, url)
        pack_sqlite(VERSION, db)
        write_manifest(VERSION, manifests[0])
    shutil.rmtree(DIRECTORY)
    sys.stdout.write(f"{len(manifests[0]['runs'])} runs in {FOLDER / VERSION}\n")


if __name__ == "__main__":
    asyncio.run(main())
