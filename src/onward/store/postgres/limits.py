"""Limits in PostgreSQL, and charging calls: runs are locked, then chats, then scopes; then judged.

Each is locked in the order of the ids. Scopes come last: many calls share one, and none of them should wait
while another waits for a chat.

The row of a scope is made beforehand, in a transaction of its own: made in one that already has locks, it
could wait for another that waits for those.

A call that begins or ends alone is charged in the trip of its events: `calls.OneTrip`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from onward.model.limits import kind_of
from onward.store import limits
from onward.store.limits import (
    Ledger,
    charges,
    key_of,
    keys_closed,
    only_settles,
    scopes_opened,
    summed_usage,
)
from onward.store.port.limits import Reservation, Scope, Spent, UsageKind, Warned
from onward.store.port.log import Write
from onward.store.postgres import statements
from onward.store.postgres.calls import lock_calls
from onward.store.postgres.leases import PostgresOwnership
from onward.store.postgres.pool import Pool, Rows, Wire
from onward.store.transactions import Member

NO_KEYS = {"run_ids": statements.texts([]), "call_hashes": statements.texts([])}


class PostgresLimits:
    """Limits in one PostgreSQL database. `warnings` are those that its writer found, by run."""

    def __init__(
        self, connections: Pool, ownership: PostgresOwnership, warnings: dict[str, list[Warned]]
    ) -> None:
        self._connections, self._ownership, self._warnings = connections, ownership, warnings

    async def read(self, scopes: Sequence[str]) -> Sequence[Scope]:
        return await self._connections.use(lambda wire: _read_scopes(wire, scopes))

    async def list(self, *, limit: int) -> Sequence[Scope]:
        return [limits.scope_of(row) for row in await self._ask(statements.call("scope_list", limit=limit))]

    async def change(self, scope: str, changes: Mapping[str, int | None]) -> Scope:
        return await self._connections.use(lambda wire: _change_limit(wire, scope, changes))

    async def usage(self, by: UsageKind, *, limit: int) -> Sequence[Spent]:
        asked = statements.usage_statement(limits.usage_column(by)).call(by=by.value, limit=limit)
        return [limits.spent_of(row) for row in await self._ask(asked)]

    async def reservations(self, run_id: str) -> Sequence[Reservation]:
        found = await self._ask(statements.call("reservation_read", run_id=run_id))
        return sorted(map(limits.reservation_of, found), key=key_of)

    async def abandoned(self, scope: str) -> Sequence[str]:
        found = await self._ask(statements.call("reservation_held", now_us=self._ownership.now_us()))
        return limits.abandoned_runs(found, scope, self._ownership.is_alive)

    def take_warnings(self, run_id: str) -> Sequence[Warned]:
        return self._warnings.pop(run_id, ())

    async def _ask(self, asked: statements.Call) -> Rows:
        (found,) = await self._connections.use(lambda wire: wire.run(asked))
        return found


async def _read_scopes(wire: Wire, scopes: Sequence[str]) -> Sequence[Scope]:
    wanted = {*scopes, *map(kind_of, scopes)}
    (found,) = await wire.run(statements.call("scope_find", ids=statements.texts(sorted(wanted))))
    there = {row[0]: limits.scope_of(row) for row in found}
    return [there.get(id) or _new_scope(id, there.get(kind_of(id))) for id in scopes]


def _new_scope(id: str, default: Scope | None) -> Scope:
    return Scope(id=id) if default is None else replace(Scope(id=id), default=default.own)


async def _change_limit(wire: Wire, scope: str, changes: Mapping[str, int | None]) -> Scope:
    made = statements.call(
        "scope_make", ids=statements.texts([scope]), kinds=statements.texts([kind_of(scope)])
    )
    await wire.run(made)
    _, (found,) = await wire.run(
        statements.BEGIN, statements.call("scope_lock", ids=statements.texts([scope]), **NO_KEYS)
    )
    changed = limits.changed_limit(limits.scope_of(found), changes)
    await wire.run(statements.call("scope_limit", **limits.limit_parameters(changed)), statements.COMMIT)
    (after,) = await _read_scopes(wire, [scope])
    return after


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


async def lock_ledger(wire: Wire, members: Sequence[Member], known: set[str]) -> Locked:
    """Lock what these writes concern, in a new transaction unless there is one.

    `known` are scopes that have rows.
    """
    writes = [member.write for member in members if is_charged(member)]
    wanted = sorted({scope for write in writes for scope in scopes_opened(write)})
    is_ours = not wire.is_in_transaction
    while True:
        if is_ours:
            await _make_scopes(wire, [scope for scope in wanted if scope not in known], known)
        locked = await _lock_once(wire, members, writes, wanted, is_ours=is_ours)
        missing = [scope for scope in wanted if scope not in locked.ledger.scopes]
        if not missing:
            return locked
        known.difference_update(missing)  # one went with its run
        if not is_ours:
            await wire.run(statements.call("scope_make", **_scope_parameters(missing)))
        else:
            await wire.run(statements.ROLLBACK)


async def _lock_once(
    wire: Wire, members: Sequence[Member], writes: Sequence[Write], wanted: Sequence[str], *, is_ours: bool
) -> Locked:
    """`writes` are those of the members that are charged; of the others, runs and chats are locked, too."""
    keys = [key for write in writes for key in keys_closed(write)]
    named = {
        "run_ids": statements.texts([key.run_id for key in keys]),
        "call_hashes": statements.texts([limits.call_hash(key) for key in keys]),
    }
    begin = (statements.BEGIN,) if is_ours else ()
    answers = await wire.run(
        *begin,
        statements.call(
            "place_lock", ids=statements.texts(sorted({member.write.run_id for member in members}))
        ),
        *lock_calls([member.write for member in members if member.write.calls]),
        statements.call("reservation_find", **named),
        statements.call("scope_lock", ids=statements.texts(wanted), **named),
    )
    places, (open_, scopes) = answers[len(begin)], answers[-2:]
    made = [limits.reservation_of(row) for row in open_]
    ledger = Ledger({row[0]: limits.scope_of(row) for row in scopes}, {key_of(one): one for one in made})
    return Locked(
        ledger,
        {id: Place((head, hash_), (owner, token)) for id, head, hash_, owner, token in places},
    )


async def _make_scopes(wire: Wire, missing: Sequence[str], known: set[str]) -> None:
    if not missing:
        return
    # Whatever is charged there is synced later, and this with it.
    await wire.run(statements.UNSYNCED, statements.call("scope_make", **_scope_parameters(missing)))
    if len(known) >= KNOWN_MAX:
        known.clear()
    known.update(missing)


def _scope_parameters(scopes: Sequence[str]) -> dict[str, Any]:
    return {"ids": statements.texts(scopes), "kinds": statements.texts([kind_of(scope) for scope in scopes])}


def ledger_calls(ledger: Ledger) -> Sequence[statements.Call]:
    """Store what has changed."""
    calls = [
        statements.call("scope_charge", **limits.charge_parameters(one)) for one in ledger.changed.values()
    ]
    calls += [
        statements.call("reservation_put", **limits.reservation_parameters(one))
        for one in ledger.written.values()
    ]
    calls += [
        statements.call("usage_add", **limits.usage_parameters(key, used))
        for key, used in summed_usage(ledger.used).items()
    ]
    return calls
