"""What a room registers: places, each a method and a path, with the required role and a function.

A place is called only after the door has accepted the request, and only for its role. `Asked` is one request
as a place receives it. A `Socket` is a place for WebSockets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from onward.operations.http import ADMIN, VIEWER
from onward.server.problems import Problem
from onward.store.port.principals import AuditRow

if TYPE_CHECKING:
    from onward.server.context import Context
    from onward.store.port.principals import Principal

BEHALF_CHARACTERS_MAX, SUBJECT_CHARACTERS_MAX = 100, 300
ANYBODY = ""
"""As a role: whoever has a credential."""
NOBODY = "nobody"
"""As a role: no credential is needed. The app takes it only for what `OPEN` in `app` lists."""

STREAM = "STREAM"
"""As the method of a place: GET that accepts `text/event-stream`."""
PAGE = "PAGE"
"""As the method of a place: GET by a browser of one of the page's own routes."""
SOCKET = "SOCKET"
"""As the method of a place: the handshake of a WebSocket."""


class Asked(msgspec.Struct, eq=False):
    """One request: what was sent, by whom, and the values in its path.

    `principal` is None where none is needed. `address` is the client's, behind a known proxy too. `id` names
    the request in the log, and in the problem that a client sees.
    """

    context: Context
    http: Request
    principal: Principal | None
    address: str
    path: Mapping[str, str]
    id: str
    noted: int | None = None
    """The row of the audit that this request has, once it changes something."""
    is_repeat: bool = False
    """Whether an earlier request under the same key did it."""

    @property
    def who(self) -> Principal:
        """The principal, where one is required."""
        assert self.principal is not None
        return self.principal

    @property
    def by(self) -> str:
        """The sender of the request, for logs."""
        return f"token:{self.who.name}"

    @property
    def owner(self) -> str:
        """The owner of idempotency keys: the token, also for sessions that were opened with it."""
        return self.who.token or self.who.id

    async def note(self, operation: str, subject: str, key: str | None) -> None:
        """Write a change to the audit before it is made; the door adds the result."""
        if self.noted is not None:
            return
        behalf = self.http.headers.get("onward-on-behalf-of")
        row = AuditRow(
            at_us=self.context.clock.now_us(),
            by=self.by,
            principal=self.who.id,
            address=self.address,
            operation=operation,
            subject=subject[:SUBJECT_CHARACTERS_MAX],
            key=key,
            on_behalf_of=None if behalf is None else behalf[:BEHALF_CHARACTERS_MAX],
        )
        self.noted = await self.context.store.audit.begin(row)

    async def complete(self, code: int) -> None:
        """Write the result to the audit."""
        if self.noted is not None:
            audit, now_us = self.context.store.audit, self.context.clock.now_us()
            await audit.finish(self.noted, code=code, at_us=now_us)


Answer = Callable[[Asked], Awaitable[Response]]


class Place(msgspec.Struct, frozen=True, eq=False):
    """A method and a path with its function. In `path`, `{name}` matches any one segment.

    `is_new`: it lets work begin, and is refused while the server drains.
    """

    method: str
    path: str
    role: str
    answer: Answer
    is_new: bool = False


Serve = Callable[[Asked, WebSocket], Awaitable[None]]


class Socket(msgspec.Struct, frozen=True, eq=False):
    """Where WebSockets are served; `serve` accepts the connection and returns when it is over.

    The request of `Asked` is that of the handshake.
    """

    path: str
    role: str
    serve: Serve


Mounted = Place | Socket


def has_role(principal: Principal, role: str) -> bool:
    """Whether a principal has a role: every role includes `viewer`, and `admin` includes all."""
    return role in (ANYBODY, VIEWER) or role in principal.roles or ADMIN in principal.roles


def check_role(principal: Principal, role: str, *, why: str = "this") -> None:
    """Reject a request without the role."""
    if not has_role(principal, role):
        raise Problem(
            403,
            "wrong_role",
            f"{why} needs the role {role}; {principal.name} has {', '.join(principal.roles)}.",
            details={"role": role, "roles": list(principal.roles)},
        )
