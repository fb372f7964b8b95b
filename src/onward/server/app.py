"""The application: one door, and behind it the places of all rooms.

    context = Context(operations=…, reader=…, store=…, …)
    app = make_app(context, hosts)                # with ROOMS
    app = make_app(context, hosts, (*ROOMS, my_room.places))

A room is a function `places(context)` that returns `Place`s and `Socket`s; to add one, write it and add it
to `ROOMS`. A stream at the address of a route is a `Place` at the same path with the method `STREAM`.

The door checks the address and the origin of a request first, then its credential and rate, and only then
its path: without a credential nothing is routed except what `OPEN` lists. Then the role is checked, and the
place is called. Any exception becomes a problem, and every reply gets the same headers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketState

from onward.errors import InvalidInput, OnwardError, StoreError
from onward.server import api, pages, sessions
from onward.server.context import Context
from onward.server.credentials import Credentials
from onward.server.documents import agent_paths, pipeline_paths, sockets, workflow_paths
from onward.server.feeds import room
from onward.server.hosts import Hosts
from onward.server.place import NOBODY, PAGE, SOCKET, STREAM, Asked, Mounted, Place, Socket, check_role
from onward.server.problems import INTERNAL, Problem, problem_of, problem_reply
from onward.server.rates import Rate
from onward.store.port.principals import Principal

log = logging.getLogger("onward.server")

Room = Callable[[Context], Sequence[Mounted]]
DOCUMENTS: tuple[Room, ...] = (
    agent_paths.places,
    pipeline_paths.places,
    workflow_paths.places,
    sockets.places,
)
ROOMS: tuple[Room, ...] = (api.places, room.places, sessions.places, pages.places, *DOCUMENTS)

EVENT_STREAM = "text/event-stream"
FAULT_S = 60.0
"""How often the log says that the database cannot be used."""

OPEN = frozenset({("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/favicon.svg"), ("POST", "/api/session")})
"""What needs no credential, compared whole; it holds no data."""
SHELL = frozenset({"/", "/sign-in", "/gates", "/workers", "/limits", "/runs", "/chats", "/pipelines"})
"""The page's own routes, which are open as well, and to which another site may link."""
SHELL_BELOW = ("/runs/", "/chats/", "/pipelines/")
ASSETS = "/assets/"
PROGRAMS_TOO = "/pipelines"
"""Programs ask for this as well, with a credential; a browser says that it accepts HTML."""

HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; connect-src 'self'; "
        b"img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
        b"require-trusted-types-for 'script'; trusted-types dompurify",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"onward-api", b"1"),
)


def make_app(context: Context, hosts: Hosts, rooms: Sequence[Room] = ROOMS) -> App:
    """The application of one server, with the places of these rooms."""
    return App(context, hosts, [place for room in rooms for place in room(context)])


