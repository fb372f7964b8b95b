"""Exports that are larger than what a process may hold in memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import BinaryIO

import pytest

from onward.carry.exporter import Exporter, row_of
from onward.carry.format import Spool
from onward.carry.importer import CheckedExport, Importer
from onward.clock import SystemClock
from onward.errors import Refused
from onward.model.events import RunPaused
from onward.operations.here.verify import verify_run
from onward.store.codec import content_hash
from onward.store.port.retention import Arrival, Carrying
from onward.store.port.store import Store
from onward.store.sqlite.adapter import SqliteStore
from tests.conformance.drafts import created, held, stepped
from tests.conformance.faults import Around, Fault, FaultyStore

pytestmark = pytest.mark.anyio
VALUE_BYTES, VALUES = 500_000, 60
PEAK_BYTES_MAX = VALUE_BYTES * VALUES // 2
SOURCE = b"digraph {}"


async def filled(store: Store) -> None:
    """A run whose log names 30 MB of content."""
    name = content_hash(SOURCE)
    run = await held(store, "run", pipeline_hash=name, blobs={name: SOURCE})
    for number in range(VALUES):
        run = await stepped(store, run, text=f"{number} ".ljust(VALUE_BYTES, "x"))
    write, _ = run.then(RunPaused(reason="operator"))
    await store.log.append(write, run.lease)


async def export(store: Store, path: Path, *ids: str) -> None:
    rows = [await row_of(store.runs, run_id) for run_id in ids]
    file = created_file(path)
    try:
        await Exporter(store, file.write).export(rows)
    finally:
        file.close()


def created_file(path: Path) -> BinaryIO:
    return open(path, "wb")


def spooled(path: Path) -> Spool:
    with open(path, "rb") as file:
        source: BinaryIO = file
        return Spool(source, str(path))


async def test_memory_does_not_grow_with_what_is_exported_and_imported(tmp_path: Path) -> None:
    here, there = SqliteStore(str(tmp_path / "here.db")), SqliteStore(str(tmp_path / "there.db"))
    await filled(here)
    tracemalloc.start()
    try:
        await export(here, tmp_path / "export", "run")
        spool = spooled(tmp_path / "export")
        (one,) = await Importer(there, SystemClock(), CheckedExport(spool)).bring()
        spool.close()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert one.is_new
    assert (tmp_path / "export").stat().st_size > VALUE_BYTES * VALUES
    assert peak < PEAK_BYTES_MAX
    assert (await verify_run(there, "run")).problems == ()
    await here.close()
    await there.close()


async def test_an_export_of_a_run_that_goes_on_is_of_one_moment(
    store: Store, other: Store, tmp_path: Path
) -> None:
    name = content_hash(SOURCE)
    run = await stepped(store, await held(store, "run", pipeline_hash=name, blobs={name: SOURCE}), times=30)
    row = await row_of(other.runs, "run")
    row_after = await stepped(store, run, times=5)
    parts: list[bytes] = []
    await Exporter(other, parts.append).export([row])
    assert row_after.position.seq > row.head
    (tmp_path / "export").write_bytes(b"".join(parts))
    there, spool = SqliteStore(str(tmp_path / "there.db")), spooled(tmp_path / "export")
    await Importer(there, SystemClock(), CheckedExport(spool)).bring()
    spool.close()
    arrived = await there.log.read("run", after=row.head, limit=1)
    assert arrived[0].kind == "RunClaimed"
    assert list(await there.log.read("run", after=0, limit=row.head)) == list(
        await store.log.read("run", after=0, limit=row.head)
    )
    await there.close()


async def test_an_import_whose_reply_was_lost_or_that_died_is_finished_by_the_next(
    store: Store, tmp_path: Path
) -> None:
    """Each run arrives whole; what had arrived is skipped."""
    here = SqliteStore(str(tmp_path / "here.db"))
    name = content_hash(SOURCE)
    for run_id in ("one", "two"):
        await created(here, run_id, pipeline_hash=name, blobs={name: SOURCE})
    await export(here, tmp_path / "export", "one", "two")
    await here.close()
    spool = spooled(tmp_path / "export")
    faulty = FaultyStore(store, Fault.LOSE_REPLY, 2, counted={"carrying.receive"})
    with pytest.raises(Exception, match="this is a test"):
        await Importer(faulty, SystemClock(), CheckedExport(spool)).bring()
    brought = await Importer(store, SystemClock(), CheckedExport(spool)).bring()
    spool.close()
    assert [one.is_new for one in brought] == [False, False]
    for run_id in ("one", "two"):
        assert (await verify_run(store, run_id)).problems == ()


class Swept(Around[Carrying]):
    """A store that is swept after content was kept ahead of a run, as if the import had stood still."""

    async def receive(self, arrival: Arrival) -> None:
        await self.store.store.blobs.sweep(SystemClock().now_us() + 1_000_000, 1_000)
        await self.part.receive(arrival)


async def test_an_import_that_stood_still_brings_a_run_with_its_content_or_not_at_all(
    store: Store, tmp_path: Path
) -> None:
    name = content_hash(SOURCE)
    here = SqliteStore(str(tmp_path / "here.db"))
    small = await held(here, "small", pipeline_hash=name, blobs={name: SOURCE})
    large = await held(here, "large", pipeline_hash=name, blobs={name: SOURCE})
    large = await stepped(here, large, text="x" * 10_000)
    for run in (small, large):
        write, _ = run.then(RunPaused(reason="operator"))
        await here.log.append(write, run.lease)
        await export(here, tmp_path / run.id, run.id)
        spool = spooled(tmp_path / run.id)
        importer = Importer(FaultyStore(store, carrying=Swept), SystemClock(), CheckedExport(spool))
        if run is small:
            assert (await importer.bring())[0].is_new
            assert await store.blobs.find(name) == SOURCE
        else:
            with pytest.raises(Refused, match="refers to content that is not stored"):
                await importer.bring()
        spool.close()
    assert await store.runs.find("large") == []
    await here.close()
