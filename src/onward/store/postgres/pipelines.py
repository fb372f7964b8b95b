"""Registered pipelines in PostgreSQL: one trip for each call."""

from __future__ import annotations

from collections.abc import Sequence

from onward.model.values.bounds import INTEGER_MAX
from onward.store.port.registry.pipelines import Added, NewSource, RegisteredPipeline, RegisteredVersion
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.link.wire import Rows
from onward.store.postgres.statements import BEGIN, COMMIT, Call, call
from onward.store.postgres.writing.calls import blob_call


class PostgresPipelines:
    """The registered pipelines of one PostgreSQL database."""

    def __init__(self, connections: Pool) -> None:
        self._connections = connections

    async def add(self, new: NewSource, *, at_us: int, enables: bool = True) -> Added:
        name, hash, by = new.name, new.hash, new.by
        *_, version, pipeline, _ = await self._ask(
            BEGIN,
            call("pipeline_make", pipeline=name, by=by, at_us=at_us),
            blob_call(hash, new.content, at_us),
            call("pipeline_add", pipeline=name, hash=hash, file=new.file, by=by, at_us=at_us),
            call("pipeline_enable_added", pipeline=name, hash=hash, enables=int(enables), by=by, at_us=at_us),
            call("pipeline_source", pipeline=name, hash=hash),
            call("pipeline_find", pipeline=name),
            COMMIT,
        )
        return Added(RegisteredPipeline(*pipeline[0]), RegisteredVersion(*version[0]))

    async def enable(self, name: str, version: int, *, by: str, at_us: int) -> RegisteredPipeline | None:
        return await self._then_find(
            name, call("pipeline_enable", pipeline=name, version=version, by=by, at_us=at_us)
        )

    async def remove(self, name: str, *, by: str, at_us: int) -> RegisteredPipeline | None:
        return await self._then_find(name, call("pipeline_remove", pipeline=name, by=by, at_us=at_us))

    async def find(self, name: str) -> RegisteredPipeline | None:
        return await self._then_find(name)

    async def list(self, *, after: str = "", limit: int) -> Sequence[RegisteredPipeline]:
        (found,) = await self._ask(call("pipeline_list", after=after, limit=limit))
        return [RegisteredPipeline(*row) for row in found]

    async def versions(
        self, name: str, *, upto: int | None = None, limit: int
    ) -> Sequence[RegisteredVersion]:
        upto = INTEGER_MAX if upto is None else upto
        (found,) = await self._ask(call("pipeline_versions", pipeline=name, upto=upto, limit=limit))
        return [RegisteredVersion(*row) for row in found]

    async def _then_find(self, name: str, *before: Call) -> RegisteredPipeline | None:
        *_, found = await self._ask(*before, call("pipeline_find", pipeline=name))
        return RegisteredPipeline(*found[0]) if found else None

    async def _ask(self, *calls: Call) -> Sequence[Rows]:
        return await self._connections.use(lambda wire: wire.run(*calls))
