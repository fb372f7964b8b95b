"""The operations, each at its route: decode the request, call the operation, and send its reply unchanged.

Other rooms, such as the documents' own paths, call operations through `decide` and `look`, too, so that roles
by field and the audit are the same for all. A request is decoded straight into structs built from the types
of the operations. Unknown fields and parameters are rejected, because a misspelt filter must not list
everything.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, get_origin
from urllib.parse import parse_qsl

import msgspec
from starlette.responses import Response

from onward.errors import InvalidInput, RunNotFound
from onward.model.ids import EXACT, RUN_ID_OWN, caller_key
from onward.operations.answers import answering
from onward.operations.http import APPROVER, LIMIT, LIMIT_MAX, ROUTES, Route, route_of
from onward.operations.requests import GetRun, Request
from onward.server.artifact import artifact_reply
from onward.server.body import read_body
from onward.server.picture import picture_reply, wants_picture
from onward.server.place import Asked, Place, check_role, has_role
from onward.server.problems import Problem
from onward.server.wait import until_still, wait_of

if TYPE_CHECKING:
    from onward.operations.protocol import Operations
    from onward.server.context import Context

JSON = "application/json"
NOT_GIVEN = msgspec.UNSET
RUN_SCOPE = "run/"
NO_HEAD = "If-Match is not supported here; leave it out."
PARAMETERS_MAX = 300


def places(context: Context) -> list[Place]:
    """Every route of the table."""
    return [ApiPlace(route).place() for route in ROUTES]


async def look(asked: Asked, asks: str, request: Request) -> Any:
    """Call a read-only operation and return its reply."""
    return await asked.context.reader.read(lambda operations: ask(operations, asks, request))


async def decide(asked: Asked, asks: str, request: Request, *, subject: str) -> Any:
    """Call an operation that changes something, after checking its fields and writing the audit."""
    route = route_of(asks)
    if "may_run_commands" in request.__struct_fields__:  # whichever room asks
        request = msgspec.structs.replace(request, may_run_commands=asked.context.settings.shell)
    if (
        head := head_of(asked)
    ) is not None:  # which room asks makes no difference to what its caller has seen
        if "if_head" not in request.__struct_fields__:
            raise InvalidInput(NO_HEAD)
        request = msgspec.structs.replace(request, if_head=head)
    check_fields(asked, route, request)
    await asked.note(asks, subject, getattr(request, "key", None) if "key" in route.of_caller else None)
    with answering() as answer:
        reply = await ask(asked.context.operations, asks, request)
    asked.is_repeat = answer.is_repeat
    return reply


async def ask(operations: Operations, asks: str, request: Request) -> Any:
    """Call an operation by its name."""
    group, _, name = asks.partition(".")
    return await getattr(getattr(operations, group), name)(request)


def check_fields(asked: Asked, route: Route, request: Request) -> None:
    """Reject fields that only an admin may send, unless the caller is one."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(type(request))}
    for name in route.admin:
        if getattr(request, name) != defaults[name]:
            check_role(asked.who, "admin", why=f"{name} of {route.operation}")


def of_caller(asked: Asked, route: Route) -> dict[str, Any]:
    """The fields of a request that come from the credential and the headers."""
    found, among = dict[str, Any](), route.of_caller
    if "by" in among:
        found["by"] = asked.by
    if "key" in among:
        found["key"] = key_of(asked)
    if "may_answer" in among:  # else a message would decide what its sender may not
        found["may_answer"] = has_role(asked.who, APPROVER)
    if route.is_read and head_of(asked) is not None:
        raise InvalidInput(NO_HEAD)
    return found


def key_of(asked: Asked) -> str | None:
    """The idempotency key with its owner: two callers never share a key."""
    given = asked.http.headers.getlist("idempotency-key")
    if not given:
        return None
    if len(given) > 1:
        raise InvalidInput("the request has more than one Idempotency-Key; send one.")
    return caller_key(asked.owner, given[0])


def head_of(asked: Asked) -> int | None:
    """The event that If-Match names."""
    given = asked.http.headers.get("if-match")
    if given is None:
        return None
    number = given.strip().removeprefix('"').removesuffix('"')
    if given.strip() != f'"{number}"' or not number.isdecimal() or not number.isascii() or len(number) > 18:
        raise InvalidInput('If-Match is not the ETag of a run, such as "55".')
    return int(number)


