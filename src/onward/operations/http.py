"""What can be asked over HTTP: one table of routes.

A row says which operation a method and a path ask, who may ask it, and where the fields of its request come
from. Routing, roles, the OpenAPI page, the client behind `--server` and the tests are made from it. The types
of request and reply are those of the operation in `protocol`.

Fields of a request come from the path, where `{name}` is a field; then from the query, for GET and DELETE and
where a row says so; else from the body. Some of them never do: who asks (`by`) and whether they `may_answer`
gates are the credential's, `key` is the header Idempotency-Key, and `if_head` is If-Match. Whether what is
sent `may_run_commands` is for the operator of the server to say.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from functools import cache
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from onward.operations.protocol import Operations
from onward.operations.requests import Request

VIEWER, OPERATOR, APPROVER, ADMIN = "viewer", "operator", "approver", "admin"
ROLES = (VIEWER, OPERATOR, APPROVER, ADMIN)
PREFIX = "/api"
LIMIT, LIMIT_MAX = 50, 200
"""How much a page of a list holds, and may hold."""
OF_CALLER = frozenset({"by", "key", "if_head", "may_answer", "may_run_commands"})
READS = ("GET", "HEAD")
_IN_PATH = re.compile(r"\{(\w+)\}")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One row: what `method` and `path` ask.

    `asks` is the operation, as `group.name`. `query` are fields of a body's request that the query has
    instead, `names` those that the query calls otherwise. `left_out` are fields that HTTP does not have,
    `local` those that are of this machine alone and refused as such, `admin` those that only an admin may
    give, with `defaults` for what is not given. `pages`: the reply is a page of what the operation yields,
    and this field of each is where the next page begins. `is_new`: it makes a run or a message, or lets
    one continue; a server that drains refuses it. `waits`: `Prefer: wait` waits for its run. `is_bytes`: the
    reply is the content itself, as a file. `is_drawn`: whoever accepts SVG, and not JSON, gets a picture.
    `is_small`: it costs about as little however much the run has done.
    """

    method: str
    path: str
    asks: str
    role: str
    status: int = 200
    query: tuple[str, ...] = ()
    names: Mapping[str, str] = {}
    left_out: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    admin: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = {}
    pages: str | None = None
    waits: bool = False
    is_bytes: bool = False
    is_drawn: bool = False
    is_small: bool = False
    is_new: bool = False

    @property
    def operation(self) -> str:
        """The name of the operation."""
        return self.asks.partition(".")[2]

    @property
    def request(self) -> type[Request]:
        """The type of its request."""
        return _signature(self.asks).request

    @property
    def reply(self) -> Any:
        """The type of its reply; of one that is told in pages, of each thing on a page."""
        return _signature(self.asks).reply

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing."""
        return self.method in READS

    @property
    def in_path(self) -> tuple[str, ...]:
        """The fields of the path."""
        return tuple(_IN_PATH.findall(self.path))

    @property
    def in_query(self) -> tuple[str, ...]:
        """The fields of the query."""
        return self._others if self.method in (*READS, "DELETE") else self.query

    @property
    def in_body(self) -> tuple[str, ...]:
        """The fields of the body."""
        if self.method in (*READS, "DELETE"):
            return ()
        return tuple(name for name in self._others if name not in self.query)

    @property
    def of_caller(self) -> frozenset[str]:
        """The fields that come from the credential and the headers."""
        if self.is_read:
            return frozenset()
        named = {*self.in_path, *self.query}
        return OF_CALLER.intersection(self.request.__struct_fields__) - named

    @property
    def _others(self) -> tuple[str, ...]:
        gone = {*self.in_path, *self.of_caller, *self.left_out}
        return tuple(name for name in self.request.__struct_fields__ if name not in gone)


class _Signature(NamedTuple):
    request: type[Request]
    reply: Any


@cache
def _signature(asks: str) -> _Signature:
    group, _, name = asks.partition(".")
    protocol = get_type_hints(getattr(Operations, group).fget)["return"]
    hints = get_type_hints(getattr(protocol, name))
    reply = hints["return"]
    if get_origin(reply) in (AsyncGenerator, AsyncIterator):
        reply = get_args(reply)[0]
    return _Signature(hints["request"], reply)


def _get(path: str, asks: str, role: str = VIEWER, **more: Any) -> Route:
    return Route(method="GET", path=PREFIX + path, asks=asks, role=role, **more)


def _post(path: str, asks: str, role: str, **more: Any) -> Route:
    return Route(method="POST", path=PREFIX + path, asks=asks, role=role, **more)


def _put(path: str, asks: str, role: str, **more: Any) -> Route:
    return Route(method="PUT", path=PREFIX + path, asks=asks, role=role, **more)


def _delete(path: str, asks: str, role: str, **more: Any) -> Route:
    return Route(method="DELETE", path=PREFIX + path, asks=asks, role=role, **more)


_FILTERS = {"statuses": "status", "reasons": "reason", "tags": "tag"}
_OF_THIS_MACHINE = ("source", "file", "path", "workdir", "workspace", "workspace_mode", "keep_workspace")
_CONTINUED = ("raises", "take_over", "workdir", "accept_changes")

RUNS: tuple[Route, ...] = (
    _get("/runs", "lists.list_runs", names=_FILTERS, left_out=("run", "completed", "older")),
    _post(
        "/runs",
        "start.submit_run",
        OPERATOR,
        status=201,
        local=_OF_THIS_MACHINE,
        admin=("real_tools", "raises"),
        # Who asks over HTTP decides what happens to a run whose server died.
        defaults={"on_owner_loss": "interrupt"},
        waits=True,
        is_new=True,
    ),
    _get("/runs/{run}", "look.get_run", waits=True, is_small=True),
    _get("/runs/{run}/steps", "look.show_run"),
    _get("/runs/{run}/step", "look.show_step"),
    _get("/runs/{run}/events", "look.read_events", left_out=("follow", "dialect"), pages="seq"),
    _get("/runs/{run}/calls", "look.list_calls"),
    _get("/runs/{run}/checkpoints", "look.list_checkpoints", pages="seq"),
    _get("/runs/{run}/artifacts", "look.list_artifacts"),
    _get("/runs/{run}/artifact", "look.get_artifact", is_bytes=True),
    _get("/runs/{run}/receipts", "look.list_receipts", OPERATOR),
    _get("/runs/{run}/log", "look.read_printed", OPERATOR, names={"streams": "stream"}),
    _get("/runs/{run}/graph", "look.draw_run", is_drawn=True),
    _get("/runs/{run}/resume", "decide.preview_resume", left_out=("answers",)),
    _post("/runs/{run}/resume", "decide.resume_run", OPERATOR, admin=_CONTINUED, waits=True, is_new=True),
    _post("/runs/{run}/answer", "decide.answer_gate", APPROVER, waits=True, is_new=True),
    _post("/runs/{run}/pause", "decide.pause_run", OPERATOR, waits=True),
    _post("/runs/{run}/cancel", "decide.cancel_run", OPERATOR, waits=True),
    _post("/runs/{run}/dismiss", "decide.dismiss_run", OPERATOR),
    _post("/runs/{run}/steer", "decide.steer_run", OPERATOR),
    _post("/runs/{run}/fork", "start.fork_run", OPERATOR, status=201, admin=("accept_changes",), is_new=True),
    _get("/gates", "lists.list_gates"),
)

OTHERS: tuple[Route, ...] = (
    _get("/chats", "chats.list_chats"),
    _get("/chat", "chats.show_chat"),
    _get("/messages", "messages.read_messages", left_out=("follow",), pages="position"),
    _post("/messages", "chats.send_message", OPERATOR, local=("workdir",), waits=True, is_new=True),
    _get("/limits", "limits.list_limits"),
    _put("/limits", "limits.set_limit", ADMIN, query=("scope",)),
    _delete("/limits", "limits.reset_limits", ADMIN),
    _get("/usage", "limits.get_usage"),
    _get("/pipelines", "pipelines.list_pipelines"),
    _get("/pipelines/{name}", "pipelines.show_pipeline"),
    _post("/pipelines/check", "pipelines.check_pipeline", OPERATOR),
    _put("/pipelines/{name}", "pipelines.add_pipeline", ADMIN, local=("path",)),
    _delete("/pipelines/{name}", "pipelines.remove_pipeline", ADMIN),
    _post("/pipelines/{name}/enable", "pipelines.enable_pipeline", ADMIN),
    _get("/workers", "lists.list_workers"),
    _get("/stats", "lists.get_stats"),
    _get("/notifications", "notifications.list_notifications"),
    _post("/notifications/{id}/retry", "notifications.retry_notification", OPERATOR),
    _get("/effects", "effects.get_effect"),
    _put("/effects", "effects.settle_effect", ADMIN, query=("key",)),
    _delete("/effects", "effects.forget_effect", ADMIN, query=("key",)),
    _get("/tokens", "access.list_tokens", ADMIN),
    _post("/tokens", "access.add_token", ADMIN, status=201),
    _delete("/tokens/{id}", "access.revoke_token", ADMIN),
    _get("/audit", "access.list_audit", ADMIN),
)

ROUTES: tuple[Route, ...] = RUNS + OTHERS
"""Every operation that HTTP has, in the order of the documentation."""


def route_of(asks: str) -> Route:
    """The route of an operation, written as `group.name`."""
    return next(route for route in ROUTES if route.asks == asks)
