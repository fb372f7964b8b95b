"""The run `run`, from one store to a file and from a file into another store."""

from __future__ import annotations

import io

from onward.carry.exporter import Exporter, row_of
from onward.carry.format import Spool
from onward.carry.importer import CheckedExport, Importer
from onward.store.port.store import Store
from onward.testing.clock import ManualClock


async def exported(store: Store) -> bytes:
    file = io.BytesIO()
    await Exporter(store, file.write).export([await row_of(store.runs, "run")])
    return file.getvalue()


async def imported(content: bytes, into: Store) -> None:
    spool = Spool(io.BytesIO(content), "the file")
    try:
        await Importer(into, ManualClock(), CheckedExport(spool)).bring()
    finally:
        spool.close()
