"""A wire format: how a request is written and an answer is read. Everything in it is pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from onward.agents.model.request import ModelRequest, ToolCall
from onward.agents.model.stream import FinishReason, Streamed, Usage


class AnswerReader(Protocol):
    """Reads the events of one answer. `wire/gathered.py` has all but `read`."""

    usage: Usage | None
    model: str
    request_id: str
    pieces: int
    characters: int
    is_empty: bool
    is_whole: bool
    is_done: bool

    @property
    def finish_reason(self) -> FinishReason:
        """Why it ended."""
        ...

    def read(self, event: bytes) -> Iterator[Streamed]:
        """The pieces in one event, or in a whole answer of a server that does not stream.

        Raises ErrorInAnswer for an error, and msgspec.DecodeError or RecursionError for what is no answer.
        """
        ...

    def tool_calls(self) -> list[ToolCall]:
        """The tool calls, as far as they have come."""
        ...


class WireFormat(Protocol):
    """How one provider is asked."""

    def address(self, model: str) -> str:
        """Where the request goes; `model` is the name without the provider's."""
        ...

    def headers(self, key: str) -> Mapping[str, str]:
        """The headers of this format, with the key if there is one."""
        ...

    def body(self, request: ModelRequest, model: str) -> bytes:
        """The request as JSON; the same request gives the same bytes."""
        ...

    def answer(self, model: str) -> AnswerReader:
        """A reader for the next answer of a model."""
        ...