class ApiPlace:
    """One route: decodes its request and sends its reply."""

    def __init__(self, route: Route) -> None:
        self.route = route
        given = list(route.in_query)
        self.many = {
            route.names.get(one.name, one.name)
            for one in msgspec.structs.fields(route.request)
            if one.name in given and get_origin(one.type) is tuple
        }
        self.query = struct_of(route, given, "Query")
        self.body = struct_of(route, route.in_body, "Body") if route.method in ("POST", "PUT") else None
        self._decoder = None if self.body is None else msgspec.json.Decoder(self.body)
        self._parameters = {route.names.get(name, name) for name in given}
        if route.pages:
            self._parameters.add("limit")

    def place(self) -> Place:
        """Its place."""
        route = self.route
        return Place(route.method, route.path, route.role, self.answer, is_new=route.is_new)

    async def answer(self, asked: Asked) -> Response:
        """Call the operation and send its reply."""
        route, in_path = self.route, dict(asked.path)
        body = {} if self._decoder is None else self._decoded(await read_body(asked), asked)
        query = self._query(asked.http.scope["query_string"])
        limit = page_limit(query) if route.pages else LIMIT
        fields = exact(in_path) | of_caller(asked, route)
        fields |= exact(self._converted(query)) | body
        request = route.request(**fields)
        subject = " ".join((*in_path.values(), *_named(request, route)))
        if route.pages:
            return await self._page(asked, request, limit)
        seconds = wait_of(asked.http.headers.get("prefer")) if route.waits else None
        if route.is_read:
            if seconds is not None:
                await until_still(asked.context, in_path["run"], seconds)
            if route.is_bytes:
                return artifact_reply(await look(asked, route.asks, request), asked.http.headers.get("range"))
            if route.is_drawn and wants_picture(asked.http.headers.get("accept", "")):
                return picture_reply(await look(asked, route.asks, request))
            reader = asked.context.reader
            if route.is_small:
                found = await reader.glance(subject, lambda ops: self._looked(ops, request))
            else:
                found = await reader.read(lambda ops: self._looked(ops, request))
            return waited(found, seconds)
        reply = await decide(asked, route.asks, request, subject=subject)
        if seconds is not None:
            reply = await self._waited(asked, reply, seconds)
        return waited(self._reply(reply), seconds)

    async def _waited(self, asked: Asked, reply: Any, seconds: int) -> Any:
        """The reply with its run as it is when it stands still, or when time is over."""
        run = reply if "head" in reply else reply.get("run")
        if run is None:
            return reply
        await until_still(asked.context, run["id"], seconds)
        now = await look(asked, "look.get_run", GetRun(run=EXACT + run["id"]))
        return {**reply, **now} if run is reply else {**reply, "run": {**run, **now}}

    def _query(self, raw: bytes) -> dict[str, Any]:
        """The parameters as they are written: known ones alone, and once, but for lists."""
        found: dict[str, Any] = {}
        for name, value in parameters(raw):
            if name not in self._parameters:
                known = ", ".join(sorted(self._parameters)) or "none"
                raise InvalidInput(f"unknown parameter {name[:40]!r}; the parameters are {known}.")
            if name in self.many:
                found.setdefault(name, []).append(value)
            elif name in found:
                raise InvalidInput(f"the parameter {name!r} is given twice.")
            else:
                found[name] = value
        if "limit" in self._parameters and not route_limits(found):
            raise InvalidInput(f"limit is not a whole number from 1 to {LIMIT_MAX}.")
        return found

    def _converted(self, query: dict[str, Any]) -> dict[str, Any]:
        return given_of(msgspec.convert(query, self.query, strict=False))

    def _decoded(self, body: bytes, asked: Asked) -> dict[str, Any]:
        """The fields of the body, without those that were not given."""
        assert self._decoder is not None
        given = given_of(self._decoder.decode(body or b"{}"))
        if local := [name for name in self.route.local if name in given]:
            self._check_local(local, asked)
        return dict(self.route.defaults) | given

    def _check_local(self, given: list[str], asked: Asked) -> None:
        settings = asked.context.settings
        allowed = {"source", "file"} if settings.inline else set()
        if refused := [name for name in given if name not in allowed]:
            raise Problem(
                403,
                "not_over_http",
                f"{', '.join(refused)} cannot be sent over HTTP.",
                advice="Register the pipeline, and name it as `pipeline`.",
                details={"fields": refused},
            )

    async def _looked(self, operations: Operations, request: Request) -> Response:
        return self._reply(await ask(operations, self.route.asks, request))

    def _reply(self, reply: Any) -> Response:
        """The reply as it is. A run's ETag is its head."""
        route, headers = self.route, {}
        run = reply.get("run") if route.status == 201 and isinstance(reply.get("run"), dict) else reply
        if isinstance(run, dict) and isinstance(run.get("head"), int):
            headers["ETag"] = f'"{run["head"]}"'
        if route.status == 201 and isinstance(run, dict) and "head" in run:
            headers["Location"] = f"/api/runs/{run['id']}"
        return Response(msgspec.json.encode(reply), route.status, headers, JSON)

    async def _page(self, asked: Asked, request: Request, limit: int) -> Response:
        asks, pages = self.route.asks, self.route.pages
        group, _, name = asks.partition(".")

        async def read(operations: Operations) -> bytes:
            told = cast("AsyncIterable[Any]", getattr(getattr(operations, group), name)(request))
            found: list[Any] = []
            async for one in told:
                found.append(one)
                if len(found) == limit:
                    break
            cursor = found[-1][pages] if len(found) == limit else None
            return msgspec.json.encode({PAGES[asks]: found, "cursor": cursor})

        return Response(await asked.context.reader.read(read), 200, media_type=JSON)


