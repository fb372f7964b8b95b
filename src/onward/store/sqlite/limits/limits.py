"""The limits of a SQLite file: each call is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import apsw

from onward.store.limits import columns
from onward.store.limits.ledger import key_of
from onward.store.port.money.limits import Reservation, Scope, Spent, UsageKind, Warned
from onward.store.sqlite.file.transaction import Transactions
from onward.store.sqlite.limits.charging import read_scopes
from onward.store.sqlite.ownership import Ownership
from onward.store.sqlite.statements import QUERIES

_USAGE = {by: QUERIES["usage_list"].replace("{what}", columns.usage_column(by)) for by in UsageKind}


class SqliteLimits:
    """Limits in one SQLite file. `warnings` are those that its writer found, by run."""

    def __init__(
        self, database: Transactions, ownership: Ownership, warnings: dict[str, list[Warned]]
    ) -> None:
        self._database, self._ownership, self._warnings = database, ownership, warnings

    async def read(self, scopes: Sequence[str]) -> Sequence[Scope]:
        found = await self._database.look(lambda db: read_scopes(db, scopes))
        return [found[id] for id in scopes]

    async def list(self, *, limit: int) -> Sequence[Scope]:
        values = {"limit": limit}
        return await self._database.look(
            lambda db: [columns.scope_of(row) for row in db.execute(QUERIES["scope_list"], values)]
        )

    async def change(self, scope: str, changes: Mapping[str, int | None]) -> Scope:
        return await self._database.transact(lambda db: _change(db, scope, changes))

    async def usage(self, by: UsageKind, *, limit: int) -> Sequence[Spent]:
        values = {"by": by.value, "limit": limit}
        return await self._database.look(
            lambda db: [columns.spent_of(row) for row in db.execute(_USAGE[by], values)]
        )

    async def reservations(self, run_id: str) -> Sequence[Reservation]:
        values = {"run_id": run_id}
        found = await self._database.look(
            lambda db: db.execute(QUERIES["reservation_read"], values).fetchall()
        )
        return sorted(map(columns.reservation_of, found), key=key_of)

    async def abandoned(self, scope: str) -> Sequence[str]:
        values = {"now_us": self._ownership.now_us()}
        found = await self._database.look(
            lambda db: db.execute(QUERIES["reservation_held"], values).fetchall()
        )
        return columns.abandoned(found, scope, self._ownership.is_alive)

    def take_warnings(self, run_id: str) -> Sequence[Warned]:
        return self._warnings.pop(run_id, ())


def _change(db: apsw.Connection, scope: str, changes: Mapping[str, int | None]) -> Scope:
    changed = columns.changed_limit(read_scopes(db, [scope])[scope], changes)
    db.execute(QUERIES["scope_make"], columns.make_parameters(scope))
    db.execute(QUERIES["scope_limit"], columns.limit_parameters(changed))
    return read_scopes(db, [scope])[scope]
