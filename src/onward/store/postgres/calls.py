"""Writes as calls of statements: each value as the parameter that the server gets.

Messages begin and end with the events of their calls, in the transaction of these events. Their statements
come after those that write the events: each sees what the ones before it have done, and waits for no row out
of order. Whether a write was refused is known only in the database.

`OneTrip` is for a model call that begins or ends alone: its reservation or settlement goes in the trip of its
events. Nothing is known of the scopes before, so the statement judges them itself, once they are locked. What
is more than adding up (a limit that has no room or is nearly spent, a scope without a row) makes it fail with
all that was sent; then the call is judged as any other: locked first, and charged with a second trip.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from onward.model.call import Reserved
from onward.model.chat import Message
from onward.model.limits import WARN_PERCENT, amounts_of, kind_of
from onward.model.row import CallClosed, CallOpened, GateRow
from onward.store import limits, rows
from onward.store.limits import (
    KnownReservations,
    Ledger,
    ReservationKey,
    UsageKey,
    charged_for,
    key_of,
    opened_reservation,
    usage_of,
)
from onward.store.message_rows import MessageBegun, MessageEnded, arrival_values, message_changes
from onward.store.port.limits import Reservation
from onward.store.port.log import Position, StoredEvent, Write
from onward.store.postgres import statements
from onward.store.postgres.connection import ServerError
from onward.store.postgres.runs import notification_calls
from onward.store.transactions import Member

# What statements refuse with `onward_refuse`.
NOT_PLAIN = "ONW01"
CONTENT_MISSING = "ONW02"
SUBSCRIBED = "ONW03"
# Each length is a statement of its own on the server; a longer write is rare enough to go as arrays.
ALONE_EVENTS_MAX = 8
_NUMBERS = (
    *(column.name for column in rows.RUN_COLUMNS if column.is_number),
    *("after", "held_token", "at_us"),
)
ARRAYS: Mapping[str, Callable[[Sequence[Any]], bytes]] = {
    **dict.fromkeys(_NUMBERS, statements.numbers),
    **dict.fromkeys(("hash", "parent_hash", "after_hash"), statements.byteas),
}


def advance(members: Sequence[Member], locked: Sequence[str]) -> statements.Call:
    """Appends to several runs at once; their rows get only what every step changes."""
    writes = [member.write for member in members]
    lasts = [write.records[-1] for write in writes]
    return statements.call(
        "run_advance",
        locked=statements.texts(locked),
        id=statements.texts([write.run_id for write in writes]),
        after=statements.numbers([write.after.seq for write in writes]),
        after_hash=statements.byteas([write.after.hash for write in writes]),
        held_token=statements.numbers([member.held[1] for member in members if member.held]),
        held_owner=statements.texts([member.held[0] for member in members if member.held]),
        head=statements.numbers([last.seq for last in lasts]),
        hash=statements.byteas([last.hash for last in lasts]),
        next_node=statements.texts([write.next_node for write in writes]),
        doubtful=statements.texts([write.doubtful for write in writes]),
        steps_finished=statements.numbers([write.steps_finished for write in writes]),
        tokens=statements.numbers([write.tokens for write in writes]),
        cost_micro=statements.numbers([write.cost_micro for write in writes]),
        ticks=statements.texts([write.ticks for write in writes]),
        updated_at_us=statements.numbers([write.at_us for write in writes]),
        **events_of(members),
    )


def advance_one(member: Member, charge: Charge | None = None) -> statements.Call:
    """In the order of the statement's parameters: nothing is written as often as this."""
    write, (owner, token) = member.write, member.held or (None, 0)
    records = write.records
    last = records[-1]
    values = [
        statements.number(last.seq),
        last.hash,
        statements.optional_text(write.next_node),
        statements.optional_text(write.doubtful),
    ]
    values += (
        statements.number(write.steps_finished),
        statements.number(write.tokens),
        statements.number(write.cost_micro),
        statements.text(write.ticks),
        statements.number(write.at_us),
        statements.text(write.run_id),
        statements.number(write.after.seq),
        write.after.hash,
    )
    values += (statements.number(token), statements.optional_text(owner))
    for record in records:
        values += (
            statements.number(record.seq),
            statements.text(record.kind),
            statements.number(record.v),
            statements.number(record.at_us),
        )
        refs = statements.text(" ".join(record.refs)) if record.refs else None
        values += (statements.number(record.token), statements.text(record.body), record.hash, refs)
    if charge is not None:
        return charge.together(len(records), values)
    return statements.Call(statements.advance_alone(len(records)), values)


