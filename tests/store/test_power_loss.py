"""The power fails at any moment: what was acknowledged is there, and the database is sound.

Every write and sync of a working store is recorded, and disks are rebuilt as a power cut may leave them.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from onward.clock import SystemClock, SystemIds
from onward.engine.journal import Journal
from onward.model.run import FOLD_VERSION
from onward.store.codec import check_chain
from onward.store.port.log import ORIGIN
from onward.store.port.runs import RunQuery
from onward.store.sqlite.adapter import SqliteStore
from tests.conformance.drafts import ALL, held, log_of, step
from tests.store.disk import Acknowledged, Disk, Onlooker, power_cuts

pytestmark = pytest.mark.slow


class Careless(apsw.Connection):
    """A connection that does not wait for its commits to reach the disk, whatever it is told."""

    def execute(self, statements: str, *arguments: Any, **options: Any) -> apsw.Cursor:
        if statements == "PRAGMA synchronous = FULL":
            statements = "PRAGMA synchronous = NORMAL"
        return super().execute(statements, *arguments, **options)


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk(f"disk-{SystemIds().unique()}")
    yield disk
    disk.unregister()


async def work(path: Path, disk: Disk, kind: type[apsw.Connection]) -> None:
    """Everything a store writes: creations, appends alone and in groups, blobs, snapshots, checkpoints."""
    store = SqliteStore(str(path), connect=partial(disk.connect, kind=kind))

    async def lived(number: int, steps: int) -> None:
        run = await held(store, context={"large": random.Random(number).randbytes(4_000).hex()})
        disk.happened.append(Acknowledged(run.id, *run.position))
        for count in range(steps):
            version = FOLD_VERSION if count % 3 == 2 else None
            write, run_after = run.then(*step(run), with_row=False, snapshot_version=version)
            await store.log.append(write, run.lease)
            run = run_after
            disk.happened.append(Acknowledged(run.id, *run.position))

    for number in range(3):
        await lived(number, steps=6)
    await asyncio.gather(*(lived(number, steps=3) for number in range(4)))
    await store.close()


async def lost(path: Path, promised: Sequence[Acknowledged]) -> list[Acknowledged]:
    """What was promised and is not there; the test fails if the database is not sound."""
    store = SqliteStore(str(path), connect=Onlooker)
    findings = {subject: (is_well, says) for subject, is_well, says in await store.check()}
    assert findings["integrity"] == (True, "ok")
    logs = {}
    for listed in await store.runs.list(RunQuery(limit=ALL)):
        log = await log_of(store, listed.row.id)
        assert check_chain(ORIGIN, log).seq == listed.row.head
        await Journal(store.log, SystemClock()).load(listed.row.id)
        logs[listed.row.id] = {(record.seq, record.hash) for record in log}
    await store.close()
    return [one for one in promised if (one.seq, one.hash) not in logs.get(one.run_id, set())]


async def lost_in_power_cuts(tmp_path: Path, disk: Disk, *, images: int, seed: int) -> tuple[int, int]:
    """How many disks were rebuilt, and how many of them lacked something promised."""
    dice = random.Random(seed)
    cut = broken = 0
    for files, promised in power_cuts(disk.happened, dice, share=images / len(disk.happened)):
        place = tmp_path / "found"
        place.mkdir()
        for file, content in files.items():
            (place / Path(file).name).write_bytes(content)
            (place / Path(file).name).chmod(0o600)
        cut, broken = cut + 1, broken + bool(await lost(place / "onward.db", promised))
        shutil.rmtree(place)
    return cut, broken


@pytest.mark.parametrize("seed", range(3))
async def test_a_power_cut_loses_nothing_that_was_acknowledged(tmp_path: Path, disk: Disk, seed: int) -> None:
    """O22."""
    await work(tmp_path / "onward.db", disk, apsw.Connection)
    cut, broken = await lost_in_power_cuts(tmp_path, disk, images=120, seed=seed)
    assert cut > 60
    assert broken == 0


async def test_a_store_that_does_not_wait_for_the_disk_is_found_out(tmp_path: Path, disk: Disk) -> None:
    """O22."""
    await work(tmp_path / "onward.db", disk, Careless)
    cut, broken = await lost_in_power_cuts(tmp_path, disk, images=60, seed=0)
    assert 0 < broken <= cut
