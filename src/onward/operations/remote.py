"""The operations of a server, asked over HTTP: the client behind `--server`.

`RemoteOperations` answers like `LocalOperations`, from the table of routes: it sends each field of a request
where its row says, and turns problems back into the exceptions that they were. A request that changes
something has an idempotency key, so one whose reply was lost is sent again and counts once.

Runs are named to a server by their whole ids; other names are looked up first. What a server does not have,
such as the log with the dialect's names, is refused in one sentence.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from onward import errors
from onward.clock import Clock, Ids
from onward.errors import InvalidInput, Refused, RunNotFound, StoreUnavailable
from onward.model.ids import EXACT
from onward.operations import requests
from onward.operations.http import LIMIT_MAX, Route, route_of
from onward.operations.protocol import LookOperations, Operations

if TYPE_CHECKING:
    from onward.operations.here.requests import ReadLogs
    from onward.replies.steps import LogPiece

API = "1"
"""The version of the interface that this client speaks."""
TRIES = 3
PAUSE_S = 0.3
TIMEOUT = aiohttp.ClientTimeout(total=60, connect=10)
STREAMING = aiohttp.ClientTimeout(total=None, connect=10, sock_read=45)
"""A server sends something at least every 15 s."""
IGNORED = frozenset({"completed", "older", "follow"})
"""Fields that HTTP does not have, and without which a reply is only shorter, or comes in another way."""
TOKEN_ADVICE = (
    "Set ONWARD_TOKEN, or name a profile that has a token; on the server's machine `onward tokens add` "
    "creates one."
)
PAGES = {
    "look.read_events": "events",
    "look.list_checkpoints": "checkpoints",
    "messages.read_messages": "pieces",
}


class Server(msgspec.Struct, frozen=True):
    """Where a server is, and the token that it is asked with; empty if none is known."""

    url: str
    token: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InvalidInput(
                f"the server {self.url[:80]!r} is not an address; write one such as http://127.0.0.1:8765."
            )


class ServerNotRunning(StoreUnavailable):
    """No server answers at the address."""

    def __init__(self, url: str, why: str) -> None:
        self.url, self.why = url, why
        super().__init__(
            f"Server not running: nothing responds at {url} ({why}). Start it with `onward serve`."
        )


@asynccontextmanager
async def connected(server: Server, clock: Clock, ids: Ids) -> AsyncIterator[Operations]:
    """The operations of a server, while the block lasts."""
    headers = {"Authorization": f"Bearer {server.token}"} if server.token else {}
    async with aiohttp.ClientSession(
        headers={**headers, "Accept": "application/json"},
        timeout=TIMEOUT,
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        yield RemoteOperations(Connection(server.url.rstrip("/"), session, clock, ids)).typed()


class Connection:
    """Sends requests to one server, and reads what it replies."""

    def __init__(self, url: str, session: aiohttp.ClientSession, clock: Clock, ids: Ids) -> None:
        self._url, self._session, self._clock, self._ids = url, session, clock, ids
        self._exact: dict[str, str] = {}

    async def ask(self, route: Route, request: requests.Request, **more: str) -> Any:
        """The reply of the operation of a route. A run that is named in another way is looked up."""
        if "run" not in route.in_path:
            return await self._asked(route, request, more)
        wanted: str = getattr(request, "run")  # noqa: B009 - its type is that of the route
        known = msgspec.structs.replace(request, run=self._exact.get(wanted, wanted.removeprefix(EXACT)))
        try:
            return await self._asked(route, known, more)
        except RunNotFound:
            if wanted in self._exact or wanted.startswith(EXACT):
                raise
        return await self._asked(route, msgspec.structs.replace(request, run=await self.exact(wanted)), more)

    async def _asked(self, route: Route, request: requests.Request, more: Mapping[str, str]) -> Any:
        path, query, body = _parts(route, request)
        headers = {} if route.is_read else self._headers(route, request)
        return await self.send(route.method, path, [*query, *more.items()], body, headers)

    async def send(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """What the server replies, decoded. A lost reply is asked for again: the key makes it count once."""
        for tries_left in range(TRIES - 1, -1, -1):
            try:
                return await self._sent(method, path, query, body, headers or {})
            except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
                raise ServerNotRunning(self._url, _reason(error)) from None
            except (aiohttp.ClientError, TimeoutError) as error:
                if not tries_left:
                    raise ServerNotRunning(self._url, _reason(error)) from None
                await self._clock.wait_s(PAUSE_S, asyncio.Event())
        raise AssertionError("a try returns or raises")

    async def _sent(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
    ) -> Any:
        told = {} if body is None else {"Content-Type": "application/json"}
        data = None if body is None else msgspec.json.encode(body)
        async with self._session.request(
            method,
            self._url + path,
            params=query,
            data=data,
            headers={**headers, **told},
            allow_redirects=False,
        ) as response:
            return _decoded(response, await response.read())

    @asynccontextmanager
    async def stream(self, path: str, query: list[tuple[str, str]]) -> AsyncIterator[AsyncIterator[_Frame]]:
        """The frames of an event stream, until it ends or the block does."""
        headers = {"Accept": "text/event-stream"}
        try:
            async with self._session.get(
                self._url + path, params=query, headers=headers, timeout=STREAMING, allow_redirects=False
            ) as response:
                if response.status not in (200, 204):
                    _decoded(response, await response.read())
                yield _frames(response) if response.status == 200 else _nothing()
        except aiohttp.ClientConnectorError as error:
            raise ServerNotRunning(self._url, _reason(error)) from None

    def _headers(self, route: Route, request: requests.Request) -> dict[str, str]:
        found = {}
        if route.method == "POST":
            found["Idempotency-Key"] = getattr(request, "key", None) or self._ids.unique()
        if getattr(request, "if_head", None) is not None:
            found["If-Match"] = f'"{getattr(request, "if_head")}"'  # noqa: B009 - only some requests have it
        return found

    async def exact(self, wanted: str) -> str:
        """The whole id of the run that a name means."""
        if wanted not in self._exact:
            found = (await self.send("GET", "/api/runs", [("find", wanted)]))["runs"]
            whole = [run["id"] for run in found if wanted in (run["id"], run["display_id"])]
            ids = whole[:1] or [run["id"] for run in found]
            if not ids:
                raise RunNotFound(wanted)
            if len(ids) > 1:
                raise errors.AmbiguousRun(wanted, ids)
            self._exact[wanted] = ids[0]
        return self._exact[wanted]


class RemoteOperations:
    """Every operation of a server. Where HTTP has no route for one, asking it says so."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def typed(self) -> Operations:
        """Itself: its groups find the methods of the protocol in the table of routes."""
        return cast("Operations", self)

    @property
    def lists(self) -> Group:
        return Group(
            "lists",
            self._connection,
            {"list_runs": self._list_runs, "list_gates": self._list_gates, **_OF_STATE},
        )

    @property
    def look(self) -> Group:
        return Group(
            "look", self._connection, {"read_events": self._read_events, "list_calls": self._list_calls}
        )

    @property
    def messages(self) -> Group:
        return Group("messages", self._connection, {"read_messages": self._read_messages})

    def __getattr__(self, name: str) -> Group:
        if name.startswith("_") or name not in dir(Operations):
            raise AttributeError(name)
        return Group(name, self._connection, {})

    async def _list_runs(self, request: requests.ListRuns) -> Any:
        """The list, or the run that it names alone."""
        if request.run is not None:
            run = await self._connection.ask(route_of("look.get_run"), requests.GetRun(run=request.run))
            return {"runs": [run], "older": 0, "cursor": None}
        return {"older": 0, **await self._listed("lists.list_runs", request, "runs")}

    async def _list_gates(self, request: requests.ListGates) -> Any:
        return await self._listed("lists.list_gates", request, "gates")

    async def _list_calls(self, request: requests.ListCalls) -> Any:
        """As many calls as are asked for; a page begins after as many as there were before."""
        left, told, found = request.limit, dict[str, Any](), list[Any]()
        while left > 0:
            after, limit = request.after + len(found), min(left, LIMIT_MAX)
            page = msgspec.structs.replace(request, after=after, limit=limit)
            told = await self._connection.ask(route_of("look.list_calls"), page)
            found += told["calls"]
            left = left - limit if len(told["calls"]) == limit else 0
        return {**told, "calls": found}

    async def _listed(self, asks: str, request: Any, what: str) -> Any:
        """As much of a list as is asked for, in pages that a server gives."""
        left, cursor, found = request.limit, request.cursor, list[Any]()
        while True:
            page = msgspec.structs.replace(request, limit=min(left, LIMIT_MAX), cursor=cursor)
            told = await self._connection.ask(route_of(asks), page)
            found += told[what]
            left, cursor = left - len(told[what]), told["cursor"]
            if cursor is None or left <= 0:
                return {**told, what: found}

    def _read_events(
        self, request: requests.ReadEvents, *, stop: asyncio.Event | None = None
    ) -> AsyncGenerator[Any]:
        return self._told("look.read_events", request, "seq", request.follow, request.after, stop)

    def _read_messages(
        self, request: requests.ReadMessages, *, stop: asyncio.Event | None = None
    ) -> AsyncGenerator[Any]:
        return self._told("messages.read_messages", request, "position", request.follow, request.after, stop)

    async def _told(
        self,
        asks: str,
        request: requests.Request,
        place: str,
        follows: bool,
        after: int,
        stop: asyncio.Event | None,
    ) -> AsyncGenerator[Any]:
        """What a stream tells, each once: page by page, and then, to follow it, as it comes.

        A connection that is lost is opened again after the last that came.
        """
        route, connection = route_of(asks), self._connection
        if not follows:
            async for one in pages(connection, route, request):
                yield one
            return
        name = "run" if "run" in route.in_path else "of"
        exact = await self._exactly(getattr(request, name))
        path, query, _ = _parts(route, msgspec.structs.replace(request, after=0, **{name: exact}))
        lost = 0
        while stop is None or not stop.is_set():
            try:
                async with connection.stream(path, [*query, ("after", str(after))]) as frames:
                    async for frame in _until(frames, stop):
                        lost = 0
                        if frame.name in ("end", "denied"):
                            return
                        if frame.name in ("bye", "cut"):
                            break
                        one = msgspec.json.decode(frame.data)
                        after = max(after, one[place])
                        yield one
                    else:
                        return
            except (aiohttp.ClientError, TimeoutError) as error:
                lost += 1
                if lost > TRIES:
                    raise ServerNotRunning(connection._url, _reason(error)) from None
            await connection._clock.wait_s(PAUSE_S, stop or asyncio.Event())

    async def _exactly(self, name: str) -> str:
        """A run by its whole id; what is no run may be a chat."""
        if name.startswith(EXACT):
            return name.removeprefix(EXACT)
        try:
            run = await self._connection.ask(route_of("look.get_run"), requests.GetRun(run=name))
        except RunNotFound:
            return name
        return str(run["id"])


