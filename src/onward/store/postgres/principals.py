"""Credentials and the audit in PostgreSQL: each call is one trip."""

from __future__ import annotations

from collections.abc import Sequence

from onward.model.values import INTEGER_MAX
from onward.store import rows
from onward.store.port import principals as port
from onward.store.postgres.pool import Pool, Rows
from onward.store.postgres.statements import BEGIN, COMMIT, Call, call, texts


class PostgresPrincipals:
    """The credentials of one PostgreSQL database."""

    def __init__(self, connections: Pool) -> None:
        self._connections = connections

    async def put(self, principal: port.Principal) -> None:
        values = rows.principal_values(principal)
        # What is in the way may be committed after the first began, so the second looks anew.
        _, _, found, _ = await self._ask(
            BEGIN, call("principal_put", **values), call("principal_there", **values), COMMIT
        )
        if not found:
            raise port.token_exists(principal.name)

    async def find(self, id: str) -> port.Principal | None:
        (found,) = await self._ask(call("principal_find", id=id))
        return rows.principal_of(found[0]) if found else None

    async def read(
        self, kinds: Sequence[port.PrincipalKind] = port.TOKENS, *, limit: int = port.PRINCIPALS_MAX
    ) -> Sequence[port.Principal]:
        (found,) = await self._ask(call("principal_read", kinds=texts(list(kinds)), limit=limit))
        return [rows.principal_of(columns) for columns in found]

    async def revoke(self, id: str, *, at_us: int) -> bool:
        (found,) = await self._ask(call("principal_revoke", id=id, at_us=at_us))
        return (id,) in found

    async def used(self, id: str, *, at_us: int) -> None:
        await self._ask(call("principal_used", id=id, at_us=at_us, before_us=at_us - port.USED_EVERY_US))

    async def redeem(self, code_id: str, *, now_us: int) -> port.Principal | None:
        (found,) = await self._ask(call("principal_redeem", id=code_id, now_us=now_us))
        return await self.find(code_id) if found else None

    async def tidy(self, *, before_us: int, limit: int) -> int:
        (found,) = await self._ask(call("principal_tidy", before_us=before_us, limit=limit))
        return len(found)

    async def _ask(self, *calls: Call) -> Sequence[Rows]:
        return await self._connections.use(lambda wire: wire.run(*calls))


class PostgresAudit:
    """The audit of one PostgreSQL database."""

    def __init__(self, connections: Pool) -> None:
        self._connections = connections

    async def begin(self, row: port.AuditRow) -> int:
        begin = call("audit_begin", **rows.audit_values(row))
        (((n,),),) = await self._connections.use(lambda wire: wire.run(begin))
        return int(n)

    async def finish(self, n: int, *, code: int, at_us: int) -> None:
        finish = call("audit_finish", n=n, code=code, at_us=at_us)
        await self._connections.use(lambda wire: wire.run(finish))

    async def read(self, *, before: int | None = None, limit: int) -> Sequence[port.AuditRow]:
        read = call("audit_read", before=INTEGER_MAX if before is None else before, limit=limit)
        (found,) = await self._connections.use(lambda wire: wire.run(read))
        return [rows.audit_of(columns) for columns in found]

    async def tidy(self, *, before_us: int, limit: int) -> int:
        tidy = call("audit_tidy", before_us=before_us, limit=limit)
        (found,) = await self._connections.use(lambda wire: wire.run(tidy))
        return len(found)
