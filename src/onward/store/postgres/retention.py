"""What a database keeps, forgets and takes in: content, registered pipelines, and whole runs.

Content is found by its hash. Each call about a pipeline is one trip. A batch of runs is forgotten in one
trip, and so in one transaction; each run that comes from another database has a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from onward.model.chat import chat_of_run
from onward.model.values import INTEGER_MAX
from onward.store import rows, transactions
from onward.store.owner import content_missing
from onward.store.port import retention
from onward.store.port.log import content_named
from onward.store.postgres.calls import (
    CONTENT_MISSING,
    arriving_calls,
    blob_call,
    event_arrays,
    gate_call,
    relying_on,
)
from onward.store.postgres.connection import ServerError
from onward.store.postgres.log import PostgresWriter
from onward.store.postgres.pool import Pool, Rows, Wire
from onward.store.postgres.read import read_blobs
from onward.store.postgres.statements import BEGIN, COMMIT, Call, call, texts
from onward.store.transactions import Member


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

    async def sweep(self, before_us: int, limit: int) -> retention.Swept:
        return await transactions.sweep(self, before_us, limit)

    async def unused(self, before_us: int, limit: int) -> Sequence[str]:
        asked = call("blob_unused", before_us=before_us, limit=limit)
        (unused,) = await self._connections.use(lambda wire: wire.run(asked))
        return sorted(columns[0] for columns in unused)

    async def mark(self, names: Sequence[str], *, before_us: int, mark: int) -> None:
        marking = call("blob_mark", hashes=texts(names), before_us=before_us, mark=mark)
        await self._connections.use(lambda wire: wire.run(marking))

    async def delete(self, names: Sequence[str], *, mark: int) -> retention.Swept:
        calls = [call("blob_delete", hash=name, mark=mark) for name in names]
        answers = await self._connections.use(lambda wire: wire.run(*calls))
        sizes = [columns[0] for found in answers for columns in found]
        return retention.Swept(len(sizes), sum(sizes))


class PostgresPipelines:
    """The registered pipelines of one PostgreSQL database."""

    def __init__(self, connections: Pool) -> None:
        self._connections = connections

    async def add(self, new: retention.NewSource, *, at_us: int, enables: bool = True) -> retention.Added:
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
        return retention.Added(
            retention.RegisteredPipeline(*pipeline[0]), retention.RegisteredVersion(*version[0])
        )

    async def enable(
        self, name: str, version: int, *, by: str, at_us: int
    ) -> retention.RegisteredPipeline | None:
        return await self._then_find(
            name, call("pipeline_enable", pipeline=name, version=version, by=by, at_us=at_us)
        )

    async def remove(self, name: str, *, by: str, at_us: int) -> retention.RegisteredPipeline | None:
        return await self._then_find(name, call("pipeline_remove", pipeline=name, by=by, at_us=at_us))

    async def find(self, name: str) -> retention.RegisteredPipeline | None:
        return await self._then_find(name)

    async def list(self, *, after: str = "", limit: int) -> Sequence[retention.RegisteredPipeline]:
        (found,) = await self._ask(call("pipeline_list", after=after, limit=limit))
        return [retention.RegisteredPipeline(*row) for row in found]

    async def versions(
        self, name: str, *, upto: int | None = None, limit: int
    ) -> Sequence[retention.RegisteredVersion]:
        upto = INTEGER_MAX if upto is None else upto
        (found,) = await self._ask(call("pipeline_versions", pipeline=name, upto=upto, limit=limit))
        return [retention.RegisteredVersion(*row) for row in found]

    async def _then_find(self, name: str, *before: Call) -> retention.RegisteredPipeline | None:
        *_, found = await self._ask(*before, call("pipeline_find", pipeline=name))
        return retention.RegisteredPipeline(*found[0]) if found else None

    async def _ask(self, *calls: Call) -> Sequence[Rows]:
        return await self._connections.use(lambda wire: wire.run(*calls))


class PostgresRetention:
    """Old runs of one PostgreSQL database."""

    def __init__(self, connections: Pool) -> None:
        self._connections = connections

    async def expired(self, expiry: retention.Expiry) -> Sequence[retention.Kin]:
        statuses = texts([status.value for status in expiry.statuses])
        asked = call("run_expired", statuses=statuses, before_us=expiry.before_us, keep=expiry.keep)
        return await self._kin(asked)

    async def attached(self) -> Sequence[retention.Kin]:
        return await self._kin(call("run_attached"))

    async def _kin(self, asked: Call) -> Sequence[retention.Kin]:
        (found,) = await self._connections.use(lambda wire: wire.run(asked))
        return [rows.kin_of(columns) for columns in found]

    async def delete(self, runs: Sequence[retention.Kin]) -> Sequence[str]:
        # What was asked over a connection that broke is asked again, so the answer is not which runs were
        # deleted but which are left.
        calls = [deletion for kin in runs for deletion in _deletions(kin)]
        calls += [call("scope_delete", id=id) for id in sorted(kin.id for kin in runs)]  # scopes after runs
        calls.append(call("run_remaining", ids=texts([kin.id for kin in runs])))
        *_, left = await self._connections.use(lambda wire: wire.run(*calls))
        remaining = {columns[0] for columns in left}
        return [kin.id for kin in runs if kin.id not in remaining]


def _deletions(kin: retention.Kin) -> Sequence[Call]:
    first, behind = rows.keys_below(kin.id)
    return (
        call("run_delete", id=kin.id, head=kin.head),
        *(call(name, id=kin.id) for name in ("event_delete", "append_delete", "snapshot_delete")),
        call("effect_delete", id=kin.id, first=first, behind=behind),
        *(
            call(name, id=kin.id, chat=chat_of_run(kin.id))
            for name in ("chunk_delete", "message_delete", "chat_delete")
        ),
    )


class PostgresCarrying:
    """Runs that arrive at one PostgreSQL database."""

    def __init__(self, connections: Pool, writer: PostgresWriter) -> None:
        self._connections, self._writer = connections, writer

    async def receive(self, arrival: retention.Arrival) -> None:
        await self._connections.use(lambda wire: self._receive(wire, arrival))

    async def _receive(self, wire: Wire, arrival: retention.Arrival) -> None:
        write = arrival.write
        _, found = await wire.run(BEGIN, call("event_hash", run_id=write.run_id, seq=write.head.seq))
        if found and found[0][0] == write.head.hash:
            return
        (refusal,) = await self._writer.write(wire, [Member(write, None, arrival.append_id)])
        if refusal is not None:
            raise refusal
        for page in arrival.rest():
            relied_on = relying_on(content_named(page) - write.blobs.keys(), write.at_us)
            try:
                await wire.run(*relied_on, call("event_receive", **event_arrays(page)))
            except ServerError as error:
                if error.sqlstate == CONTENT_MISSING:
                    raise content_missing(write.run_id) from None
                raise
        effects = (call("effect_receive", **rows.effect_columns(effect)) for effect in arrival.effects)
        relied_on = relying_on(arrival.message_content, write.at_us)
        try:
            await wire.run(*relied_on, *arriving_calls(arrival.messages), *effects, COMMIT)
        except ServerError as error:
            if error.sqlstate == CONTENT_MISSING:
                raise content_missing(write.run_id) from None
            raise


class PostgresBackfill:
    """The runs of one PostgreSQL database that are to be filled in."""

    def __init__(self, connections: Pool) -> None:
        self._connections = connections

    async def missing(self) -> Sequence[str]:
        (found,) = await self._connections.use(lambda wire: wire.run(call("backfill_read")))
        return [columns[0] for columns in found]

    async def fill(self, filling: retention.Filling) -> bool:
        return await self._connections.use(lambda wire: _fill_in(wire, filling))

    async def skip(self, run_id: str) -> None:
        await self._connections.use(lambda wire: wire.run(call("backfill_delete", run_id=run_id)))


async def _fill_in(wire: Wire, filling: retention.Filling) -> bool:
    run_id, (seq, hash_) = filling.run_id, filling.position
    update = call("backfill_run", run_id=run_id, head=seq, hash=hash_, **filling.columns)
    _, moved = await wire.run(BEGIN, update)
    if not moved:
        return False
    gates = (gate_call(row, filling.position) for row in filling.gates)
    await wire.run(*gates, call("backfill_delete", run_id=run_id), COMMIT)
    return True
