"""Taking in runs of another database, into PostgreSQL: one transaction for each."""

from __future__ import annotations

from onward.store import rows
from onward.store.member import Member
from onward.store.port.carrying import Arrival
from onward.store.port.stored import content_named
from onward.store.postgres.chats.projecting import arriving_calls
from onward.store.postgres.link.failure import ServerError
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.link.wire import Wire
from onward.store.postgres.statements import BEGIN, COMMIT, call
from onward.store.postgres.writing.calls import CONTENT_MISSING, event_arrays, relying_on
from onward.store.postgres.writing.writer import Writer
from onward.store.refusals import content_missing


class PostgresCarrying:
    """Runs that arrive at one PostgreSQL database."""

    def __init__(self, connections: Pool, writer: Writer) -> None:
        self._connections, self._writer = connections, writer

    async def receive(self, arrival: Arrival) -> None:
        await self._connections.use(lambda wire: self._receive(wire, arrival))

    async def _receive(self, wire: Wire, arrival: Arrival) -> None:
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
