"""Limits in SQLite, and charging calls inside the transaction of their write.

No other process writes then. A statement costs less than the way to it, so all scopes of a write are read
with one, and stored with one.

`AddingUp` is for a call that begins or ends alone, where charging it is no more than adding up. Each of its
scopes is judged by the statement that charges it. Whatever is more (a limit that has no room or is nearly
spent, a scope without a row) changes nothing in the end, and is left to the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

import apsw
import msgspec
from msgspec.structs import replace

from onward.model.call import Reserved
from onward.model.limits import WARN_PERCENT, amounts_of, kind_of
from onward.model.row import CallClosed, CallOpened
from onward.store import limits
from onward.store.limits import (
    KnownReservations,
    Ledger,
    ReservationKey,
    UsageKey,
    charged_for,
    key_of,
    keys_closed,
    opened_reservation,
    scopes_opened,
    summed_usage,
    usage_of,
)
from onward.store.port.limits import Reservation, Scope, Spent, UsageKind, Warned
from onward.store.port.log import Write
from onward.store.sqlite.leases import SqliteOwnership
from onward.store.sqlite.statements import QUERIES, compact, one
from onward.store.sqlite.transaction import Transactions

_USAGE = {by: QUERIES["usage_list"].replace("{what}", limits.usage_column(by)) for by in UsageKind}


class SqliteLimits:
    """Limits in one SQLite file. `warnings` are those that its writer found, by run."""

    def __init__(
        self, database: Transactions, ownership: SqliteOwnership, warnings: dict[str, list[Warned]]
    ) -> None:
        self._database, self._ownership, self._warnings = database, ownership, warnings

    async def read(self, scopes: Sequence[str]) -> Sequence[Scope]:
        found = await self._database.look(lambda db: read_scopes(db, scopes))
        return [found[id] for id in scopes]

    async def list(self, *, limit: int) -> Sequence[Scope]:
        values = {"limit": limit}
        return await self._database.look(
            lambda db: [limits.scope_of(row) for row in db.execute(QUERIES["scope_list"], values)]
        )

    async def change(self, scope: str, changes: Mapping[str, int | None]) -> Scope:
        return await self._database.transact(lambda db: _change_limit(db, scope, changes))

    async def usage(self, by: UsageKind, *, limit: int) -> Sequence[Spent]:
        values = {"by": by.value, "limit": limit}
        return await self._database.look(
            lambda db: [limits.spent_of(row) for row in db.execute(_USAGE[by], values)]
        )

    async def reservations(self, run_id: str) -> Sequence[Reservation]:
        values = {"run_id": run_id}
        found = await self._database.look(
            lambda db: db.execute(QUERIES["reservation_read"], values).fetchall()
        )
        return sorted(map(limits.reservation_of, found), key=key_of)

    async def abandoned(self, scope: str) -> Sequence[str]:
        values = {"now_us": self._ownership.now_us()}
        found = await self._database.look(
            lambda db: db.execute(QUERIES["reservation_held"], values).fetchall()
        )
        return limits.abandoned_runs(found, scope, self._ownership.is_alive)

    def take_warnings(self, run_id: str) -> Sequence[Warned]:
        return self._warnings.pop(run_id, ())


def _change_limit(db: apsw.Connection, scope: str, changes: Mapping[str, int | None]) -> Scope:
    changed = limits.changed_limit(read_scopes(db, [scope])[scope], changes)
    db.execute(QUERIES["scope_make"], limits.new_scope_parameters(scope))
    db.execute(QUERIES["scope_limit"], limits.limit_parameters(changed))
    return read_scopes(db, [scope])[scope]


def open_ledger(db: apsw.Connection, write: Write) -> Ledger:
    """The scopes and reservations that a write concerns."""
    found = [
        one(db, "reservation_find", run_id=key.run_id, call_hash=limits.call_hash(key))
        for key in keys_closed(write)
    ]
    open_ = [limits.reservation_of(row) for row in found if row is not None]
    wanted = scopes_opened(write)
    scopes = find_scopes(db, {*wanted, *(id for made in open_ for id in made.scopes)})
    scopes |= new_scopes(db, [id for id in wanted if id not in scopes])
    return Ledger(scopes, {key_of(made): made for made in open_})


def write_ledger(db: apsw.Connection, ledger: Ledger) -> None:
    """Store what has changed."""
    charged = [
        {**limits.new_scope_parameters(scope.id), **limits.charge_parameters(scope)}
        for scope in ledger.changed.values()
    ]
    db.executemany(QUERIES["scope_charge"], charged)
    for made in ledger.written.values():
        db.execute(QUERIES["reservation_put"], limits.reservation_parameters(made))
    for key, used in summed_usage(ledger.used).items():
        db.execute(QUERIES["usage_add"], limits.usage_parameters(key, used))


def read_scopes(db: apsw.Connection, ids: Collection[str]) -> Mapping[str, Scope]:
    """These scopes, also those in which nothing was ever set or spent."""
    found = find_scopes(db, ids)
    return found | new_scopes(db, [id for id in ids if id not in found])


def find_scopes(db: apsw.Connection, ids: Collection[str]) -> dict[str, Scope]:
    """Those of the scopes in which something was ever set or spent."""
    rows = db.execute(QUERIES["scope_find"], {"ids": json.dumps([*ids])})
    return {row[0]: limits.scope_of(row) for row in rows}


def new_scopes(db: apsw.Connection, ids: Collection[str]) -> dict[str, Scope]:
    """Scopes in which nothing was spent, with the limits of their kinds."""
    kinds = find_scopes(db, {kind_of(id) for id in ids}) if ids else {}
    made = {id: Scope(id=id) for id in ids}
    return {
        id: replace(scope, default=kinds[kind_of(id)].own) if kind_of(id) in kinds else scope
        for id, scope in made.items()
    }


# Values are given in the order in which a statement first names them: looking names up takes longer.
_RESERVE, _UNRESERVE = compact(QUERIES["scope_reserve"]), compact(QUERIES["scope_unreserve"])
_RESERVATION_BEGIN, _RESERVATION_END = (
    compact(QUERIES["reservation_begin"]),
    compact(QUERIES["reservation_end"]),
)
_SETTLE, _UNSETTLE = compact(QUERIES["scope_settle"]), compact(QUERIES["scope_unsettle"])
_REOPEN, _USAGE_ADD = compact(QUERIES["reservation_reopen"]), compact(QUERIES["usage_add"])


class AddingUp(msgspec.Struct):
    """The calls of one process that are charged so."""

    known: KnownReservations = msgspec.field(default_factory=KnownReservations)

    def charge(self, db: apsw.Connection, write: Write) -> bool:
        """Charge the call of a write that will be made. False: it is more than adding up; nothing is done."""
        if len(write.calls) != 1:
            return False
        (row,) = write.calls
        if isinstance(row, CallClosed):
            found = self.known.open.get(ReservationKey(write.run_id, row.step, row.call, row.number))
            return found is not None and self._settle(db, write, row, found)
        return row.reserved is not None and self._reserve(db, write, row, row.reserved)

    def _reserve(self, db: apsw.Connection, write: Write, row: CallOpened, reserved: Reserved) -> bool:
        scopes, wanted = _sorted_scopes(reserved.scopes), amounts_of(reserved)
        for number, id in enumerate(scopes):
            db.execute(_RESERVE, (*wanted, id, reserved.is_priced))
            if not db.changes():
                for charged in scopes[:number]:
                    db.execute(_UNRESERVE, (*wanted, charged))
                return False
        made = opened_reservation(write, row, scopes, wanted)
        key, joined = key_of(made), limits.joined_scopes(scopes)
        named = (row.step, row.call, row.number, made.token, joined, row.model)
        db.execute(_RESERVATION_BEGIN, (write.run_id, limits.call_hash(key), *named, *wanted))
        self.known.begun(key, made)
        return True

    def _settle(self, db: apsw.Connection, write: Write, row: CallClosed, found: Reservation) -> bool:
        key, charged = key_of(found), charged_for(row, found)
        place, moved = (write.run_id, limits.call_hash(key)), (*charged, *found.reserved)
        db.execute(_RESERVATION_END, (*charged, row.is_unknown, *place))
        if not db.changes():
            return False
        for number, id in enumerate(found.scopes):
            db.execute(_SETTLE, (*moved, id, WARN_PERCENT))
            if not db.changes():
                for settled in found.scopes[:number]:
                    db.execute(_UNSETTLE, (*moved, settled))
                db.execute(_REOPEN, place)
                return False
        counted, used = usage_of(write, row, found)
        db.execute(_USAGE_ADD, (_usage_hash(counted), *counted, *used))
        self.known.ended(key)
        return True


@lru_cache(maxsize=1_000)  # all calls of a run have the same
def _sorted_scopes(wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Scopes in their order, each once."""
    return tuple(sorted(set(wanted)))


@lru_cache(maxsize=1_000)
def _usage_hash(key: UsageKey) -> str:
    return limits.usage_hash(key)