def columns_of(member: Member) -> dict[str, Any]:
    """All columns of a run's row, with the place in its log and the holder that the writer expects."""
    owner, token = member.held or (None, 0)
    after = member.write.after
    return {
        **rows.row_parameters(member.write),
        "after": after.seq,
        "after_hash": after.hash,
        "held_owner": owner,
        "held_token": token,
        "append_id": member.append_id,
        "at_us": member.write.at_us,
    }


def events_of(members: Sequence[Member]) -> dict[str, bytes]:
    """The events of these writes as one array for each column."""
    return event_arrays([record for member in members for record in member.write.records])


def event_arrays(records: Sequence[StoredEvent]) -> dict[str, bytes]:
    """Events as one array for each column."""
    # Column by column: `astuple` of a record takes longer than all of these together.
    return {
        "event_run_id": statements.texts([record.run_id for record in records]),
        "event_seq": statements.numbers([record.seq for record in records]),
        "event_kind": statements.texts([record.kind for record in records]),
        "event_v": statements.numbers([record.v for record in records]),
        "event_at_us": statements.numbers([record.at_us for record in records]),
        "event_token": statements.numbers([record.token for record in records]),
        "event_body": statements.texts([record.body for record in records]),
        "event_hash": statements.byteas([record.hash for record in records]),
        "event_refs": statements.texts(
            [" ".join(record.refs) if record.refs else None for record in records]
        ),
    }


def blobs_of(members: Sequence[Member]) -> Mapping[str, tuple[bytes, int]]:
    """The content that comes with these writes, and when it is stored."""
    return {
        name: (content, member.write.at_us)
        for member in members
        for name, content in member.write.blobs.items()
    }


def relying_on(names: Collection[str], at_us: int) -> Sequence[statements.Call]:
    """Make sure that content is stored and stays; else CONTENT_MISSING fails all that is sent with this."""
    return (
        [statements.call("blob_touch", hashes=statements.texts(sorted(names)), touched_at_us=at_us)]
        if names
        else []
    )


def blob_call(name: str, content: bytes, at_us: int) -> statements.Call:
    """Stores content, or touches what is stored."""
    encoding, packed = rows.pack(content)
    return statements.call("blob_put", hash=name, encoding=encoding, content=packed, touched_at_us=at_us)


def gate_call(row: GateRow, head: Position) -> statements.Call:
    """Stores a gate, or how it was closed, if the run's log ends at `head`."""
    return statements.call("gate_put", **rows.gate_parameters(row), head=head.seq, hash=head.hash)


def calls_beside(members: Sequence[Member], now_us: int | None, *, is_heard: bool) -> list[statements.Call]:
    """What is stored beside the events of these writes: gates, notifications and snapshots.

    Unless `is_heard`, notifications are not made, and SUBSCRIBED fails all of it if anybody has subscribed.
    """
    writes = [member.write for member in members]
    gates = [gate_call(row, write.head) for write in writes for row in write.gates]
    gates += [_touch(write) for write in writes if write.gates and write.row is None]
    telling = [write for write in writes if write.notifications is not None]
    told = (
        _told(telling, now_us)
        if is_heard or not telling
        else [statements.call("subscriber_any", now_us=now_us)]
    )
    snapshots = [
        statements.call("snapshot_put", run_id=write.run_id, **write.snapshot._asdict())
        for write in writes
        if write.snapshot is not None
    ]
    # A worker may be waiting for these.
    is_due = any(write.row is not None and write.row.wake_at_us is not None for write in writes)
    notices = [statements.call("due_notify")] if is_due else []
    return [*gates, *told, *snapshots, *notices]


def _touch(write: Write) -> statements.Call:
    return statements.call("run_touch", run_id=write.run_id, head=write.head.seq, hash=write.head.hash)


def _told(writes: Sequence[Write], now_us: int | None) -> Sequence[statements.Call]:
    told = [(one, write.head) for write in writes if write.notifications for one in write.notifications()]
    return notification_calls(told, now_us)