def exact(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a path or a query, with runs that are meant by their whole ids alone.

    Elsewhere the beginning of an id names a run, and so does what people call it: a decision that is made
    so would hit whichever run is called that by then.
    """
    found = dict(given)
    if isinstance(run := given.get("run"), str):
        found["run"] = exact_run(run)
    if isinstance(scope := given.get("scope"), str) and scope.startswith(RUN_SCOPE):
        found["scope"] = RUN_SCOPE + exact_run(scope.removeprefix(RUN_SCOPE))
    if isinstance(of := given.get("of"), str):
        found["of"] = EXACT + of
    return found


def exact_run(run: str) -> str:
    """A run by its whole id."""
    if not RUN_ID_OWN.fullmatch(run):
        raise RunNotFound(run[:64])
    return EXACT + run


def waited(response: Response, seconds: int | None) -> Response:
    """Confirm the client's `Prefer: wait` in the reply."""
    if seconds is not None:
        response.headers["Preference-Applied"] = "wait"
    return response


PAGES = {
    "look.read_events": "events",
    "look.list_checkpoints": "checkpoints",
    "messages.read_messages": "pieces",
}
"""What a page of an operation calls what is on it."""


def parameters(raw: bytes) -> list[tuple[str, str]]:
    """The parameters of a query, in their order."""
    try:
        text = raw.decode("ascii")
        return parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS_MAX, separator="&"
        )
    except ValueError:
        raise InvalidInput(f"the query is not UTF-8, or has more than {PARAMETERS_MAX} parameters.") from None


def known_parameters(asked: Asked, known: Sequence[str]) -> dict[str, str]:
    """The parameters of the address: known ones, each once."""
    found: dict[str, str] = {}
    for name, value in parameters(asked.http.scope["query_string"]):
        if name not in known:
            there = ", ".join(known) or "none"
            raise InvalidInput(f"unknown parameter {name[:40]!r}; the parameters are {there}.")
        if name in found:
            raise InvalidInput(f"the parameter {name!r} is given twice.")
        found[name] = value
    return found


def route_limits(query: Mapping[str, Any]) -> bool:
    """Whether the limit of a query, if there is one, is valid for a page."""
    given = query.get("limit", str(LIMIT))
    return given.isascii() and given.isdecimal() and len(given) <= 3 and 1 <= int(given) <= LIMIT_MAX


def page_limit(query: dict[str, Any]) -> int:
    """The size of a page, removed from a query whose operation has no limit."""
    return int(query.pop("limit", LIMIT))


def given_of(found: Any) -> dict[str, Any]:
    """The fields that were given."""
    values = ((name, getattr(found, name)) for name in found.__struct_fields__)
    return {name: value for name, value in values if value is not NOT_GIVEN}


def struct_of(route: Route, names: list[str] | tuple[str, ...], end: str) -> type[msgspec.Struct]:
    """A struct of some fields of a request. A missing field differs from one with its default."""
    fields: list[tuple[str, Any, Any] | tuple[str, Any]] = []
    for one in msgspec.structs.fields(route.request):
        if one.name in names:
            is_needed = one.required and one.name not in route.defaults
            kind: Any = one.type
            fields.append((one.name, kind) if is_needed else (one.name, kind | msgspec.UnsetType, NOT_GIVEN))
    return msgspec.defstruct(
        f"{route.request.__name__}{end}",
        fields,
        rename=dict(route.names),
        forbid_unknown_fields=True,
        kw_only=True,
    )


def _named(request: Request, route: Route) -> list[str]:
    """What a request is about, besides what its path names."""
    names = dict.fromkeys((*route.query, "chat", "scope"))
    values = [str(value) for name in names if (value := getattr(request, name, None)) is not None]
    return [value.replace(RUN_SCOPE + EXACT, RUN_SCOPE) for value in values]
