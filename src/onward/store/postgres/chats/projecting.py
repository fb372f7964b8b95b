"""Messages that begin and end with the events of their calls, in the transaction of these events.

Statements behind those that write the events: each sees what the ones before it have done, and waits for no
row out of order. Whether a write was refused is known only in the database.
"""

from __future__ import annotations

from collections.abc import Sequence

from onward.model.chats.message import Message
from onward.store.growing import MessageBegun, MessageEnded, arrival_values, message_changes
from onward.store.port.stored import Write
from onward.store.postgres.link.binary import byteas, numbers, texts
from onward.store.postgres.statements import Call, call


def message_calls(writes: Sequence[Write]) -> Sequence[Call]:
    """What begins and ends the messages of these writes' calls: the chats are made, locked, then used."""
    changes = [(write, change) for write in writes for change in message_changes(write)]
    if not changes:
        return ()
    begun = [(write, change) for write, change in changes if isinstance(change, MessageBegun)]
    ending = sorted({write.run_id for write, change in changes if isinstance(change, MessageEnded)})
    return (
        *([_chats(begun)] if begun else ()),
        call("chat_lock", chats=texts(sorted({change.chat for _, change in begun})), ending=texts(ending)),
        *(_change(write, change) for write, change in changes),
    )


def _chats(begun: Sequence[tuple[Write, MessageBegun]]) -> Call:
    return call(
        "chat_put",
        chat=texts([change.chat for _, change in begun]),
        at_us=numbers([change.at_us for _, change in begun]),
        run_id=texts([write.run_id for write, _ in begun]),
        head=numbers([write.head.seq for write, _ in begun]),
        hash=byteas([write.head.hash for write, _ in begun]),
    )


def _change(write: Write, change: MessageBegun | MessageEnded) -> Call:
    name = "message_begin" if isinstance(change, MessageBegun) else "message_end"
    return call(name, **change._asdict(), head=write.head.seq, hash=write.head.hash)


def arriving_calls(messages: Sequence[Message]) -> Sequence[Call]:
    """What adds messages of another database, each at the end of its chat."""
    if not messages:
        return ()
    chats = [message.chat for message in messages]
    begun_at_us = numbers([message.begun_at_us for message in messages])
    return (
        call("chat_receive", chat=texts(chats), at_us=begun_at_us),
        call("chat_lock", chats=texts(sorted(set(chats))), ending=texts([])),
        *(call("message_receive", **arrival_values(message)) for message in messages),
    )