def message_calls(writes: Sequence[Write]) -> Sequence[statements.Call]:
    """What begins and ends the messages of these writes' calls: the chats are made, locked, then used."""
    changes = _message_changes(writes)
    return (
        *_chat_locks(changes, is_written=True),
        *(_message_call(write, change) for write, change in changes),
    )


def lock_calls(writes: Sequence[Write]) -> Sequence[statements.Call]:
    """What locks the chats of these writes before they are made, and makes those that are new.

    The runs are locked already, so it is known which writes can be made. A chat that is new stays if only the
    limit refuses its write while others of its group are made; it has nothing in it.
    """
    return _chat_locks(_message_changes(writes), is_written=False)


MessageChanges = Sequence[tuple[Write, MessageBegun | MessageEnded]]


def _message_changes(writes: Sequence[Write]) -> MessageChanges:
    return [(write, change) for write in writes for change in message_changes(write)]


def _chat_locks(changes: MessageChanges, *, is_written: bool) -> Sequence[statements.Call]:
    if not changes:
        return ()
    begun = [(write, change) for write, change in changes if isinstance(change, MessageBegun)]
    ending = sorted({write.run_id for write, change in changes if isinstance(change, MessageEnded)})
    return (
        *([_chat_call(begun, is_written=is_written)] if begun else ()),
        statements.call(
            "chat_lock",
            chats=statements.texts(sorted({change.chat for _, change in begun})),
            ending=statements.texts(ending),
        ),
    )


def _chat_call(begun: Sequence[tuple[Write, MessageBegun]], *, is_written: bool) -> statements.Call:
    places = [write.head if is_written else write.after for write, _ in begun]
    return statements.call(
        "chat_put",
        chat=statements.texts([change.chat for _, change in begun]),
        at_us=statements.numbers([change.at_us for _, change in begun]),
        run_id=statements.texts([write.run_id for write, _ in begun]),
        head=statements.numbers([place.seq for place in places]),
        hash=statements.byteas([place.hash for place in places]),
    )


def _message_call(write: Write, change: MessageBegun | MessageEnded) -> statements.Call:
    name = "message_begin" if isinstance(change, MessageBegun) else "message_end"
    return statements.call(name, **change._asdict(), head=write.head.seq, hash=write.head.hash)


def arriving_calls(messages: Sequence[Message]) -> Sequence[statements.Call]:
    """What adds messages of another database, each at the end of its chat."""
    if not messages:
        return ()
    chats = [message.chat for message in messages]
    begun_at_us = statements.numbers([message.begun_at_us for message in messages])
    return (
        statements.call("chat_receive", chat=statements.texts(chats), at_us=begun_at_us),
        statements.call("chat_lock", chats=statements.texts(sorted(set(chats))), ending=statements.texts([])),
        *(statements.call("message_receive", **arrival_values(message)) for message in messages),
    )


TOO_LARGE = "22003"  # what an older version has stored, with anything added to it
RESERVED_BEFORE = "reservation_pkey"  # the reply was lost, and this is the same write again
# Behind those of their run and its place; so with their events in one statement, too.
RESERVE_PARAMETERS = (
    *("call_hash", "step", "call", "number", "token", "scopes", "model"),
    *("reserved_tokens", "reserved_cost_micro", "reserved_calls", "is_priced", "ids", "kinds"),
)
SETTLE_PARAMETERS = (
    *("charged_tokens", "charged_cost_micro", "charged_calls", "is_estimated"),
    *("call_hash", "key_hash", "day", "project", "chat", "pipeline", "model"),
    *("input", "output", "cached", "reserved_tokens", "reserved_cost_micro", "reserved_calls"),
    *("warn_percent", "ids", "kinds"),
)
_PLACE_PARAMETERS = ("id", "head", "hash")
assert statements.QUERIES["scope_reserve"].parameters == (*_PLACE_PARAMETERS, *RESERVE_PARAMETERS)
assert statements.QUERIES["scope_settle"].parameters == (*_PLACE_PARAMETERS, *SETTLE_PARAMETERS)


