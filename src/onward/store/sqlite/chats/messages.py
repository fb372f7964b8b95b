"""Messages in SQLite: a flush is one transaction for all streams."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from onward.model.chats.message import Heard, Message, Part
from onward.store import growing, rows
from onward.store.growing import Judged, LockedMessage
from onward.store.port.chats.messages import READ_MAX, Flushed, Growth, MessageQuery
from onward.store.sqlite.chats.projecting import receive_messages
from onward.store.sqlite.file.transaction import Transactions
from onward.store.sqlite.reading import read_blobs
from onward.store.sqlite.statements import QUERIES
from onward.store.sqlite.writing import put_blob


class SqliteMessages:
    """What is said in the chats of one SQLite file."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def flush(self, batch: Sequence[Growth], at_us: int) -> Sequence[Flushed]:
        return await self._database.transact(lambda db: _flush(db, batch, at_us)) if batch else ()

    async def say(self, message: Message, content: bytes) -> None:
        await self._database.transact(lambda db: _say(db, message, content))

    async def read(self, chat: str, *, after: int, limit: int = READ_MAX) -> Sequence[Heard]:
        values = {"chat": chat, "after": after, "limit": limit}
        return await self._database.look(lambda db: _read(db, values))

    async def positions(self, chats: Sequence[str]) -> Mapping[str, int]:
        values = {"chats": json.dumps(list(chats))}
        return await self._database.look(lambda db: dict(db.execute(QUERIES["chat_positions"], values)))

    async def list(self, query: MessageQuery) -> Sequence[Message]:
        name, values = growing.listing(query)
        if query.ids:
            name, values = "message_named", {"ids": json.dumps(query.ids)}
        return await self._database.look(
            lambda db: rows.sound(db.execute(QUERIES[name], values), growing.message_of)
        )

    async def content(self, message: str) -> Sequence[Part] | None:
        return await self._database.look(lambda db: _content(db, message))

    async def seal(self, *, at_us: int, limit: int) -> int:
        values = {"limit": limit}
        # Nearly always nothing is to be sealed, and looking locks nobody out.
        if await self._database.look(lambda db: db.execute(QUERIES["message_unsealed"], values).get) is None:
            return 0
        return await self._database.transact(lambda db: _seal(db, at_us, limit))

    async def tidy(self, *, before_us: int, limit: int) -> int:
        values = {"before_us": before_us, "limit": limit}
        if await self._database.look(lambda db: db.execute(QUERIES["message_untidied"], values).get) is None:
            return 0
        return await self._database.transact(lambda db: _tidy(db, values))


def _flush(db: apsw.Connection, batch: Sequence[Growth], at_us: int) -> Sequence[Flushed]:
    judged = Judged()
    answers = []
    for growth in batch:
        found = db.execute(QUERIES["message_lock"], (growth.message,)).fetchone()
        answers.append(judged.add(growth, None if found is None else LockedMessage(*found)))
    db.executemany(QUERIES["chunk_insert"], judged.chunks)
    db.executemany(QUERIES["message_move"], [(index, at_us, n) for n, index in judged.messages.items()])
    db.executemany(QUERIES["chat_move"], [(position, n) for n, position in judged.chats.items()])
    return answers


def _say(db: apsw.Connection, message: Message, content: bytes) -> None:
    assert message.content is not None
    put_blob(db, message.content, content, message.begun_at_us)
    receive_messages(db, [message])


def _read(db: apsw.Connection, values: dict[str, Any]) -> Sequence[Heard]:
    chunks = [growing.chunk_of(columns) for columns in db.execute(QUERIES["chunk_read"], values)]
    gone = db.execute(QUERIES["message_resets"], values).fetchall()
    return growing.in_order(
        chunks, gone, read_blobs(db, [str(columns[-1]) for columns in gone]), values["limit"]
    )


def _content(db: apsw.Connection, message: str) -> Sequence[Part] | None:
    found = db.execute(QUERIES["message_get"], {"id": message}).fetchone()
    if found is None:
        return None
    n, name = found
    if name is not None:
        return growing.unsealed(read_blobs(db, (name,)).get(name))
    return growing.parts_of(db.execute(QUERIES["message_chunks"], {"n": n}))


def _seal(db: apsw.Connection, at_us: int, limit: int) -> int:
    numbers = [columns[0] for columns in db.execute(QUERIES["message_unsealed"], {"limit": limit})]
    for n in numbers:
        parts = growing.parts_of(db.execute(QUERIES["message_chunks"], {"n": n}))
        name, content = growing.sealed_content(parts)
        put_blob(db, name, content, at_us)
        db.execute(QUERIES["message_seal"], {"n": n, "content": name})
    return len(numbers)


def _tidy(db: apsw.Connection, values: dict[str, int]) -> int:
    found = db.execute(QUERIES["message_untidied"], values).fetchall()
    for n, chat, first, last in found:
        db.execute(QUERIES["chunk_tidy"], {"n": n, "chat": chat, "first": first, "last": last})
        db.execute(QUERIES["message_tidy"], {"n": n})
    return len(found)
