"""Credentials and the audit in SQLite: each call is one transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import apsw

from onward.model.values import INTEGER_MAX
from onward.store import rows
from onward.store.port import principals as port
from onward.store.sqlite.statements import QUERIES, one
from onward.store.sqlite.transaction import Transactions


class SqlitePrincipals:
    """The credentials of one SQLite file."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def put(self, principal: port.Principal) -> None:
        values = rows.principal_values(principal)

        def put(db: apsw.Connection) -> bool:
            db.execute(QUERIES["principal_put"], values)
            return one(db, "principal_there", **values) is not None

        if not await self._database.transact(put):
            raise port.token_exists(principal.name)

    async def find(self, id: str) -> port.Principal | None:
        found = await self._database.look(lambda db: one(db, "principal_find", id=id))
        return None if found is None else rows.principal_of(found)

    async def read(
        self, kinds: Sequence[port.PrincipalKind] = port.TOKENS, *, limit: int = port.PRINCIPALS_MAX
    ) -> Sequence[port.Principal]:
        values = {"kinds": json.dumps(list(kinds)), "limit": limit}
        return await self._database.look(
            lambda db: [
                rows.principal_of(columns) for columns in db.execute(QUERIES["principal_read"], values)
            ]
        )

    async def revoke(self, id: str, *, at_us: int) -> bool:
        return id in await self._changed("principal_revoke", {"id": id, "at_us": at_us})

    async def used(self, id: str, *, at_us: int) -> None:
        values = {"id": id, "at_us": at_us, "before_us": at_us - port.USED_EVERY_US}
        await self._changed("principal_used", values)

    async def redeem(self, code_id: str, *, now_us: int) -> port.Principal | None:
        is_ours = await self._changed("principal_redeem", {"id": code_id, "now_us": now_us})
        return await self.find(code_id) if is_ours else None

    async def tidy(self, *, before_us: int, limit: int) -> int:
        return len(await self._changed("principal_tidy", {"before_us": before_us, "limit": limit}))

    async def _changed(self, name: str, values: dict[str, Any]) -> list[str]:
        return await self._database.transact(
            lambda db: [columns[0] for columns in db.execute(QUERIES[name], values)]
        )


class SqliteAudit:
    """The audit of one SQLite file."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def begin(self, row: port.AuditRow) -> int:
        values = rows.audit_values(row)
        return await self._database.transact(lambda db: int(db.execute(QUERIES["audit_begin"], values).get))

    async def finish(self, n: int, *, code: int, at_us: int) -> None:
        values = {"n": n, "code": code, "at_us": at_us}
        await self._database.transact(lambda db: db.execute(QUERIES["audit_finish"], values))

    async def read(self, *, before: int | None = None, limit: int) -> Sequence[port.AuditRow]:
        values = {"before": INTEGER_MAX if before is None else before, "limit": limit}
        return await self._database.look(
            lambda db: [rows.audit_of(columns) for columns in db.execute(QUERIES["audit_read"], values)]
        )

    async def tidy(self, *, before_us: int, limit: int) -> int:
        values = {"before_us": before_us, "limit": limit}
        return await self._database.transact(
            lambda db: len(db.execute(QUERIES["audit_tidy"], values).fetchall())
        )
