"""What the paths of all documents share: bodies and replies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.responses import Response

from onward.model.ids import EXACT
from onward.operations.requests import RunGates
from onward.server.api import JSON, known_parameters
from onward.server.body import read_body
from onward.server.documents.statuses import may_ask

if TYPE_CHECKING:
    from onward.operations.protocol import Operations
    from onward.replies.runs import RunListed
    from onward.server.place import Asked

Body = TypeVar("Body", bound=msgspec.Struct)


class Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A body with the names that document 000 writes."""


class Nothing(Given, frozen=True, kw_only=True):
    """An empty body."""


async def body_of(asked: Asked, kind: type[Body]) -> Body:
    """The body of a request whose address has no parameters; an absent one is an empty object."""
    known_parameters(asked, ())
    return msgspec.json.decode(await read_body(asked) or b"{}", type=kind)


def reply(value: Any, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)


async def is_asking(operations: Operations, run: RunListed) -> bool:
    """Whether one of the run's questions is open."""
    return may_ask(run["status"]) and bool(await operations.lists.run_gates(RunGates(run=EXACT + run["id"])))
