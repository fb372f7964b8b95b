"""What users' messages ask for, in SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from onward.model.chats.intake import Intake, Outcome
from onward.model.chats.message import Message
from onward.store import rows
from onward.store.filters import filtered
from onward.store.intaking import chat_of, intake_of, intake_values
from onward.store.port.chats.intakes import FREE_MAX, ChatRow
from onward.store.sqlite.chats.projecting import receive_messages
from onward.store.sqlite.file.transaction import Transactions
from onward.store.sqlite.reading import one
from onward.store.sqlite.statements import QUERIES
from onward.store.sqlite.writing import put_blob


class SqliteIntakes:
    """What the messages in the chats of one SQLite file ask for."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def put(self, message: Message, content: bytes, intake: Intake) -> Intake:
        return await self._database.transact(lambda db: _put(db, message, content, intake))

    async def find(self, message: str) -> Intake | None:
        return await self._database.look(lambda db: _find(db, message))

    async def list(self, chat: str, *, is_open: bool, limit: int) -> Sequence[Intake]:
        name = "intake_open" if is_open else "intake_of_chat"
        return await self._database.look(lambda db: _sound(db, QUERIES[name], chat=chat, limit=limit))

    async def free(
        self, *, chat: str | None = None, after: int = 0, limit: int = FREE_MAX
    ) -> Sequence[Intake]:
        given = {} if chat is None else {"chat": chat}
        query = filtered(QUERIES["intake_free"], {**given, "after": after})
        return await self._database.look(lambda db: _sound(db, query, after=after, limit=limit, **given))

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
        self, message: str, *, outcome: Outcome, run_id: str, notice: str, reading: str, at_us: int
    ) -> bool:
        values = {"run_id": run_id, "notice": notice, "reading": reading, "at_us": at_us}
        return await self._change("intake_settle", message=message, outcome=outcome.value, **values)

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


def _put(db: apsw.Connection, message: Message, content: bytes, intake: Intake) -> Intake:
    found = _find(db, intake.message)
    if found is None:
        assert message.content is not None
        put_blob(db, message.content, content, message.begun_at_us)
        receive_messages(db, [message])
        db.execute(QUERIES["intake_put"], intake_values(intake))
        db.execute(QUERIES["chat_project"], {"chat": intake.chat, "project": intake.project})
        found = _find(db, intake.message)
    assert found is not None
    return found


def _find(db: apsw.Connection, message: str) -> Intake | None:
    found = one(db, "intake_get", message=message)
    return None if found is None else intake_of(found)


def _sound(db: apsw.Connection, query: str, **values: Any) -> Sequence[Intake]:
    return rows.sound(db.execute(query, values), intake_of)
