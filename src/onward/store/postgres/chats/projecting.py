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
    changes = _changes(writes)
    return (*_locks(changes, is_written=True), *(_change(write, change) for write, change in changes))


def lock_calls(writes: Sequence[Write]) -> Sequence[Call]:
    """What locks the chats of these writes before they are made, and makes those that are new.

    The runs are locked already, so it is known which writes can be made. A chat that is new stays if only the
    limit refuses its write while others of its group are made; it has nothing in it.
    """
    return _locks(_changes(writes), is_written=False)


Changes = Sequence[tuple[Write, MessageBegun | MessageEnded]]


def _changes(writes: Sequence[Write]) -> Changes:
    return [(write, change) for write in writes for change in message_changes(write)]


def _locks(changes: Changes, *, is_written: bool) -> Sequence[Call]:
    if not changes:
        return ()
    begun = [(write, change) for write, change in changes if isinstance(change, MessageBegun)]
    ending = sorted({write.run_id for write, change in changes if isinstance(change, MessageEnded)})
    return (
        *([_chats(begun, is_written=is_written)] if begun else ()),
        call("chat_lock", chats=texts(sorted({change.chat for _, change in begun})), ending=texts(ending)),
    )


def _chats(begun: Sequence[tuple[Write, MessageBegun]], *, is_written: bool) -> Call:
    places = [write.head if is_written else write.after for write, _ in begun]
    return call(
        "chat_put",
        chat=texts([change.chat for _, change in begun]),
        at_us=numbers([change.at_us for _, change in begun]),
        run_id=texts([write.run_id for write, _ in begun]),
        head=numbers([place.seq for place in places]),
        hash=byteas([place.hash for place in places]),
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
