"""The limits of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from onward.model.values.scopes import kind_of
from onward.store.limits import columns
from onward.store.limits.ledger import key_of
from onward.store.port.money.limits import Reservation, Scope, Spent, UsageKind, Warned
from onward.store.postgres.link.binary import texts
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.link.wire import Rows, Wire
from onward.store.postgres.ownership import Ownership
from onward.store.postgres.statements import BEGIN, COMMIT, Call, call, usage_statement

NO_KEYS = {"run_ids": texts([]), "call_hashes": texts([])}


class PostgresLimits:
    """Limits in one PostgreSQL database. `warnings` are those that its writer found, by run."""

    def __init__(self, connections: Pool, ownership: Ownership, warnings: dict[str, list[Warned]]) -> None:
        self._connections, self._ownership, self._warnings = connections, ownership, warnings

    async def read(self, scopes: Sequence[str]) -> Sequence[Scope]:
        return await self._connections.use(lambda wire: _read(wire, scopes))

    async def list(self, *, limit: int) -> Sequence[Scope]:
        return [columns.scope_of(row) for row in await self._ask(call("scope_list", limit=limit))]

    async def change(self, scope: str, changes: Mapping[str, int | None]) -> Scope:
        return await self._connections.use(lambda wire: _change(wire, scope, changes))

    async def usage(self, by: UsageKind, *, limit: int) -> Sequence[Spent]:
        asked = usage_statement(columns.usage_column(by)).call(by=by.value, limit=limit)
        return [columns.spent_of(row) for row in await self._ask(asked)]

    async def reservations(self, run_id: str) -> Sequence[Reservation]:
        found = await self._ask(call("reservation_read", run_id=run_id))
        return sorted(map(columns.reservation_of, found), key=key_of)

    async def abandoned(self, scope: str) -> Sequence[str]:
        found = await self._ask(call("reservation_held", now_us=self._ownership.now_us()))
        return columns.abandoned(found, scope, self._ownership.is_alive)

    def take_warnings(self, run_id: str) -> Sequence[Warned]:
        return self._warnings.pop(run_id, ())

    async def _ask(self, asked: Call) -> Rows:
        (found,) = await self._connections.use(lambda wire: wire.run(asked))
        return found


async def _read(wire: Wire, scopes: Sequence[str]) -> Sequence[Scope]:
    wanted = {*scopes, *map(kind_of, scopes)}
    (found,) = await wire.run(call("scope_find", ids=texts(sorted(wanted))))
    there = {row[0]: columns.scope_of(row) for row in found}
    return [there.get(id) or _new(id, there.get(kind_of(id))) for id in scopes]


def _new(id: str, default: Scope | None) -> Scope:
    return Scope(id=id) if default is None else replace(Scope(id=id), default=default.own)


async def _change(wire: Wire, scope: str, changes: Mapping[str, int | None]) -> Scope:
    made = call("scope_make", ids=texts([scope]), kinds=texts([kind_of(scope)]))
    await wire.run(made)
    _, (found,) = await wire.run(BEGIN, call("scope_lock", ids=texts([scope]), **NO_KEYS))
    changed = columns.changed_limit(columns.scope_of(found), changes)
    await wire.run(call("scope_limit", **columns.limit_parameters(changed)), COMMIT)
    (after,) = await _read(wire, [scope])
    return after
