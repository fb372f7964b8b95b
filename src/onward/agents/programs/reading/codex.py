"""Codex: `codex exec --json`, one event a line: the thread, its turn, and the items of the turn."""

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
    Thought,
    Trouble,
    Used,
    object_of,
    objects_of,
    text_of,
    whole_of,
)


class CodexReader:
    """The answer is the last message of the agent. `error` events may be followed by another attempt."""

    def __init__(self) -> None:
        self._last = ""

    def read(self, event: Mapping[str, Any]) -> Iterable[Piece]:
        """What one event says."""
        item = object_of(event.get("item"))
        match event.get("type"):
            case "thread.started":
                yield Began(text_of(event.get("thread_id")))
            case "item.started":
                yield from _begun(item)
            case "item.completed":
                yield from self._completed(item)
            case "turn.completed":
                yield Counted(_usage(object_of(event.get("usage"))), is_total=True)
                yield Ended(self._last)
            case "turn.failed":
                yield Trouble(text_of(object_of(event.get("error")).get("message")) or "no reason given")
            case "error":
                yield Trouble(text_of(event.get("message")) or "no reason given")

    def _completed(self, item: Mapping[str, Any]) -> Iterator[Piece]:
        match item.get("type"):
            case "agent_message":
                self._last = text_of(item.get("text"))
                yield Said(f"{self._last}\n\n")
            case "reasoning":
                yield Thought(f"{text_of(item.get('text'))}\n")
            case "command_execution":
                code = item.get("exit_code")
                yield Got(text_of(item.get("aggregated_output")), is_error=code not in (0, None))
            case "mcp_tool_call":
                failed = object_of(item.get("error"))
                yield Got(text_of(failed.get("message")), is_error=bool(failed))
            case "file_change":
                changes = objects_of(item.get("changes"))
                yield Used(
                    "file_change",
                    ", ".join(f"{text_of(one.get('kind'))} {text_of(one.get('path'))}" for one in changes),
                )
            case "error":
                yield Noted(text_of(item.get("message")))


def _begun(item: Mapping[str, Any]) -> Iterator[Piece]:
    match item.get("type"):
        case "command_execution":
            yield Used("shell", text_of(item.get("command")))
        case "mcp_tool_call":
            name = f"{text_of(item.get('server'))}.{text_of(item.get('tool'))}"
            yield Used(name, msgspec.json.encode(item.get("arguments")).decode())
        case "web_search":
            yield Used("web_search", text_of(item.get("query")))


def _usage(counted: Mapping[str, Any]) -> Usage:
    return Usage(
        input=whole_of(counted.get("input_tokens")),
        output=whole_of(counted.get("output_tokens")),
        cached_input=whole_of(counted.get("cached_input_tokens")),
        reasoning=whole_of(counted.get("reasoning_output_tokens")),
    )
