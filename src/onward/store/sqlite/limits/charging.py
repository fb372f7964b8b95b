"""Charging calls in SQLite: inside the transaction of their write, where nobody else writes.

A statement costs less than the way to it, so all scopes of a write are read with one, and stored with one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

import apsw
from msgspec.structs import replace

from onward.model.values.scopes import kind_of
from onward.store.limits import columns
from onward.store.limits.ledger import Ledger, key_of, keys_closed, scopes_opened, summed
from onward.store.port.money.limits import Scope
from onward.store.port.stored import Write
from onward.store.sqlite.reading import one
from onward.store.sqlite.statements import QUERIES


def open_ledger(db: apsw.Connection, write: Write) -> Ledger:
    """The scopes and reservations that a write concerns."""
    found = [
        one(db, "reservation_find", run_id=key.run_id, call_hash=columns.call_hash(key))
        for key in keys_closed(write)
    ]
    open_ = [columns.reservation_of(row) for row in found if row is not None]
    wanted = scopes_opened(write)
    scopes = find_scopes(db, {*wanted, *(id for made in open_ for id in made.scopes)})
    scopes |= new_scopes(db, [id for id in wanted if id not in scopes])
    return Ledger(scopes, {key_of(made): made for made in open_})


def write_ledger(db: apsw.Connection, ledger: Ledger) -> None:
    """Store what has changed."""
    charged = [
        {**columns.make_parameters(scope.id), **columns.charge_parameters(scope)}
        for scope in ledger.changed.values()
    ]
    db.executemany(QUERIES["scope_charge"], charged)
    for made in ledger.written.values():
        db.execute(QUERIES["reservation_put"], columns.reservation_parameters(made))
    for key, used in summed(ledger.used).items():
        db.execute(QUERIES["usage_add"], columns.usage_parameters(key, used))


def read_scopes(db: apsw.Connection, ids: Collection[str]) -> Mapping[str, Scope]:
    """These scopes, also those in which nothing was ever set or spent."""
    found = find_scopes(db, ids)
    return found | new_scopes(db, [id for id in ids if id not in found])


def find_scopes(db: apsw.Connection, ids: Collection[str]) -> dict[str, Scope]:
    """Those of the scopes in which something was ever set or spent."""
    rows = db.execute(QUERIES["scope_find"], {"ids": json.dumps([*ids])})
    return {row[0]: columns.scope_of(row) for row in rows}


def new_scopes(db: apsw.Connection, ids: Collection[str]) -> dict[str, Scope]:
    """Scopes in which nothing was spent, with the limits of their kinds."""
    kinds = find_scopes(db, {kind_of(id) for id in ids}) if ids else {}
    made = {id: Scope(id=id) for id in ids}
    return {
        id: replace(scope, default=kinds[kind_of(id)].own) if kind_of(id) in kinds else scope
        for id, scope in made.items()
    }
