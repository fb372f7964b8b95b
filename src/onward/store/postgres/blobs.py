"""Content by its hash, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from onward.store import sweeping
from onward.store.port.blobs import Swept
from onward.store.postgres.link.binary import texts
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.reading import read_blobs
from onward.store.postgres.statements import call
from onward.store.postgres.writing.calls import blob_call


class PostgresBlobs:
    """The content of one PostgreSQL database."""

    def __init__(self, connections: Pool) -> None:
        self._connections = connections

    async def find(self, hash: str) -> bytes | None:
        found = await self._connections.use(lambda wire: read_blobs(wire, (hash,)))
        return found.get(hash)

    async def find_many(self, hashes: Collection[str]) -> Mapping[str, bytes]:
        return await self._connections.use(lambda wire: read_blobs(wire, hashes))

    async def put(self, blobs: Mapping[str, bytes], *, at_us: int) -> None:
        calls = [blob_call(name, blobs[name], at_us) for name in sorted(blobs)]
        await self._connections.use(lambda wire: wire.run(*calls))

    async def sweep(self, before_us: int, limit: int) -> Swept:
        return await sweeping.sweep(self, before_us, limit)

    async def unused(self, before_us: int, limit: int) -> Sequence[str]:
        asked = call("blob_unused", before_us=before_us, limit=limit)
        (unused,) = await self._connections.use(lambda wire: wire.run(asked))
        return sorted(columns[0] for columns in unused)

    async def mark(self, names: Sequence[str], *, before_us: int, mark: int) -> None:
        marking = call("blob_mark", hashes=texts(names), before_us=before_us, mark=mark)
        await self._connections.use(lambda wire: wire.run(marking))

    async def delete(self, names: Sequence[str], *, mark: int) -> Swept:
        calls = [call("blob_delete", hash=name, mark=mark) for name in names]
        answers = await self._connections.use(lambda wire: wire.run(*calls))
        sizes = [columns[0] for found in answers for columns in found]
        return Swept(len(sizes), sum(sizes))