class RemoteLogs:
    """Reads the end of what was printed on a server's machine. `tell` is told if there was more before it."""

    def __init__(self, look: LookOperations, tell: Callable[[str], None]) -> None:
        self._look, self._tell = look, tell

    async def read_logs(
        self, request: ReadLogs, *, stop: asyncio.Event | None = None
    ) -> AsyncGenerator[LogPiece]:
        """The pieces of text, in the order of their steps."""
        if request.follow:
            raise InvalidInput("a server sends only the output so far; leave out --follow.")
        asked = {name: getattr(request, name) for name in requests.ReadPrinted.__struct_fields__}
        found = await self._look.read_printed(requests.ReadPrinted(**asked))
        if found["is_cut"]:
            self._tell("only the end is shown; `onward logs` on the server's machine prints all of it")
        for piece in found["pieces"]:
            yield piece


class Group:
    """The methods of one group of operations, each from its route."""

    def __init__(self, name: str, connection: Connection, own: Mapping[str, Callable[..., Any]]) -> None:
        self._name, self._connection, self._own = name, connection, own

    def __getattr__(self, method: str) -> Callable[..., Any]:
        own = self._own.get(method)
        if own is not None:
            return own.__get__(self) if method in _OF_STATE else own
        try:
            route = route_of(f"{self._name}.{method}")
        except StopIteration:
            raise InvalidInput(
                f"a server cannot do this ({method.replace('_', ' ')}); run the command where the database "
                "is, without --server."
            ) from None
        if route.pages:
            return lambda request: pages(self._connection, route, request)
        return lambda request: self._connection.ask(route, request)

    async def state_of(self, request: requests.Request) -> Any:
        """A run in full."""
        run: str = getattr(request, "run")  # noqa: B009 - every request that asks for this has it
        return await self._connection.ask(route_of("look.get_run"), requests.GetRun(run=run))


