"""What a SQLite file keeps, forgets and takes in: content, registered pipelines, and whole runs.

Content is found by its hash. Each call about a pipeline is one transaction, and so is each run that comes
from another database. Runs from before a migration are filled in one by one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

import apsw

from onward.model.chat import chat_of_run
from onward.model.values import INTEGER_MAX
from onward.store import rows, transactions
from onward.store.port import retention
from onward.store.port.log import content_named
from onward.store.sqlite.log import (
    SqliteWriter,
    check_content,
    event_columns,
    put_blob,
    put_gates,
    receive_messages,
)
from onward.store.sqlite.statements import QUERIES, one, read_blobs
from onward.store.sqlite.transaction import Transactions
from onward.store.transactions import Member


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

    async def sweep(self, before_us: int, limit: int) -> retention.Swept:
        return await transactions.sweep(self, before_us, limit)

    async def unused(self, before_us: int, limit: int) -> Sequence[str]:
        values = {"before_us": before_us, "limit": limit}
        return await self._database.look(
            lambda db: [columns[0] for columns in db.execute(QUERIES["blob_unused"], values)]
        )

    async def mark(self, names: Sequence[str], *, before_us: int, mark: int) -> None:
        values = [{"hash": name, "before_us": before_us, "mark": mark} for name in names]
        await self._database.transact(lambda db: db.executemany(QUERIES["blob_mark"], values).fetchall())

    async def delete(self, names: Sequence[str], *, mark: int) -> retention.Swept:
        values = [{"hash": name, "mark": mark} for name in names]
        sizes: list[int] = await self._database.transact(
            lambda db: [columns[0] for columns in db.executemany(QUERIES["blob_delete"], values)]
        )
        return retention.Swept(len(sizes), sum(sizes))


class SqlitePipelines:
    """The registered pipelines of one SQLite file."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def add(self, new: retention.NewSource, *, at_us: int, enables: bool = True) -> retention.Added:
        return await self._database.transact(lambda db: _add_source(db, new, at_us, enables))

    async def enable(
        self, name: str, version: int, *, by: str, at_us: int
    ) -> retention.RegisteredPipeline | None:
        values = {"pipeline": name, "version": version, "by": by, "at_us": at_us}
        return await self._database.transact(lambda db: _changed_pipeline(db, "pipeline_enable", values))

    async def remove(self, name: str, *, by: str, at_us: int) -> retention.RegisteredPipeline | None:
        values = {"pipeline": name, "by": by, "at_us": at_us}
        return await self._database.transact(lambda db: _changed_pipeline(db, "pipeline_remove", values))

    async def find(self, name: str) -> retention.RegisteredPipeline | None:
        return await self._database.look(lambda db: _find_pipeline(db, name))

    async def list(self, *, after: str = "", limit: int) -> Sequence[retention.RegisteredPipeline]:
        values = {"after": after, "limit": limit}
        return await self._database.look(
            lambda db: [
                retention.RegisteredPipeline(*row) for row in db.execute(QUERIES["pipeline_list"], values)
            ]
        )

    async def versions(
        self, name: str, *, upto: int | None = None, limit: int
    ) -> Sequence[retention.RegisteredVersion]:
        values = {"pipeline": name, "upto": INTEGER_MAX if upto is None else upto, "limit": limit}
        return await self._database.look(
            lambda db: [
                retention.RegisteredVersion(*row) for row in db.execute(QUERIES["pipeline_versions"], values)
            ]
        )


def _add_source(db: apsw.Connection, new: retention.NewSource, at_us: int, enables: bool) -> retention.Added:
    key = {"pipeline": new.name, "hash": new.hash}
    who = {"by": new.by, "at_us": at_us}
    db.execute(QUERIES["pipeline_make"], {"pipeline": new.name} | who)
    put_blob(db, new.hash, new.content, at_us)
    db.execute(QUERIES["pipeline_add"], key | who | {"file": new.file})
    db.execute(QUERIES["pipeline_enable_added"], key | who | {"enables": int(enables)})
    version, pipeline = one(db, "pipeline_source", **key), _find_pipeline(db, new.name)
    assert version is not None
    assert pipeline is not None
    return retention.Added(pipeline, retention.RegisteredVersion(*version))


