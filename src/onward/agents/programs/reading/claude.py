"""Claude Code: `claude -p --output-format stream-json --verbose`, one JSON object a line."""

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
    Piece,
    Said,
    Thought,
    Trouble,
    Used,
    micro_of,
    object_of,
    objects_of,
    text_of,
    whole_of,
)

SYNTHETIC = "<synthetic>"
"""The model of a message that Claude Code wrote itself, to show an error; the result has it too."""


class ClaudeReader:
    """Reads messages of the conversation, and the result at its end."""

    def __init__(self) -> None:
        self._is_streamed = False

    def read(self, event: Mapping[str, Any]) -> Iterable[Piece]:
        """What one message says. What a subagent says is not the answer, so only its tools are shown."""
        is_nested = bool(event.get("parent_tool_use_id"))
        match event.get("type"):
            case "system" if event.get("subtype") == "init":
                yield Began(text_of(event.get("session_id")), text_of(event.get("model")))
            case "stream_event" if not is_nested:
                yield from self._delta(object_of(event.get("event")))
            case "assistant":
                yield from self._said(object_of(event.get("message")), is_nested=is_nested)
            case "user":
                yield from _results(object_of(event.get("message")))
            case "result":
                yield from _result(event)

    def _delta(self, event: Mapping[str, Any]) -> Iterator[Piece]:
        """A part of a message that follows whole; only with --include-partial-messages."""
        delta = object_of(event.get("delta"))
        if event.get("type") == "content_block_delta" and delta.get("type") == "text_delta":
            self._is_streamed = True
            yield Said(text_of(delta.get("text")))

    def _said(self, message: Mapping[str, Any], *, is_nested: bool) -> Iterator[Piece]:
        if message.get("model") == SYNTHETIC:
            return
        for block in objects_of(message.get("content")):
            match block.get("type"):
                case "text" if not is_nested:
                    yield Said("\n\n" if self._is_streamed else f"{text_of(block.get('text'))}\n\n")
                    self._is_streamed = False
                case "thinking" if not is_nested:
                    yield Thought(f"{text_of(block.get('thinking'))}\n")
                case "tool_use":
                    what = msgspec.json.encode(block.get("input", {})).decode()
                    yield Used(text_of(block.get("name")), what)


def _results(message: Mapping[str, Any]) -> Iterator[Piece]:
    for block in objects_of(message.get("content")):
        if block.get("type") == "tool_result":
            content = block.get("content")
            text = text_of(content) or "".join(text_of(part.get("text")) for part in objects_of(content))
            yield Got(text, is_error=block.get("is_error") is True)


def _result(event: Mapping[str, Any]) -> Iterator[Piece]:
    yield Began(text_of(event.get("session_id")))
    yield Counted(_usage(object_of(event.get("usage"))), micro_of(event.get("total_cost_usd")))
    if event.get("is_error") is not True and event.get("subtype") == "success":
        yield Ended(text_of(event.get("result")))
        return
    errors = event.get("errors")
    told = "; ".join(map(str, errors)) if isinstance(errors, list) else ""
    yield Trouble(text_of(event.get("result")) or told or text_of(event.get("subtype")) or "no reason given")


def _usage(counted: Mapping[str, Any]) -> Usage:
    """Anthropic counts what is read from its cache, and written to it, apart from other input."""
    read = whole_of(counted.get("cache_read_input_tokens"))
    written = whole_of(counted.get("cache_creation_input_tokens"))
    return Usage(
        input=whole_of(counted.get("input_tokens")) + read + written,
        output=whole_of(counted.get("output_tokens")),
        cached_input=read,
        cache_write=written,
    )
