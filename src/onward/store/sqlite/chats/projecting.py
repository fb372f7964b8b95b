"""Messages that begin and end with the events of their calls, in the transaction of these events."""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from onward.model.chats.message import ChunkKind, Message, Role
from onward.store.growing import MessageBegun, arrival_values, message_changes
from onward.store.port.stored import Write
from onward.store.sqlite.statements import QUERIES


def put_messages(db: apsw.Connection, write: Write) -> None:
    """Begin and end the messages of a write's calls. One that has begun, or ended, stays as it is."""
    for change in message_changes(write):
        if isinstance(change, MessageBegun):
            db.execute(QUERIES["chat_put"], {"chat": change.chat, "at_us": change.at_us})
            found = db.execute(QUERIES["message_begin"], change._asdict()).fetchone()
            columns = None if found is None else (*found, 0, ChunkKind.START.value, Role.ASSISTANT.value)
        else:
            found = db.execute(QUERIES["message_end"], change._asdict()).fetchone()
            columns = None if found is None else (*found, ChunkKind.END.value, change.state)
        if columns is not None:
            db.execute(QUERIES["chunk_insert"], columns)
            db.execute(QUERIES["chat_move"], (columns[1], columns[0]))


def receive_messages(db: apsw.Connection, messages: Iterable[Message]) -> None:
    """Add messages of another database, each at the end of its chat."""
    for message in messages:
        values = arrival_values(message)
        db.execute(QUERIES["chat_put"], {"chat": message.chat, "at_us": message.begun_at_us})
        found = db.execute(QUERIES["message_receive"], values).fetchone()
        if found is not None:
            db.execute(QUERIES["chat_move"], (found[1], found[0]))