class Charge(NamedTuple):
    """What one call reserves or settles: the values of a statement behind its events, or of one with them."""

    values: Sequence[bytes | None]
    key: ReservationKey
    scopes: tuple[str, ...]
    made: Reservation | None
    """The reservation, if the call begins."""

    def behind(self, write: Write) -> statements.Call:
        """The statement to send behind the events."""
        name = "scope_settle" if self.made is None else "scope_reserve"
        return statements.Call(
            statements.QUERIES[name],
            [statements.text(write.run_id), statements.number(write.head.seq), write.head.hash, *self.values],
        )

    def together(self, events: int, values: Sequence[bytes | None]) -> statements.Call:
        """The statement that writes the events, too; `values` are those of `advance_alone`."""
        name = "run_settle_alone" if self.made is None else "run_reserve_alone"
        return statements.Call(statements.advance_alone(events, name), [*values, *self.values])


class OneTrip(msgspec.Struct):
    """The calls of one process that are charged so. `watched` are scopes in which that failed lately."""

    known: KnownReservations = msgspec.field(default_factory=KnownReservations)
    watched: set[str] = msgspec.field(default_factory=set)

    def charge(self, members: Sequence[Member]) -> Charge | None:
        """How to charge these members in one trip; None if they are more than one call, or need a look."""
        if len(members) != 1 or len(members[0].write.calls) != 1:
            return None
        write = members[0].write
        (row,) = write.calls
        if isinstance(row, CallClosed):
            known = self.known.open.get(ReservationKey(write.run_id, row.step, row.call, row.number))
            charge = None if known is None else _settling(write, row, known)
        else:
            charge = None if row.reserved is None else _reserving(write, row, row.reserved)
        return charge if charge is not None and self.watched.isdisjoint(charge.scopes) else None

    def charged(self, charge: Charge) -> None:
        """The charge was made."""
        if charge.made is None:
            self.known.ended(charge.key)
        else:
            self.known.begun(charge.key, charge.made)

    def needs_look(self, charge: Charge, error: ServerError) -> bool:
        """Whether a charge failed because it is more than adding up; so it may be the next time."""
        if error.sqlstate not in (NOT_PLAIN, TOO_LARGE) and error.constraint != RESERVED_BEFORE:
            return False
        self.watched.update(charge.scopes)
        return True

    def note(self, ledger: Ledger) -> None:
        """A ledger was written, with no more than its scopes have room for."""
        self.watched.difference_update(ledger.changed)
        self.known.note(ledger)


# Values are put together in the order of the statement's parameters, as for the events: it is done so often.


def _reserving(write: Write, row: CallOpened, reserved: Reserved) -> Charge:
    scopes, joined, arrays = _scope_values(reserved.scopes)
    made = opened_reservation(write, row, scopes, amounts_of(reserved))
    key = key_of(made)
    values = [
        statements.text(limits.call_hash(key)),
        statements.text(row.step),
        statements.text(row.call),
        statements.number(row.number),
    ]
    values += (
        statements.number(made.token),
        joined,
        statements.text(row.model),
        *map(statements.number, made.reserved),
    )
    values += (statements.number(reserved.is_priced), *arrays)
    return Charge(values, key, scopes, made)


def _settling(write: Write, row: CallClosed, found: Reservation) -> Charge:
    key, (counted, used) = key_of(found), usage_of(write, row, found)
    _, _, arrays = _scope_values(found.scopes)
    values = [
        *map(statements.number, charged_for(row, found)),
        statements.number(row.is_unknown),
        statements.text(limits.call_hash(key)),
    ]
    values += (
        *_usage_values(counted),
        statements.number(used.input),
        statements.number(used.output),
        statements.number(used.cached),
    )
    values += (*map(statements.number, found.reserved), statements.number(WARN_PERCENT), *arrays)
    return Charge(values, key, found.scopes, None)


@lru_cache(maxsize=1_000)  # all calls of a run have the same
def _scope_values(wanted: tuple[str, ...]) -> tuple[tuple[str, ...], bytes, tuple[bytes, bytes]]:
    """Scopes in their order, as a reservation has them, and as arrays of their ids and kinds."""
    scopes = tuple(sorted(set(wanted)))
    return (
        scopes,
        statements.text(limits.joined_scopes(scopes)),
        (statements.texts(scopes), statements.texts([*map(kind_of, scopes)])),
    )


@lru_cache(maxsize=1_000)
def _usage_values(key: UsageKey) -> tuple[bytes, ...]:
    day, project, chat, _, pipeline, model = map(statements.text, key)
    return statements.text(limits.usage_hash(key)), day, project, chat, pipeline, model
