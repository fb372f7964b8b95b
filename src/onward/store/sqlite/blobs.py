"""Content by its hash, in SQLite."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import apsw

from onward.store import sweeping
from onward.store.port.blobs import Swept
from onward.store.sqlite.file.transaction import Transactions
from onward.store.sqlite.reading import read_blobs
from onward.store.sqlite.statements import QUERIES
from onward.store.sqlite.writing import put_blob


class SqliteBlobs:
    """The content of one SQLite file. Looking for what is unused blocks no writer."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def find(self, hash: str) -> bytes | None:
        return await self._database.look(lambda db: read_blobs(db, (hash,)).get(hash))

    async def find_many(self, hashes: Collection[str]) -> Mapping[str, bytes]:
        return await self._database.look(lambda db: read_blobs(db, hashes))

    async def put(self, blobs: Mapping[str, bytes], *, at_us: int) -> None:
        def put(db: apsw.Connection) -> None:
            for name, content in blobs.items():
                put_blob(db, name, content, at_us)

        await self._database.transact(put)

    async def sweep(self, before_us: int, limit: int) -> Swept:
        return await sweeping.sweep(self, before_us, limit)

    async def unused(self, before_us: int, limit: int) -> Sequence[str]:
        values = {"before_us": before_us, "limit": limit}
        return await self._database.look(
            lambda db: [columns[0] for columns in db.execute(QUERIES["blob_unused"], values)]
        )

    async def mark(self, names: Sequence[str], *, before_us: int, mark: int) -> None:
        values = [{"hash": name, "before_us": before_us, "mark": mark} for name in names]
        await self._database.transact(lambda db: db.executemany(QUERIES["blob_mark"], values).fetchall())

    async def delete(self, names: Sequence[str], *, mark: int) -> Swept:
        values = [{"hash": name, "mark": mark} for name in names]
        sizes: list[int] = await self._database.transact(
            lambda db: [columns[0] for columns in db.executemany(QUERIES["blob_delete"], values)]
        )
        return Swept(len(sizes), sum(sizes))