async def _run_gates(self: Group, request: requests.RunGates) -> Any:
    return [gate for gate in (await self.state_of(request))["gates"] if gate["decided"] is None]


async def _run_limit(self: Group, request: requests.GetRun) -> Any:
    return (await self.state_of(request))["limit"]


_OF_STATE: Mapping[str, Callable[..., Any]] = {"run_gates": _run_gates, "run_limit": _run_limit}
"""What the whole state of a run has, and no route alone."""


async def pages(connection: Connection, route: Route, request: requests.Request) -> AsyncGenerator[Any]:
    """All that an operation yields, a page after the other."""
    assert route.pages is not None
    after = int(getattr(request, "after", 0))
    has_after = "after" in type(request).__struct_fields__
    while True:
        asked = msgspec.structs.replace(request, after=after) if has_after else request
        page = await connection.ask(route, asked, limit=str(LIMIT_MAX))
        for one in page[PAGES[route.asks]]:
            yield one
        if page["cursor"] is None or not has_after:
            return
        after = int(page["cursor"])


def _parts(
    route: Route, request: requests.Request
) -> tuple[str, list[tuple[str, str]], dict[str, Any] | None]:
    """The path, the query and the body that ask a request."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(type(request))}
    defaults |= route.defaults  # what a server takes for a field that is not sent
    given = {name: getattr(request, name) for name in request.__struct_fields__}
    changed = {name: value for name, value in given.items() if value != defaults[name]}
    if missing := [
        name for name in (*route.left_out, *route.local) if name in changed and name not in IGNORED
    ]:
        raise InvalidInput(
            f"{', '.join(name.replace('_', ' ') for name in missing)} cannot be sent to a server; leave it "
            "out, or run the command where the database is, without --server."
        )
    path = route.path
    for name in route.in_path:
        path = path.replace(f"{{{name}}}", quote(str(given[name]), safe=""))
    query = [
        (route.names.get(name, name), text)
        for name in route.in_query
        if name in changed
        for text in _texts(changed[name])
    ]
    body = {name: msgspec.to_builtins(changed[name]) for name in route.in_body if name in changed}
    return path, query, body if route.method in ("POST", "PUT") else None


def _texts(value: Any) -> list[str]:
    """A value as parameters of a query."""
    if isinstance(value, tuple):
        return [text for one in value for text in _texts(one)]
    plain = msgspec.to_builtins(value)
    return [plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()]


def _decoded(response: aiohttp.ClientResponse, body: bytes) -> Any:
    """A reply, or the exception that a problem was."""
    major = response.headers.get("Onward-Api", "")
    if major.partition(".")[0] != API:
        raise InvalidInput(
            f"{response.url.origin()} is not an Onward server that this version understands (Onward-Api "
            f"{major or 'is missing'}, not {API})."
        )
    try:
        told = msgspec.json.decode(body) if body else None
    except msgspec.DecodeError:
        raise StoreUnavailable(f"{response.url.origin()} sent a reply that is not JSON.") from None
    if response.status < 400:
        return told
    raise error_of(told if isinstance(told, dict) else {"code": "internal", "status": response.status})


def error_of(problem: Mapping[str, Any]) -> errors.OnwardError:
    """The exception that a problem was before it was sent."""
    code, detail = str(problem.get("code", "")), str(problem.get("detail", ""))
    advice, details = str(problem.get("advice", "")), problem.get("details") or {}
    kind = KINDS.get(code)
    if problem.get("status") == 503:
        kind = StoreUnavailable
    if code in ("no_credential", "bad_credential"):
        detail = f"{detail.rstrip('.')}. {TOKEN_ADVICE}"
    if kind is None or kind is Refused:
        return _plain(Refused(code, detail, details=details), advice)
    error = kind.__new__(kind)
    Exception.__init__(error, detail)
    return _plain(error, advice)


def _plain(error: errors.OnwardError, advice: str) -> errors.OnwardError:
    if advice:  # at a terminal, both are one text again
        error.message, error.advice = str(error), advice
        error.args = (errors.joined(error.message, advice),)
    return error


def _code_of(kind: type[errors.OnwardError]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


def _kinds(of: type[errors.OnwardError]) -> list[type[errors.OnwardError]]:
    return [of, *(kind for below in of.__subclasses__() for kind in _kinds(below))]


KINDS: Mapping[str, type[errors.OnwardError]] = {
    _code_of(kind): kind for kind in _kinds(errors.OnwardError) if kind.__module__ == errors.__name__
}
"""The class of an error, by its code."""


class _Frame(msgspec.Struct):
    name: str = "message"
    data: str = ""

    def take(self, line: str) -> Self:
        """Add a line of the stream."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self.name = value
        elif name == "data":
            self.data = f"{self.data}\n{value}" if self.data else value
        return self


async def _frames(response: aiohttp.ClientResponse) -> AsyncGenerator[_Frame]:
    """The frames of a stream; comments keep it open and are nothing."""
    frame, rest = _Frame(), b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for raw in lines:
            line = raw.decode("utf-8", "replace").removesuffix("\r")
            if line:
                frame.take(line)
                continue
            if frame.data or frame.name != "message":
                yield frame
            frame = _Frame()


async def _nothing() -> AsyncGenerator[_Frame]:
    return
    yield


async def _until(frames: AsyncIterator[_Frame], stop: asyncio.Event | None) -> AsyncGenerator[_Frame]:
    """Frames until there are no more, or `stop` is set."""
    stopping = asyncio.ensure_future((stop or asyncio.Event()).wait())
    try:
        while True:
            coming = asyncio.ensure_future(anext(frames, None))
            await asyncio.wait((coming, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                return
            if (frame := coming.result()) is None:
                return
            yield frame
    finally:
        stopping.cancel()


def _reason(error: BaseException) -> str:
    inner = getattr(error, "os_error", None)
    return (getattr(inner, "strerror", None) or str(error) or type(error).__name__).lower()[:200]
