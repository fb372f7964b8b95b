"""Messages of chats in SQLite, and what users' messages ask for.

A flush is one transaction for all streams.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import apsw

from onward.model.chat import Heard, Intake, IntakeOutcome, Message, Part
from onward.store import message_rows, rows
from onward.store.message_rows import JudgedFlush, LockedMessage, chat_of, intake_of, intake_values
from onward.store.port.messages import FREE_MAX, READ_MAX, ChatRow, Flushed, Growth, MessageQuery
from onward.store.queries import filtered
from onward.store.sqlite.log import put_blob, receive_messages
from onward.store.sqlite.statements import QUERIES, one, read_blobs
from onward.store.sqlite.transaction import Transactions


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
        name, values = message_rows.message_listing(query)
        if query.ids:
            name, values = "message_named", {"ids": json.dumps(query.ids)}
        return await self._database.look(
            lambda db: rows.sound(db.execute(QUERIES[name], values), message_rows.message_of)
        )

    async def content(self, message: str) -> Sequence[Part] | None:
        return await self._database.look(lambda db: _content(db, message))

    async def contents(self, messages: Collection[str]) -> Mapping[str, Sequence[Part]]:
        return await self._database.look(lambda db: _contents(db, messages))

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
    judged = JudgedFlush()
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
    chunks = [message_rows.chunk_of(columns) for columns in db.execute(QUERIES["chunk_read"], values)]
    gone = db.execute(QUERIES["message_resets"], values).fetchall()
    return message_rows.heard_in_order(
        chunks, gone, read_blobs(db, [str(columns[-1]) for columns in gone]), values["limit"]
    )


def _contents(db: apsw.Connection, messages: Collection[str]) -> Mapping[str, Sequence[Part]]:
    values = {"ids": json.dumps(list(messages))}
    found: list[Any] = db.execute(QUERIES["message_contents"], values).fetchall()
    parts = {message: _parts(db, n, name) for message, n, name in found}
    return {message: said for message, said in parts.items() if said is not None}


def _content(db: apsw.Connection, message: str) -> Sequence[Part] | None:
    found = db.execute(QUERIES["message_get"], {"id": message}).fetchone()
    return None if found is None else _parts(db, *found)


def _parts(db: apsw.Connection, n: int, name: str | None) -> Sequence[Part] | None:
    if name is not None:
        return message_rows.unsealed_content(read_blobs(db, (name,)).get(name))
    return message_rows.parts_of(db.execute(QUERIES["message_chunks"], {"n": n}))


def _seal(db: apsw.Connection, at_us: int, limit: int) -> int:
    numbers = [columns[0] for columns in db.execute(QUERIES["message_unsealed"], {"limit": limit})]
    for n in numbers:
        parts = message_rows.parts_of(db.execute(QUERIES["message_chunks"], {"n": n}))
        name, content = message_rows.sealed_content(parts)
        put_blob(db, name, content, at_us)
        db.execute(QUERIES["message_seal"], {"n": n, "content": name})
    return len(numbers)


def _tidy(db: apsw.Connection, values: dict[str, int]) -> int:
    found = db.execute(QUERIES["message_untidied"], values).fetchall()
    for n, chat, first, last in found:
        db.execute(QUERIES["chunk_tidy"], {"n": n, "chat": chat, "first": first, "last": last})
        db.execute(QUERIES["message_tidy"], {"n": n})
    return len(found)


class SqliteIntakes:
    """What the messages in the chats of one SQLite file ask for."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def put(self, message: Message, content: bytes, intake: Intake) -> Intake:
        return await self._database.transact(lambda db: _put_intake(db, message, content, intake))

    async def find(self, message: str) -> Intake | None:
        return await self._database.look(lambda db: _find_intake(db, message))

    async def list(self, chat: str, *, is_open: bool, limit: int) -> Sequence[Intake]:
        name = "intake_open" if is_open else "intake_of_chat"
        return await self._database.look(lambda db: _intakes(db, QUERIES[name], chat=chat, limit=limit))

    async def free(
        self, *, chat: str | None = None, after: int = 0, limit: int = FREE_MAX
    ) -> Sequence[Intake]:
        given = {} if chat is None else {"chat": chat}
        query = filtered(QUERIES["intake_free"], {**given, "after": after})
        return await self._database.look(lambda db: _intakes(db, query, after=after, limit=limit, **given))

    async def note(self, message: str, *, seen: str, behind: str, reading: str) -> bool:
        return await self._change("intake_note", message=message, seen=seen, behind=behind, reading=reading)

    async def begin(self, message: str, *, seen: str, turn: int, run_id: str, reading: str) -> bool:
        values = {"message": message, "seen": seen, "turn": turn, "run_id": run_id, "reading": reading}

        def begin(db: apsw.Connection) -> bool:
            found = db.execute(QUERIES["intake_begin"], values).fetchone()
            if found is not None:
                db.execute(QUERIES["chat_turn"], {"chat": found[0]})
            return found is not None

        return await self._database.transact(begin)

    async def settle(
        self, message: str, *, outcome: IntakeOutcome, run_id: str, notice: str, reading: str, at_us: int
    ) -> bool:
        values = {"run_id": run_id, "notice": notice, "reading": reading, "at_us": at_us}
        return await self._change("intake_settle", message=message, outcome=outcome.value, **values)

    async def waiting(self, chats: Collection[str]) -> Mapping[str, int]:
        values = {"chats": json.dumps(list(chats))}
        return await self._database.look(lambda db: dict(db.execute(QUERIES["intake_waiting"], values)))

    async def find_chat(self, chat: str) -> ChatRow | None:
        found = await self._database.look(lambda db: one(db, "chat_get", chat=chat))
        return None if found is None else chat_of(found)

    async def list_chats(self, *, before: int | None, limit: int) -> Sequence[ChatRow]:
        values = {"limit": limit, **({} if before is None else {"before": before})}
        query = filtered(QUERIES["chat_list"], values)
        return await self._database.look(lambda db: rows.sound(db.execute(query, values), chat_of))

    async def _change(self, name: str, **values: Any) -> bool:
        def change(db: apsw.Connection) -> bool:
            db.execute(QUERIES[name], values)
            return bool(db.changes())

        return await self._database.transact(change)


def _put_intake(db: apsw.Connection, message: Message, content: bytes, intake: Intake) -> Intake:
    found = _find_intake(db, intake.message)
    if found is None:
        assert message.content is not None
        put_blob(db, message.content, content, message.begun_at_us)
        receive_messages(db, [message])
        db.execute(QUERIES["intake_put"], intake_values(intake))
        db.execute(QUERIES["chat_project"], {"chat": intake.chat, "project": intake.project})
        found = _find_intake(db, intake.message)
    assert found is not None
    return found


def _find_intake(db: apsw.Connection, message: str) -> Intake | None:
    found = one(db, "intake_get", message=message)
    return None if found is None else intake_of(found)


def _intakes(db: apsw.Connection, query: str, **values: Any) -> Sequence[Intake]:
    return rows.sound(db.execute(query, values), intake_of)