def _changed_pipeline(
    db: apsw.Connection, query: str, values: dict[str, object]
) -> retention.RegisteredPipeline | None:
    db.execute(QUERIES[query], values)
    return _find_pipeline(db, str(values["pipeline"]))


def _find_pipeline(db: apsw.Connection, name: str) -> retention.RegisteredPipeline | None:
    found = one(db, "pipeline_find", pipeline=name)
    return None if found is None else retention.RegisteredPipeline(*found)


_DELETIONS = [
    QUERIES[name]
    for name in (
        *("run_delete", "event_delete", "append_delete", "snapshot_delete", "effect_delete"),
        *("scope_delete", "chunk_delete", "message_delete", "chat_delete"),
    )
]


class SqliteRetention:
    """Old runs of one SQLite file."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def expired(self, expiry: retention.Expiry) -> Sequence[retention.Kin]:
        statuses = json.dumps([status.value for status in expiry.statuses])
        values = {"statuses": statuses, "before_us": expiry.before_us, "keep": expiry.keep}
        return await self._database.look(
            lambda db: [rows.kin_of(columns) for columns in db.execute(QUERIES["run_expired"], values)]
        )

    async def attached(self) -> Sequence[retention.Kin]:
        return await self._database.look(
            lambda db: [rows.kin_of(columns) for columns in db.execute(QUERIES["run_attached"])]
        )

    async def delete(self, runs: Sequence[retention.Kin]) -> Sequence[str]:
        return await self._database.transact(lambda db: _delete_runs(db, runs))


def _delete_runs(db: apsw.Connection, runs: Sequence[retention.Kin]) -> Sequence[str]:
    for kin in runs:
        first, behind = rows.keys_below(kin.id)
        values = {"id": kin.id, "head": kin.head, "first": first, "behind": behind}
        values["chat"] = chat_of_run(kin.id)
        for deletion in _DELETIONS:
            db.execute(deletion, values)
    ids = json.dumps([kin.id for kin in runs])
    remaining = {columns[0] for columns in db.execute(QUERIES["run_remaining"], {"ids": ids})}
    return [kin.id for kin in runs if kin.id not in remaining]


class SqliteCarrying:
    """Runs that arrive at one SQLite file."""

    def __init__(self, database: Transactions, writer: SqliteWriter) -> None:
        self._database, self._writer = database, writer

    async def receive(self, arrival: retention.Arrival) -> None:
        await self._database.transact(lambda db: self._receive(db, arrival))

    def _receive(self, db: apsw.Connection, arrival: retention.Arrival) -> None:
        write = arrival.write
        if db.execute(QUERIES["event_hash"], (write.run_id, write.head.seq)).get == write.head.hash:
            return
        (refusal,) = self._writer.write(db, [Member(write, None, arrival.append_id)])
        if refusal is not None:
            raise refusal
        for page in arrival.rest():
            relied_on = content_named(page) - write.blobs.keys()
            missing = check_content(db, write.run_id, relied_on, write.at_us)
            if missing is not None:
                raise missing
            db.executemany(QUERIES["event_receive"], event_columns(page))
        missing = check_content(db, write.run_id, arrival.message_content, write.at_us)
        if missing is not None:
            raise missing
        receive_messages(db, arrival.messages)
        for effect in arrival.effects:
            db.execute(QUERIES["effect_receive"], rows.effect_columns(effect))


class SqliteBackfill:
    """The runs of one SQLite file that are to be filled in."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def missing(self) -> Sequence[str]:
        return await self._database.look(
            lambda db: [columns[0] for columns in db.execute(QUERIES["backfill_read"])]
        )

    async def fill(self, filling: retention.Filling) -> bool:
        return await self._database.transact(lambda db: _fill_in(db, filling))

    async def skip(self, run_id: str) -> None:
        await self._database.transact(lambda db: db.execute(QUERIES["backfill_delete"], {"run_id": run_id}))


def _fill_in(db: apsw.Connection, filling: retention.Filling) -> bool:
    seq, hash_ = filling.position
    values = {"run_id": filling.run_id, "head": seq, "hash": hash_, **filling.columns}
    db.execute(QUERIES["backfill_run"], values)
    if not db.changes():
        return False
    put_gates(db, filling.gates)
    db.execute(QUERIES["backfill_delete"], values)
    return True
