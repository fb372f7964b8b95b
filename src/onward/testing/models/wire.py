"""What a scripted endpoint needs of a wire format, and what all of them share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from onward.agents.model import ReasoningDelta, TextDelta
from onward.testing.models.script import Played, Prompt, Reply

PAGE = b"<html><head><title>It works!</title></head><body>...</body></html>"
MALFORMED = b'data: {"choices": [{"delta": {"conte\n\n'
MESSAGES = {
    401: "Incorrect API key provided.",
    429: "Rate limit reached.",
    500: "The server had an error.",
    503: "The engine is overloaded.",
    529: "The engine is overloaded.",
}
"""What an error says, in every format."""
OTHER_MESSAGE = "This cannot be done."


class Wire(Protocol):
    """One format, as a server speaks it."""

    key_header: str

    def prompt(self, path: str, found: Any) -> Prompt:
        """What a request asks for; KeyError, TypeError or AttributeError if it is of another shape."""
        ...

    def events(self, act: Played, reply: Reply, prompt: Prompt) -> Iterator[bytes]:
        """The beginning, then the bytes of each piece, then what ends the answer."""
        ...

    def whole(self, act: Played, reply: Reply, prompt: Prompt) -> bytes:
        """The answer as one JSON document."""
        ...

    def error(self, status: int) -> dict[str, Any]:
        """The body of an error with this status."""
        ...


def error_body(reply: Reply, wire: Wire) -> bytes:
    """The body of an error: the script's, or one as the format has it."""
    return reply.body.encode() if reply.body is not None else msgspec.json.encode(wire.error(reply.status))


def error_headers(reply: Reply) -> dict[str, str]:
    """The headers of an error, in lower case."""
    given = {"content-type": reply.content_type}
    return given | ({"retry-after": reply.retry_after} if reply.retry_after else {})


def joined(act: Played, kind: type[TextDelta] | type[ReasoningDelta]) -> str:
    """All text of one kind."""
    return "".join(piece.text for piece in act.pieces if isinstance(piece, kind))


def event(data: dict[str, Any], name: str = "") -> bytes:
    """One server-sent event."""
    named = f"event: {name}\n".encode() if name else b""
    return named + b"data: " + msgspec.json.encode(data) + b"\n\n"