class App:
    """An ASGI application. `mounted` has all its places."""

    def __init__(self, context: Context, hosts: Hosts, mounted: Sequence[Mounted]) -> None:
        self.mounted = tuple(mounted)
        self._context, self._hosts = context, hosts
        settings, clock = context.settings, context.clock
        self.credentials = Credentials(
            context.store.principals,
            clock,
            cookie=sessions.cookie_name(settings),
            failures=settings.failures,
        )
        self._rate = Rate(settings.requests, settings.burst, clock)
        self._creations = Rate(settings.creations, max(1.0, settings.creations), clock)
        self._noted_s: dict[type[StoreError], float] = {}
        self._places = _Tree()
        for place in mounted:
            self._places.add(place)
        context.extra["credentials"], context.extra["hosts"] = self.credentials, hosts
        context.extra["mounted"], context.extra["creations"] = self.mounted, self._creations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or serve one WebSocket."""
        if scope["type"] == "http":
            await (await self._replied(scope, receive))(scope, receive, _with_headers(send))
        elif scope["type"] == "websocket":
            await self._serve(scope, receive, _with_headers(send))

    async def _replied(self, scope: Scope, receive: Receive) -> Response:
        id = self._request_id()
        try:
            _check_framing(scope["headers"])
            return await self._answered(scope, receive, id)
        except Exception as error:
            return self._refusal(error, id, scope)

    def _refusal(self, error: Exception, id: str, scope: Scope) -> Response:
        """What is sent instead of a reply."""
        problem = problem_for(error)
        if problem is INTERNAL:
            log.error("request %s: %s %s failed", id, scope.get("method"), scope["path"], exc_info=error)
        elif isinstance(error, StoreError):
            self._note_fault(error, id)
        return problem_reply(problem, id)

    def _note_fault(self, error: StoreError, id: str) -> None:
        """Log what is wrong with the database; replies say little, and there are many."""
        now_s, kind = self._context.clock.awake_s(), type(error)
        if now_s - self._noted_s.get(kind, -FAULT_S) >= FAULT_S:
            self._noted_s[kind] = now_s
            log.warning("request %s and others are refused: %s", id, error)

    async def _answered(self, scope: Scope, receive: Receive, id: str) -> Response:
        headers, method, path = scope["headers"], scope["method"], scope["path"]
        accept = _accepted(headers)
        if method == "HEAD" and _openness("GET", path, accept)[0]:
            method = "GET"  # as load balancers and link checkers ask; the protocol sends no body
        is_open, is_linked = _openness(method, path, accept)
        self._hosts.check(headers, is_navigation_allowed=is_linked)
        address = self._address(scope)
        principal = None if is_open else await self._who(headers, address)
        if is_linked:
            method, path = PAGE, "/"
        place, in_path = self._places.find(method, path, is_stream=EVENT_STREAM in accept)
        assert isinstance(place, Place)
        if principal is not None:
            check_role(principal, place.role)
            if place.is_new:
                self._creations.take(principal.id)
        elif place.role != NOBODY:
            raise Problem(401, "no_credential", "this request needs a token.")
        if place.is_new and self._context.life.is_draining:
            raise _draining()
        asked = Asked(self._context, Request(scope, receive), principal, address, in_path, id)
        return await self._noted(place, asked)

    async def _noted(self, place: Place, asked: Asked) -> Response:
        """The reply of a place; what it changed is completed in the audit with the code of the reply."""
        try:
            response = await place.answer(asked)
        except Exception as error:
            await _complete(asked, problem_for(error).status)
            raise
        await _complete(asked, response.status_code)
        if asked.is_repeat:
            response.headers["Idempotency-Replayed"] = "true"
        return response

    async def _who(self, headers: Sequence[tuple[bytes, bytes]], address: str) -> Principal:
        principal = await self.credentials.of(headers, address)
        self._rate.take(principal.token or principal.id)
        return principal

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket, after the same door; a refused one is never accepted."""
        id, socket = self._request_id(), WebSocket(scope, receive, send)
        try:
            self._hosts.check(scope["headers"], is_navigation_allowed=False)
            address = self._address(scope)
            principal = await self._who(scope["headers"], address)
            place, in_path = self._places.find(SOCKET, scope["path"])
            check_role(principal, place.role)
            if self._context.life.is_draining:
                raise _draining()
            assert isinstance(place, Socket)
            request = Request({**scope, "type": "http", "method": "GET"})
            await place.serve(Asked(self._context, request, principal, address, in_path, id), socket)
        except Exception as error:
            if socket.application_state is not WebSocketState.CONNECTING:
                raise
            await socket.send_denial_response(self._refusal(error, id, scope))

    def _address(self, scope: Scope) -> str:
        """The address of the client; that which a known proxy names, if it is one."""
        client = scope.get("client")
        address = client[0] if client else ""
        proxies = self._context.settings.proxies
        if address in proxies:
            told = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
            for one in reversed(b",".join(told).decode("latin-1").split(",")):
                if one.strip() and one.strip() not in proxies:
                    return one.strip()[:64]
        return address

    def _request_id(self) -> str:
        return f"r-{self._context.ids.unique()[:10]}"


async def _complete(asked: Asked, code: int) -> None:
    """Note in the audit what came of a change. If that cannot be written, the reply is sent all the same: it
    says what was done, and a refusal in its place would have it done again."""
    try:
        await asked.complete(code)
    except StoreError as error:
        log.warning(
            "request %s: its result could not be written to the audit (%d): %s", asked.id, code, error
        )


