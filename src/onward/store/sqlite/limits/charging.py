"""Charging calls in SQLite: inside the transaction of their write, where nobody else writes."""

from __future__ import annotations

from typing import Any

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
    scopes = {id: find_scope(db, id) or new_scope(db, id) for id in scopes_opened(write)}
    for id in {id for made in open_ for id in made.scopes} - scopes.keys():
        there = find_scope(db, id)
        if there is not None:
            scopes[id] = there
    return Ledger(scopes, {key_of(made): made for made in open_})


def write_ledger(db: apsw.Connection, ledger: Ledger) -> None:
    """Store what has changed."""
    for scope in ledger.changed.values():
        db.execute(QUERIES["scope_make"], columns.make_parameters(scope.id))
        db.execute(QUERIES["scope_charge"], columns.charge_parameters(scope))
    for made in ledger.written.values():
        db.execute(QUERIES["reservation_put"], columns.reservation_parameters(made))
    for key, used in summed(ledger.used).items():
        db.execute(QUERIES["usage_add"], columns.usage_parameters(key, used))


def find_scope(db: apsw.Connection, id: str) -> Scope | None:
    """A scope, if something was ever set or spent there."""
    found: tuple[Any, ...] | None = one(db, "scope_find", id=id)
    return None if found is None else columns.scope_of(found)


def new_scope(db: apsw.Connection, id: str) -> Scope:
    """A scope in which nothing was spent."""
    default = find_scope(db, kind_of(id))
    return Scope(id=id) if default is None else replace(Scope(id=id), default=default.own)
