"""Signing in and out: the one-time code of a link, or a token, is exchanged for the cookie of a session.

The code is in the fragment of the link, so that no log has it and prefetching the link does not use it up;
the page posts it. A session is stored in the database: it ends there, with its token, or at sign-out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from onward.clock import new_secret
from onward.errors import InvalidInput
from onward.operations.local.access import Access
from onward.read.view import instant
from onward.server.body import read_body
from onward.server.place import ANYBODY, NOBODY, Asked, Mounted, Place
from onward.server.problems import Problem
from onward.version import VERSION

if TYPE_CHECKING:
    from onward.server.context import Context
    from onward.server.credentials import Credentials
    from onward.server.hosts import Hosts
    from onward.server.rates import Rate
    from onward.server.settings import ServeSettings
    from onward.store.port.principals import Principal

JSON = "application/json"
SIGN_IN, SIGN_OUT = "session.sign_in", "session.sign_out"
"""What the audit calls them."""


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a sign-in: the code of a link, or a token."""

    code: str | None = None
    token: str | None = None


def cookie_name(settings: ServeSettings) -> str:
    """The port is in it, because cookies are shared by all ports of a host."""
    return f"onward_{settings.port}"


def places(context: Context) -> list[Mounted]:
    """The addresses to sign in and out, and to show who is signed in."""
    return [
        Place("POST", "/api/session", NOBODY, sign_in),
        Place("GET", "/api/session", ANYBODY, show),
        Place("DELETE", "/api/session", ANYBODY, sign_out),
    ]


async def sign_in(asked: Asked) -> Response:
    """Open a session with a code or a token."""
    given = msgspec.json.decode(await read_body(asked) or b"{}", type=SignIn)
    if (given.code is None) == (given.token is None):
        raise InvalidInput("send either a code or a token.")
    context, credentials = asked.context, _credentials(asked)
    access = access_of(context)
    if given.code is not None:
        token = await access.redeem(await credentials.find(given.code, "code", asked.address))
        if token is None or not credentials.is_good(token):
            raise Problem(
                401, "bad_credential", "this link was already used, or has expired; print a new one."
            )
    else:
        assert given.token is not None
        token = await credentials.find(given.token, "token", asked.address)
        creations: Rate = context.extra["creations"]
        creations.take(token.id)
    asked.principal = token
    await asked.note(SIGN_IN, "", None)
    session = await access.make_session(token, context.settings.session_hours)
    cookie = _cookie(asked, session.text, int(context.settings.session_hours * 3600))
    return Response(_shown(session.principal), 200, {"Set-Cookie": cookie}, JSON)


async def show(asked: Asked) -> Response:
    """Show who is signed in, with which roles."""
    return Response(_shown(asked.who), 200, media_type=JSON)


async def sign_out(asked: Asked) -> Response:
    """End the session; a token itself is not revoked."""
    if asked.who.kind == "session":
        context = asked.context
        await asked.note(SIGN_OUT, "", None)
        await context.store.principals.revoke(asked.who.id, at_us=context.clock.now_us())
        _credentials(asked).forget()
    return Response(b"{}", 200, {"Set-Cookie": _cookie(asked, "", 0)}, JSON)


def access_of(context: Context) -> Access:
    """What makes tokens, codes and sessions."""
    return Access(context.store, context.clock, context.ids, new_secret)


def _shown(principal: Principal) -> bytes:
    until_us = principal.expires_at_us
    return msgspec.json.encode(
        {
            "name": principal.name,
            "roles": list(principal.roles),
            "expires_at": None if until_us is None else instant(until_us),
            "version": VERSION,
        }
    )


def _cookie(asked: Asked, value: str, seconds: int) -> str:
    """The header that sets the cookie, or takes it away: with the same attributes."""
    hosts: Hosts = asked.context.extra["hosts"]
    is_secure = hosts.url.startswith("https:") or not asked.context.settings.is_loopback
    end = "; Secure" if is_secure else ""
    name, path = cookie_name(asked.context.settings), hosts.base or "/"
    return f"{name}={value}; Max-Age={seconds}; Path={path}; HttpOnly; SameSite=Strict{end}"


def _credentials(asked: Asked) -> Credentials:
    found: Credentials = asked.context.extra["credentials"]
    return found
