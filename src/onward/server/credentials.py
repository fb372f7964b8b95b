"""Authentication: a token in `Authorization`, or the cookie of a session; never both, and nowhere else.

A token reads `onw_<id>_<secret>`; only a hash of the secret is stored. Results are cached for a few seconds,
so a revoked token is accepted for that long at most.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie

import msgspec

from onward.clock import Clock
from onward.operations.local.access import TOKEN, chosen_id
from onward.server.problems import Problem
from onward.server.rates import Rate
from onward.store.port.principals import Principal, Principals, secret_hash

PAIR = re.compile(r"([a-z0-9-]{1,40})_([A-Za-z0-9_-]{43})")
BEARER = re.compile(rb"[Bb]earer +([!-~]{1,400})")
REMEMBERED_S, REMEMBERED_MAX = 5.0, 1_000
USED_EVERY_S = 60.0


class _Known(msgspec.Struct):
    principal: Principal
    until_s: float


class Credentials:
    """Finds the principal of a request."""

    def __init__(self, principals: Principals, clock: Clock, *, cookie: str, failures: int) -> None:
        self._principals, self._clock, self._cookie = principals, clock, cookie
        self._failures = Rate(failures / 60, failures, clock)
        self._known: dict[bytes, _Known] = {}
        self._used: dict[str, float] = {}

    async def of(self, headers: Sequence[tuple[bytes, bytes]], address: str) -> Principal:
        """The principal that sent these headers; a Problem if there is none."""
        bearers = [value for name, value in headers if name == b"authorization"]
        session = self.session_in(headers)
        if len(bearers) + (session is not None) > 1:
            raise self._refused("the request has more than one credential; send one.", address)
        if session is not None:
            return await self.find(session, "session", address)
        if not bearers:
            raise _unauthorized(
                "no_credential", "this request needs a token; send it as `Authorization: Bearer`."
            )
        found = BEARER.fullmatch(bearers[0])
        if found is None:
            raise self._refused("Authorization has no Bearer token.", address)
        return await self.find(found[1].decode(), "token", address)

    def session_in(self, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
        """The cookie of our sessions, if it was sent."""
        for name, value in headers:
            if name == b"cookie" and self._cookie.encode() in value:
                cookies: SimpleCookie = SimpleCookie()
                try:
                    cookies.load(value.decode("latin-1"))
                except CookieError:
                    return ""
                if self._cookie in cookies:
                    return cookies[self._cookie].value
        return None

    async def find(self, given: str, kind: str, address: str) -> Principal:
        """The principal with this secret."""
        digest = secret_hash(f"{kind} {given}")
        known = self._known.get(digest)
        if known is not None and known.until_s > self._clock.awake_s():
            principal: Principal | None = known.principal
        else:
            # Who guesses has to wait. Who was let in before does not wait for them, nor does who holds one of
            # our secrets: nobody guesses 256 random bits. A wrong one counts, and waits as well.
            if known is None and not is_random(given, kind) and self._failures.wait_s(address) > 0:
                self._failures.take(address)
            principal = await self._found(given, kind)
        if principal is None or not self.is_good(principal):
            self._known.pop(digest, None)
            raise self._refused("this credential is unknown, expired or revoked.", address)
        if kind != "code" and (known is None or known.principal is not principal):
            self._remember(digest, principal)
        await self._note_use(principal)
        return principal

    def forget(self) -> None:
        """Clear the cache, because a credential was revoked here."""
        for known in self._known.values():
            known.until_s = 0.0

    async def is_still_good(self, principal: Principal) -> bool:
        """Whether an accepted principal is still valid; for streams, which check from time to time."""
        found = await self._principals.find(principal.id)
        return found is not None and self.is_good(found)

    def is_good(self, principal: Principal) -> bool:
        """Whether it is neither revoked nor expired."""
        return principal.is_valid(self._clock.now_us())

    async def _found(self, given: str, kind: str) -> Principal | None:
        id, secret = parts_of(given, kind)
        principal = await self._principals.find(id)
        stored = principal.secret_hash if principal is not None else bytes(32)
        is_right = compare_digest(stored, secret_hash(secret))
        return principal if is_right and principal is not None and principal.kind == kind else None

    def _remember(self, digest: bytes, principal: Principal) -> None:
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        self._known[digest] = _Known(principal, self._clock.awake_s() + REMEMBERED_S)

    async def _note_use(self, principal: Principal) -> None:
        """Write down the last use, at most once a minute."""
        now_s = self._clock.awake_s()
        if now_s - self._used.get(principal.id, -USED_EVERY_S) >= USED_EVERY_S:
            if len(self._used) >= REMEMBERED_MAX:
                self._used.clear()
            self._used[principal.id] = now_s
            await self._principals.used(principal.id, at_us=self._clock.now_us())

    def _refused(self, detail: str, address: str) -> Problem:
        """Count the failure of an address, which then has to wait."""
        self._failures.take(address)
        return _unauthorized("bad_credential", detail)


def is_random(given: str, kind: str) -> bool:
    """Whether a credential has the form of a generated one, and not of one that a person chose."""
    return (TOKEN if kind == "token" else PAIR).fullmatch(given) is not None


def parts_of(given: str, kind: str) -> tuple[str, str]:
    """The id and the secret in a credential; a token that an operator chose is all secret."""
    found = (TOKEN if kind == "token" else PAIR).fullmatch(given)
    return (found[1], found[2]) if found else (chosen_id(given), given)


def _unauthorized(code: str, detail: str) -> Problem:
    return Problem(401, code, detail, headers={"WWW-Authenticate": "Bearer"})
