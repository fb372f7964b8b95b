"""Opens a store by its path or address."""

from __future__ import annotations

from contextlib import suppress

from onward.errors import StoreReadOnly
from onward.model.values.bounds import LEASE
from onward.store.port.store import Store
from onward.wiring.places import POSTGRES, check_address


async def open_store(db: str, *, lease_s: float | None = None) -> Store:
    """Open the store at a path or address. A driver is imported only when it is used.

    `lease_s` is how long a claim lasts if others cannot see whether its process is alive.
    """
    check_address(db)
    if lease_s is not None:
        LEASE.check(lease_s, "lease_s")
    store = await _opened(db, lease_s)
    if await store.backfill.missing():
        from onward.read.backfill import fill_in

        with suppress(StoreReadOnly):  # then there is only what was filled in before
            await fill_in(store)
    return store


async def _opened(db: str, lease_s: float | None) -> Store:
    if db.startswith(POSTGRES):
        from onward.store.postgres.adapter import LEASE_S, PostgresStore

        return await PostgresStore.open(db, lease_s=lease_s or LEASE_S)
    if db == ":memory:":
        from onward.store.memory.adapter import MemoryDatabase

        return MemoryDatabase().connect()
    from onward.store.sqlite import adapter

    return adapter.SqliteStore(db.removeprefix("sqlite://"), lease_s=lease_s or adapter.LEASE_S)
