"""Credentials and the audit in memory."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from onward.store.memory.state import State
from onward.store.port import principals as port


class MemoryPrincipals:
    """The credentials of a database."""

    def __init__(self, state: State) -> None:
        self._stored = state.principals

    async def put(self, principal: port.Principal) -> None:
        there = self._stored.get(principal.id)
        if there is not None and _made(there) == _made(principal):
            return
        if there is not None or (principal.kind == "token" and self._is_taken(principal.name)):
            raise port.token_exists(principal.name)
        self._stored[principal.id] = principal

    def _is_taken(self, name: str) -> bool:
        return any(
            (one.kind, one.name, one.revoked_at_us) == ("token", name, None) for one in self._stored.values()
        )

    async def find(self, id: str) -> port.Principal | None:
        there = self._stored.get(id)
        return None if there is None else self._ended(there)

    async def read(
        self, kinds: Sequence[port.PrincipalKind] = port.TOKENS, *, limit: int = port.PRINCIPALS_MAX
    ) -> Sequence[port.Principal]:
        found = [self._ended(one) for one in self._stored.values() if one.kind in kinds]
        return sorted(found, key=lambda one: (one.made_at_us, one.id), reverse=True)[:limit]

    async def revoke(self, id: str, *, at_us: int) -> bool:
        there = self._stored.get(id)
        if there is None or there.revoked_at_us is not None:
            return False
        for one in list(self._stored.values()):
            if id in (one.id, one.token) and one.revoked_at_us is None:
                self._stored[one.id] = replace(one, revoked_at_us=at_us)
        return True

    async def used(self, id: str, *, at_us: int) -> None:
        there = self._stored.get(id)
        if there is None or there.kind == "code":
            return
        if there.used_at_us is None or there.used_at_us <= at_us - port.USED_EVERY_US:
            self._stored[id] = replace(there, used_at_us=at_us)

    async def redeem(self, code_id: str, *, now_us: int) -> port.Principal | None:
        code = await self.find(code_id)
        if code is None or code.kind != "code" or not code.is_valid(now_us):
            return None
        self._stored[code_id] = replace(self._stored[code_id], used_at_us=now_us)
        return await self.find(code_id)

    async def tidy(self, *, before_us: int, limit: int) -> int:
        ends = ((one.id, _end(one)) for one in self._stored.values() if one.kind != "token")
        over = [id for id, at_us in ends if at_us is not None and at_us <= before_us][:limit]
        for id in over:
            del self._stored[id]
        return len(over)

    def _ended(self, one: port.Principal) -> port.Principal:
        """With the earlier end of it and its token."""
        if one.token is None:
            return one
        token = self._stored.get(one.token)
        if token is None:
            return replace(one, revoked_at_us=one.revoked_at_us or one.made_at_us)
        return replace(
            one,
            expires_at_us=_earlier(one.expires_at_us, token.expires_at_us),
            revoked_at_us=_earlier(one.revoked_at_us, token.revoked_at_us),
        )


def _made(one: port.Principal) -> tuple[object, ...]:
    """What never changes about it."""
    return one.kind, one.name, one.secret_hash, one.roles, one.made_at_us


def _end(one: port.Principal) -> int | None:
    """When it ended, or will end, by itself."""
    used_us = one.used_at_us if one.kind == "code" else None
    return _earlier(_earlier(one.expires_at_us, one.revoked_at_us), used_us)


def _earlier(first: int | None, second: int | None) -> int | None:
    return min((at_us for at_us in (first, second) if at_us is not None), default=None)


class MemoryAudit:
    """The audit of a database."""

    def __init__(self, state: State) -> None:
        self._state, self._rows = state, state.audit

    async def begin(self, row: port.AuditRow) -> int:
        n = self._state.audit_n = self._state.audit_n + 1
        self._rows[n] = replace(row, n=n, code=None, done_at_us=None)
        return n

    async def finish(self, n: int, *, code: int, at_us: int) -> None:
        row = self._rows.get(n)
        if row is not None and row.code is None:
            self._rows[n] = replace(row, code=code, done_at_us=at_us)

    async def read(self, *, before: int | None = None, limit: int) -> Sequence[port.AuditRow]:
        found = [row for n, row in self._rows.items() if before is None or n < before]
        return found[::-1][:limit]

    async def tidy(self, *, before_us: int, limit: int) -> int:
        over = [row.n for row in list(self._rows.values())[:limit] if row.at_us <= before_us]
        for n in over:
            del self._rows[n]
        return len(over)
