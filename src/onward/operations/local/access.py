"""Who may use a server: tokens, the one-time codes of sign-in links, and sessions.

A token reads `onw_<id>_<secret>`. Of a secret only a hash is stored, and it is shown once, when it is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hmac import compare_digest
from typing import TYPE_CHECKING

import msgspec
from blake3 import blake3

from onward.clock import Clock, Ids
from onward.errors import InvalidInput, Refused
from onward.operations.http import ROLES
from onward.operations.requests import AddToken, ListAudit, ListTokens, RevokeToken
from onward.read.view import instant
from onward.store.port.principals import AuditRow, Principal, PrincipalKind, Principals, secret_hash

if TYPE_CHECKING:
    from onward.replies.access import AuditPage, AuditShown, TokenList, TokenListed, TokenMade
    from onward.store.port.store import Store

TOKEN = re.compile(r"onw_([a-z0-9-]{1,40})_([A-Za-z0-9_-]{43})")
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
CODE_S, HOUR_US = 600, 3_600_000_000
LOCAL, CHOSEN = "local", "env"
"""The names of the token that a server makes for its own machine, and of one that its operator chose."""


def chosen_id(token: str) -> str:
    """The id of a token that an operator chose, which has no id in it."""
    return f"env-{blake3(b'id of ' + token.encode()).hexdigest()[:20]}"


class Made(msgspec.Struct, frozen=True):
    """Something that was made, and its secret, which is shown once."""

    principal: Principal
    text: str


class Access(msgspec.Struct, frozen=True):
    """Makes and takes tokens, codes and sessions of one store."""

    store: Store
    clock: Clock
    ids: Ids
    secret: Callable[[], str]

    async def make_token(self, name: str, roles: Sequence[str], *, expires_at_us: int | None = None) -> Made:
        """A new token."""
        made = self._principal("token", check_name(name), check_roles(roles), expires_at_us)
        await self._principals.put(made.principal)
        return Made(made.principal, f"onw_{made.principal.id}_{made.text}")

    async def local_token(self, known: str | None) -> Made:
        """The token of this machine: the known one, if it is still good, else a new one that may do all."""
        found = None if known is None else TOKEN.fullmatch(known)
        if found is not None:
            principal = await self._principals.find(found[1])
            stored = bytes(32) if principal is None else principal.secret_hash
            is_right = compare_digest(stored, secret_hash(found[2]))
            if principal is not None and is_right and principal.is_valid(self.clock.now_us()):
                return Made(principal, found[0])
        try:
            return await self.make_token(LOCAL, ["admin"])
        except Refused:  # the machine of another server has that name
            return await self.make_token(f"{LOCAL}-{self.ids.unique()[:6]}", ["admin"])

    async def take_chosen(self, token: str) -> Principal:
        """The token that an operator chose, from now on instead of others that were."""
        id = chosen_id(token)
        for one in await self._principals.read():
            if one.name == CHOSEN and one.id != id and one.revoked_at_us is None:
                await self._principals.revoke(one.id, at_us=self.clock.now_us())
        found = await self._principals.find(id)
        if found is None:
            found = Principal(
                id=id,
                kind="token",
                name=CHOSEN,
                secret_hash=secret_hash(token),
                roles=("admin",),
                made_at_us=self.clock.now_us(),
            )
            await self._principals.put(found)
        return found

    async def make_code(self, token: Principal) -> str:
        """A code that signs in once, within ten minutes, with what the token may do."""
        until_us = self._not_after(token, self.clock.now_us() + CODE_S * 1_000_000)
        made = self._principal("code", token.name, token.roles, until_us, token=token.id)
        await self._principals.put(made.principal)
        return f"{made.principal.id}_{made.text}"

    async def make_session(self, token: Principal, hours: float) -> Made:
        """A session that may do what the token may."""
        until_us = self._not_after(token, self.clock.now_us() + int(hours * HOUR_US))
        made = self._principal("session", token.name, token.roles, until_us, token=token.id)
        await self._principals.put(made.principal)
        return Made(made.principal, f"{made.principal.id}_{made.text}")

    async def redeem(self, code: Principal) -> Principal | None:
        """The token of a code, once; None if it was used, has expired or was revoked."""
        redeemed = await self._principals.redeem(code.id, now_us=self.clock.now_us())
        if redeemed is None or redeemed.token is None:
            return None
        return await self._principals.find(redeemed.token)

    def _principal(
        self,
        kind: PrincipalKind,
        name: str,
        roles: Sequence[str],
        expires_at_us: int | None,
        *,
        token: str | None = None,
    ) -> Made:
        secret = self.secret()
        principal = Principal(
            id=self.ids.unique()[:16],
            kind=kind,
            name=name,
            secret_hash=secret_hash(secret),
            roles=tuple(roles),
            made_at_us=self.clock.now_us(),
            expires_at_us=expires_at_us,
            token=token,
        )
        return Made(principal, secret)

    def _not_after(self, token: Principal, at_us: int) -> int:
        return at_us if token.expires_at_us is None else min(at_us, token.expires_at_us)

    @property
    def _principals(self) -> Principals:
        return self.store.principals


def check_name(name: str) -> str:
    """The name of a token, if it can be one: it is in logs, and in the ids of what it asks for."""
    if not NAME.fullmatch(name):
        raise InvalidInput(f"{name[:60]!r} cannot be the name of a token; use 1 to 40 of a-z, 0-9 and '-'.")
    return name


def check_roles(roles: Sequence[str]) -> tuple[str, ...]:
    """The roles of a token, if there are such."""
    if unknown := sorted(set(roles) - set(ROLES)):
        raise InvalidInput(f"{', '.join(unknown)[:60]!r} is not a role; use one of {', '.join(ROLES)}.")
    if not roles:
        raise InvalidInput(f"a token needs one or more roles of {', '.join(ROLES)}.")
    return tuple(role for role in ROLES if role in roles)


class LocalAccess(msgspec.Struct, frozen=True):
    """Says who may use the servers of one store, and what was asked of them."""

    access: Access

    async def list_tokens(self, request: ListTokens) -> TokenList:
        """Tokens, newest first."""
        found = await self.access.store.principals.read()
        now_us = self.access.clock.now_us()
        listed = [one for one in found if request.all or one.revoked_at_us is None]
        return {"tokens": [_view_token(one, now_us) for one in listed]}

    async def add_token(self, request: AddToken) -> TokenMade:
        """A new token; its text is shown this once."""
        now_us, lasts_s = self.access.clock.now_us(), request.expires_in_s
        until_us = None if lasts_s is None else now_us + lasts_s * 1_000_000
        made = await self.access.make_token(request.name, request.roles, expires_at_us=until_us)
        return {**_view_token(made.principal, now_us), "token": made.text}

    async def revoke_token(self, request: RevokeToken) -> TokenListed:
        """End a token for good."""
        principals, now_us = self.access.store.principals, self.access.clock.now_us()
        tokens = await principals.read()
        meant = [one for one in tokens if one.id == request.id]
        meant = meant or [one for one in tokens if one.name == request.id and one.revoked_at_us is None]
        if not meant:
            raise Refused("token_not_found", f"there is no token {request.id[:60]!r}.")
        await principals.revoke(meant[0].id, at_us=now_us)
        return _view_token(await principals.find(meant[0].id) or meant[0], now_us)

    async def list_audit(self, request: ListAudit) -> AuditPage:
        """What was asked to be changed, newest first."""
        found = await self.access.store.audit.read(before=request.before, limit=request.limit)
        cursor = found[-1].n if found and len(found) == request.limit else None
        return {"changes": [_view_change(one) for one in found], "cursor": cursor}


def _view_token(one: Principal, now_us: int) -> TokenListed:
    return {
        "id": one.id,
        "name": one.name,
        "roles": list(one.roles),
        "made_at": instant(one.made_at_us),
        "expires_at": instant(one.expires_at_us),
        "used_at": instant(one.used_at_us),
        "revoked_at": instant(one.revoked_at_us),
        "is_valid": one.is_valid(now_us),
    }


def _view_change(row: AuditRow) -> AuditShown:
    return {
        "n": row.n,
        "at": instant(row.at_us),
        "by": row.by,
        "principal": row.principal,
        "address": row.address,
        "operation": row.operation,
        "subject": row.subject,
        "key": row.key,
        "on_behalf_of": row.on_behalf_of,
        "status": row.code,
        "done_at": instant(row.done_at_us),
    }
