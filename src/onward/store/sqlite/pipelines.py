"""Registered pipelines in SQLite: one transaction for each call."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from onward.model.values.bounds import INTEGER_MAX
from onward.store.port.registry.pipelines import Added, NewSource, RegisteredPipeline, RegisteredVersion
from onward.store.sqlite.file.transaction import Transactions
from onward.store.sqlite.reading import one
from onward.store.sqlite.statements import QUERIES
from onward.store.sqlite.writing import put_blob


class SqlitePipelines:
    """The registered pipelines of one SQLite file."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def add(self, new: NewSource, *, at_us: int, enables: bool = True) -> Added:
        return await self._database.transact(lambda db: _add(db, new, at_us, enables))

    async def enable(self, name: str, version: int, *, by: str, at_us: int) -> RegisteredPipeline | None:
        values = {"pipeline": name, "version": version, "by": by, "at_us": at_us}
        return await self._database.transact(lambda db: _changed(db, "pipeline_enable", values))

    async def remove(self, name: str, *, by: str, at_us: int) -> RegisteredPipeline | None:
        values = {"pipeline": name, "by": by, "at_us": at_us}
        return await self._database.transact(lambda db: _changed(db, "pipeline_remove", values))

    async def find(self, name: str) -> RegisteredPipeline | None:
        return await self._database.look(lambda db: _find(db, name))

    async def list(self, *, after: str = "", limit: int) -> Sequence[RegisteredPipeline]:
        values = {"after": after, "limit": limit}
        return await self._database.look(
            lambda db: [RegisteredPipeline(*row) for row in db.execute(QUERIES["pipeline_list"], values)]
        )

    async def versions(
        self, name: str, *, upto: int | None = None, limit: int
    ) -> Sequence[RegisteredVersion]:
        values = {"pipeline": name, "upto": INTEGER_MAX if upto is None else upto, "limit": limit}
        return await self._database.look(
            lambda db: [RegisteredVersion(*row) for row in db.execute(QUERIES["pipeline_versions"], values)]
        )


def _add(db: apsw.Connection, new: NewSource, at_us: int, enables: bool) -> Added:
    key = {"pipeline": new.name, "hash": new.hash}
    who = {"by": new.by, "at_us": at_us}
    db.execute(QUERIES["pipeline_make"], {"pipeline": new.name} | who)
    put_blob(db, new.hash, new.content, at_us)
    db.execute(QUERIES["pipeline_add"], key | who | {"file": new.file})
    db.execute(QUERIES["pipeline_enable_added"], key | who | {"enables": int(enables)})
    version, pipeline = one(db, "pipeline_source", **key), _find(db, new.name)
    assert version is not None
    assert pipeline is not None
    return Added(pipeline, RegisteredVersion(*version))


def _changed(db: apsw.Connection, query: str, values: dict[str, object]) -> RegisteredPipeline | None:
    db.execute(QUERIES[query], values)
    return _find(db, str(values["pipeline"]))


def _find(db: apsw.Connection, name: str) -> RegisteredPipeline | None:
    found = one(db, "pipeline_find", pipeline=name)
    return None if found is None else RegisteredPipeline(*found)
