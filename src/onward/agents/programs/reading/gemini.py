"""Gemini CLI: `gemini --output-format stream-json`, one event a line, or the one object of `json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from onward.agents.model.stream import Usage
from onward.agents.programs.reading.pieces import (
    Began,
    Counted,
    Ended,
    Got,
    Noted,
    Piece,
    Said,
    Trouble,
    Used,
    object_of,
    text_of,
    whole_of,
)


class GeminiReader:
    """The answer is what the assistant said after it last used a tool; else all that it said."""

    def __init__(self) -> None:
        self._all: list[str] = []
        self._since_tool: list[str] = []

    def read(self, event: Mapping[str, Any]) -> Iterable[Piece]:
        """What one event says."""
        match event.get("type"):
            case "init":
                yield Began(text_of(event.get("session_id")), text_of(event.get("model")))
            case "message" if event.get("role") == "assistant":
                said = text_of(event.get("content"))
                self._all.append(said)
                self._since_tool.append(said)
                yield Said(said)
            case "tool_use":
                self._since_tool.clear()
                what = msgspec.json.encode(event.get("parameters", {})).decode()
                yield Used(text_of(event.get("tool_name")), what)
            case "tool_result":
                failed = text_of(object_of(event.get("error")).get("message"))
                yield Got(text_of(event.get("output")) or failed, is_error=event.get("status") == "error")
            case "error":
                message = text_of(event.get("message"))
                yield Trouble(message) if event.get("severity") == "error" else Noted(message)
            case "result":
                yield from self._result(event)
            case None:
                yield from _whole(event)

    def _result(self, event: Mapping[str, Any]) -> Iterator[Piece]:
        yield Counted(_usage(object_of(event.get("stats"))))
        if event.get("status") == "success":
            yield Ended("".join(self._since_tool).strip() or "".join(self._all).strip())
        else:
            yield _trouble(object_of(event.get("error")))


def _whole(event: Mapping[str, Any]) -> Iterator[Piece]:
    """The one object that older versions print: the answer, or the error."""
    yield Began(text_of(event.get("session_id")))
    if isinstance(event.get("error"), dict):
        yield _trouble(event["error"])
    elif isinstance(event.get("response"), str):
        yield Said(event["response"])
        yield Ended(event["response"])


def _trouble(error: Mapping[str, Any]) -> Trouble:
    return Trouble(text_of(error.get("message")) or text_of(error.get("type")) or "no reason given")


def _usage(counted: Mapping[str, Any]) -> Usage:
    return Usage(
        input=whole_of(counted.get("input_tokens")),
        output=whole_of(counted.get("output_tokens")),
        cached_input=whole_of(counted.get("cached")),
    )