def problem_for(error: Exception) -> Problem:
    """The problem for an error."""
    match error:
        case Problem():
            return error
        case OnwardError():
            return problem_of(error)
        case msgspec.DecodeError() if not isinstance(error, msgspec.ValidationError):
            return Problem(400, "bad_request", "the body is not JSON.")
        case msgspec.ValidationError():
            return problem_of(InvalidInput(f"{error}."))
        case ClientDisconnect():  # nobody reads it
            return Problem(400, "bad_request", "the request ended before its body.")
        case RecursionError() | UnicodeError():
            return problem_of(InvalidInput("the request is invalid."))
    return INTERNAL


def _check_framing(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse a body that has two lengths: a proxy before us may believe the other one, and take a part of the
    body for its next client's request."""
    names = {name for name, _ in headers}
    if b"transfer-encoding" in names and b"content-length" in names:
        detail = "the body has two lengths; send either Content-Length or Transfer-Encoding."
        raise Problem(400, "bad_request", detail, headers={"Connection": "close"})


def _draining() -> Problem:
    headers = {"Retry-After": "5"}
    return Problem(503, "draining", "this server is stopping and accepts no new work.", headers=headers)


def _accepted(headers: Sequence[tuple[bytes, bytes]]) -> str:
    return ",".join(value.decode("latin-1").lower() for name, value in headers if name == b"accept")


def is_shell(path: str, accept: str) -> bool:
    """Whether a GET of this path asks for the page."""
    is_ours = path in SHELL or path.startswith(SHELL_BELOW)
    return is_ours and (not path.startswith(PROGRAMS_TOO) or "text/html" in accept)


def _openness(method: str, path: str, accept: str) -> tuple[bool, bool]:
    """Whether a request needs no credential, and whether another site may link to it."""
    is_linked = method == "GET" and is_shell(path, accept)
    is_asset = method == "GET" and path.startswith(ASSETS)
    return is_linked or is_asset or (method, path) in OPEN, is_linked


def _with_headers(send: Send) -> Send:
    async def sending(message: Any) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            headers = message["headers"]
            named = {name for name, _ in headers}
            headers.extend(one for one in HEADERS if one[0] not in named)
            if b"cache-control" not in named:
                headers.append((b"cache-control", b"no-store"))
        await send(message)

    return sending


class _Tree:
    """Finds the place of a path, segment by segment; a word comes before a `{name}`."""

    def __init__(self) -> None:
        self._below: dict[str, _Tree] = {}
        self._here: dict[str, tuple[Mounted, tuple[str, ...]]] = {}

    def add(self, place: Mounted) -> None:
        """Add a place; two with the same method and path are an error."""
        node, names = self, list[str]()
        for segment in place.path.split("/")[1:]:
            if segment.startswith("{"):
                names.append(segment[1:-1])
                segment = "{}"
            node = node._below.setdefault(segment, _Tree())
        method = SOCKET if isinstance(place, Socket) else place.method
        assert method not in node._here, f"{method} {place.path} has two places"
        node._here[method] = place, tuple(names)

    def find(self, method: str, path: str, *, is_stream: bool = False) -> tuple[Mounted, dict[str, str]]:
        """The place, and the values in the path; a Problem if there is none."""
        node, values = self._found(path.split("/")[1:])
        if node is None or not node._here:
            raise Problem(404, "not_found", "there is no resource at this address.")
        if is_stream and method == "GET" and STREAM in node._here:
            method = STREAM
        if method not in node._here:
            known = sorted(node._here.keys() - {STREAM, PAGE, SOCKET})
            headers = {"Allow": ", ".join(known)} if known else {}
            what = "a WebSocket" if method == SOCKET else method[:20]
            raise Problem(405, "method", f"{what} is not allowed here.", headers=headers)
        place, names = node._here[method]
        return place, dict(zip(names, values, strict=True))

    def _found(self, segments: list[str]) -> tuple[_Tree | None, list[str]]:
        """A word that leads nowhere does not hide a name that leads somewhere."""
        if not segments:
            return self, []
        first, rest = segments[0], segments[1:]
        if first != "{}" and (below := self._below.get(first)) is not None:
            found, values = below._found(rest)
            if found is not None and found._here:
                return found, values
        if first and (named := self._below.get("{}")) is not None:
            found, values = named._found(rest)
            return found, [first, *values]
        return None, []
