"""Taking in runs of another database, into SQLite: one transaction for each."""

from __future__ import annotations

import apsw

from onward.store import rows
from onward.store.member import Member
from onward.store.port.carrying import Arrival
from onward.store.port.stored import content_named
from onward.store.sqlite.chats.projecting import receive_messages
from onward.store.sqlite.file.transaction import Transactions
from onward.store.sqlite.statements import QUERIES
from onward.store.sqlite.writing import Writer, check_content, event_columns


class SqliteCarrying:
    """Runs that arrive at one SQLite file."""

    def __init__(self, database: Transactions, writer: Writer) -> None:
        self._database, self._writer = database, writer

    async def receive(self, arrival: Arrival) -> None:
        await self._database.transact(lambda db: self._receive(db, arrival))

    def _receive(self, db: apsw.Connection, arrival: Arrival) -> None:
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
