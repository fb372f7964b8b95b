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
from onward.store.port.principals import Principal, PrincipalKind, Principals, secret_hash

if TYPE_CHECKING:
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
        raise InvalidInput(f"{', '.join(unknown)[:60]!r} is no role; there are {', '.join(ROLES)}.")
    if not roles:
        raise InvalidInput(f"a token has one role or more of {', '.join(ROLES)}.")
    return tuple(role for role in ROLES if role in roles)
