"""Writes as calls of statements: each value as the parameter that the server gets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from onward.model.row import GateRow
from onward.store import rows
from onward.store.member import Member
from onward.store.port.stored import Position, StoredEvent, Write
from onward.store.postgres.limits.one_trip import Charge
from onward.store.postgres.link.binary import byteas, number, numbers, optional_text, text, texts
from onward.store.postgres.news.outbox import notification_calls
from onward.store.postgres.statements import Call, advance_alone, call

CONTENT_MISSING = "22012"  # the division by zero of blob_hold and blob_touch
SUBSCRIBED = "2201E"  # the logarithm of zero of subscriber_any
# Each length is a statement of its own on the server; a longer write is rare enough to go as arrays.
ALONE_EVENTS_MAX = 8
_NUMBERS = (
    *("recoverable", "is_dismissed", "steps_finished", "token", "wake_at_us", "parent_seq", "created_at_us"),
    *("updated_at_us", "ended_at_us", "head", "after", "held_token", "priority", "max_running", "at_us"),
)
ARRAYS: Mapping[str, Callable[[Sequence[Any]], bytes]] = {
    **dict.fromkeys(_NUMBERS, numbers),
    **dict.fromkeys(("hash", "parent_hash", "after_hash"), byteas),
}


def advance(members: Sequence[Member], locked: Sequence[str]) -> Call:
    """Appends to several runs at once; their rows get only what every step changes."""
    writes = [member.write for member in members]
    lasts = [write.records[-1] for write in writes]
    return call(
        "run_advance",
        locked=texts(locked),
        id=texts([write.run_id for write in writes]),
        after=numbers([write.after.seq for write in writes]),
        after_hash=byteas([write.after.hash for write in writes]),
        held_token=numbers([member.held[1] for member in members if member.held]),
        held_owner=texts([member.held[0] for member in members if member.held]),
        head=numbers([last.seq for last in lasts]),
        hash=byteas([last.hash for last in lasts]),
        next_node=texts([write.next_node for write in writes]),
        doubtful=texts([write.doubtful for write in writes]),
        steps_finished=numbers([write.steps_finished for write in writes]),
        updated_at_us=numbers([write.at_us for write in writes]),
        **events_of(members),
    )


def advance_one(member: Member, charge: Charge | None = None) -> Call:
    """In the order of the statement's parameters: nothing is written as often as this."""
    write, (owner, token) = member.write, member.held or (None, 0)
    records = write.records
    last = records[-1]
    values = [number(last.seq), last.hash, optional_text(write.next_node), optional_text(write.doubtful)]
    values += (
        number(write.steps_finished),
        number(write.at_us),
        text(write.run_id),
        number(write.after.seq),
        write.after.hash,
    )
    values += (number(token), optional_text(owner))
    for record in records:
        values += (number(record.seq), text(record.kind), number(record.v), number(record.at_us))
        refs = text(" ".join(record.refs)) if record.refs else None
        values += (number(record.token), text(record.body), record.hash, refs)
    if charge is not None:
        return charge.together(len(records), values)
    return Call(advance_alone(len(records)), values)


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
        "event_run_id": texts([record.run_id for record in records]),
        "event_seq": numbers([record.seq for record in records]),
        "event_kind": texts([record.kind for record in records]),
        "event_v": numbers([record.v for record in records]),
        "event_at_us": numbers([record.at_us for record in records]),
        "event_token": numbers([record.token for record in records]),
        "event_body": texts([record.body for record in records]),
        "event_hash": byteas([record.hash for record in records]),
        "event_refs": texts([" ".join(record.refs) if record.refs else None for record in records]),
    }


def blobs_of(members: Sequence[Member]) -> Mapping[str, tuple[bytes, int]]:
    """The content that comes with these writes, and when it is stored."""
    return {
        name: (content, member.write.at_us)
        for member in members
        for name, content in member.write.blobs.items()
    }


def relying_on(names: Collection[str], at_us: int) -> Sequence[Call]:
    """Make sure that content is stored and stays; else CONTENT_MISSING fails all that is sent with this."""
    return [call("blob_touch", hashes=texts(sorted(names)), touched_at_us=at_us)] if names else []


def blob_call(name: str, content: bytes, at_us: int) -> Call:
    """Stores content, or touches what is stored."""
    encoding, packed = rows.pack(content)
    return call("blob_put", hash=name, encoding=encoding, content=packed, touched_at_us=at_us)


def gate_call(row: GateRow, head: Position) -> Call:
    """Stores a gate, or how it was closed, if the run's log ends at `head`."""
    return call("gate_put", **rows.gate_parameters(row), head=head.seq, hash=head.hash)


def calls_beside(members: Sequence[Member], now_us: int | None, *, is_heard: bool) -> list[Call]:
    """What is stored beside the events of these writes: gates, notifications and snapshots.

    Unless `is_heard`, notifications are not made, and SUBSCRIBED fails all of it if anybody has subscribed.
    """
    writes = [member.write for member in members]
    gates = [gate_call(row, write.head) for write in writes for row in write.gates]
    telling = [write for write in writes if write.notifications is not None]
    told = _told(telling, now_us) if is_heard or not telling else [call("subscriber_any", now_us=now_us)]
    snapshots = [
        call("snapshot_put", run_id=write.run_id, **write.snapshot._asdict())
        for write in writes
        if write.snapshot is not None
    ]
    # A worker may be waiting for these.
    is_due = any(write.row is not None and write.row.wake_at_us is not None for write in writes)
    notices = [call("due_notify")] if is_due else []
    return [*gates, *told, *snapshots, *notices]


def _told(writes: Sequence[Write], now_us: int | None) -> Sequence[Call]:
    told = [(one, write.head) for write in writes if write.notifications for one in write.notifications()]
    return notification_calls(told, now_us)
