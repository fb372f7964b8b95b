"""Charging calls in PostgreSQL: runs are locked, then chats, then scopes, each by their ids; then judged.

Scopes come last: many calls share one, and none of them should wait while another waits for a chat.

The row of a scope is made beforehand, in a transaction of its own: made in one that already has locks, it
could wait for another that waits for those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from onward.model.values.scopes import kind_of
from onward.store.limits import columns
from onward.store.limits.ledger import (
    Ledger,
    charges,
    key_of,
    keys_closed,
    only_settles,
    scopes_opened,
    summed,
)
from onward.store.member import Member
from onward.store.port.stored import Write
from onward.store.postgres.chats.projecting import lock_calls
from onward.store.postgres.link.binary import texts
from onward.store.postgres.link.wire import Wire
from onward.store.postgres.statements import BEGIN, ROLLBACK, UNSYNCED, Call, call

KNOWN_MAX = 10_000


class Place(NamedTuple):
    """Where a run stands, under its lock."""

    after: tuple[int, bytes]
    held: tuple[str | None, int]


class Locked(NamedTuple):
    """The ledger of a group, and the places of its runs."""

    ledger: Ledger
    places: dict[str, Place]

    def charge(self, members: Sequence[Member]) -> Mapping[str, Exception]:
        """Charge what these writes reserve and settle; the refusals, by run. Settlements make room first."""
        refused: dict[str, Exception] = {}
        for member in sorted(members, key=lambda one: not only_settles(one.write)):
            place = self.place_of(member) if is_charged(member) else None
            refusal = None if place is None else self.ledger.enter(member.write)
            if refusal is not None:
                refused[member.write.run_id] = refusal
        return refused

    def place_of(self, member: Member) -> Place | None:
        """Where the run of this write is, if the write can be made."""
        place = self.places.get(member.write.run_id)
        is_there = place is not None and (place.after, place.held) == (tuple(member.write.after), member.held)
        return place if is_there else None


def is_charged(member: Member) -> bool:
    """Whether a write reserves or settles. A new run has nothing to settle: its calls are its parent's, or
    were made elsewhere."""
    return member.held is not None and bool(member.write.calls) and charges(member.write)


async def lock(wire: Wire, members: Sequence[Member], known: set[str]) -> Locked:
    """Lock what these writes concern, in a new transaction unless there is one.

    `known` are scopes that have rows.
    """
    writes = [member.write for member in members if is_charged(member)]
    wanted = sorted({scope for write in writes for scope in scopes_opened(write)})
    is_ours = not wire.is_in_transaction
    while True:
        if is_ours:
            await _make(wire, [scope for scope in wanted if scope not in known], known)
        locked = await _lock(wire, members, writes, wanted, is_ours=is_ours)
        missing = [scope for scope in wanted if scope not in locked.ledger.scopes]
        if not missing:
            return locked
        known.difference_update(missing)  # one went with its run
        if not is_ours:
            await wire.run(call("scope_make", **_made(missing)))
        else:
            await wire.run(ROLLBACK)


async def _lock(
    wire: Wire, members: Sequence[Member], writes: Sequence[Write], wanted: Sequence[str], *, is_ours: bool
) -> Locked:
    """`writes` are those of the members that are charged; of the others, runs and chats are locked, too."""
    keys = [key for write in writes for key in keys_closed(write)]
    named = {
        "run_ids": texts([key.run_id for key in keys]),
        "call_hashes": texts([columns.call_hash(key) for key in keys]),
    }
    begin = (BEGIN,) if is_ours else ()
    answers = await wire.run(
        *begin,
        call("place_lock", ids=texts(sorted({member.write.run_id for member in members}))),
        *lock_calls([member.write for member in members if member.write.calls]),
        call("reservation_find", **named),
        call("scope_lock", ids=texts(wanted), **named),
    )
    places, (open_, scopes) = answers[len(begin)], answers[-2:]
    made = [columns.reservation_of(row) for row in open_]
    ledger = Ledger({row[0]: columns.scope_of(row) for row in scopes}, {key_of(one): one for one in made})
    return Locked(
        ledger,
        {id: Place((head, hash_), (owner, token)) for id, head, hash_, owner, token in places},
    )


async def _make(wire: Wire, missing: Sequence[str], known: set[str]) -> None:
    if not missing:
        return
    # Whatever is charged there is synced later, and this with it.
    await wire.run(UNSYNCED, call("scope_make", **_made(missing)))
    if len(known) >= KNOWN_MAX:
        known.clear()
    known.update(missing)


def _made(scopes: Sequence[str]) -> dict[str, Any]:
    return {"ids": texts(scopes), "kinds": texts([kind_of(scope) for scope in scopes])}


def ledger_calls(ledger: Ledger) -> Sequence[Call]:
    """Store what has changed."""
    calls = [call("scope_charge", **columns.charge_parameters(one)) for one in ledger.changed.values()]
    calls += [
        call("reservation_put", **columns.reservation_parameters(one)) for one in ledger.written.values()
    ]
    calls += [
        call("usage_add", **columns.usage_parameters(key, used)) for key, used in summed(ledger.used).items()
    ]
    return calls
