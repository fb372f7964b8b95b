"""The formats for every other command: our own lines of JSON, and plain text.

The command gets one JSON object on its standard input: the turn. It prints one JSON object a line:

    {"type": "session", "id": "…", "model": "…"}          which conversation to continue later
    {"type": "text", "text": "…"}                         shown while it grows
    {"type": "reasoning", "text": "…"}
    {"type": "tool", "name": "…", "text": "…"}            it uses a tool
    {"type": "tool_result", "text": "…", "is_error": false}
    {"type": "usage", "input": 0, "output": 0, "cached": 0, "cache_write": 0, "reasoning": 0, "cost_usd": 0.0}
    {"type": "log", "text": "…"}                          a line for the step's log
    {"type": "result", "text": "…", "outcome": "…", "preferred_label": "…", "context_updates": {…}}
    {"type": "error", "kind": "…", "message": "…", "retry_after_s": 0}

A turn ends with one `result` or one `error`. Of `usage`, the last counts. Other types and fields say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

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
    micro_of,
    text_of,
    whole_of,
)
from onward.clock import Clock

FACTS = ("outcome", "preferred_label", "suggested_next_ids", "context_updates", "notes", "failure_reason")


class LinesReader:
    """Reads our own lines. Without a text of its own, a result is what was said before it."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._said = clock, list[str]()

    def read(self, event: Mapping[str, Any]) -> Iterable[Piece]:
        """What one line says."""
        text = text_of(event.get("text"))
        match event.get("type"):
            case "session":
                yield Began(text_of(event.get("id")), text_of(event.get("model")))
            case "text":
                self._said.append(text)
                yield Said(text)
            case "reasoning":
                yield Thought(text)
            case "tool":
                yield Used(text_of(event.get("name")), text)
            case "tool_result":
                yield Got(text, is_error=event.get("is_error") is True)
            case "usage":
                yield Counted(_usage(event), micro_of(event.get("cost_usd")))
            case "log":
                yield Noted(text)
            case "result":
                facts = {name: event[name] for name in FACTS if event.get(name)}
                yield Ended(text or "".join(self._said), facts)
            case "error":
                yield self._trouble(event)

    def _trouble(self, event: Mapping[str, Any]) -> Trouble:
        after = event.get("retry_after_s")
        is_number = isinstance(after, int | float) and not isinstance(after, bool) and 0 <= after < 1e9
        retry_at_us = self._clock.now_us() + round(after * 1_000_000) if is_number and after else None
        return Trouble(
            text_of(event.get("message")) or "no reason given", text_of(event.get("kind")), retry_at_us
        )


def _usage(event: Mapping[str, Any]) -> Usage:
    cached, written = whole_of(event.get("cached")), whole_of(event.get("cache_write"))
    output, reasoning = whole_of(event.get("output")), whole_of(event.get("reasoning"))
    return Usage(
        input=max(whole_of(event.get("input")), cached + written),
        output=max(output, reasoning),
        cached_input=cached,
        cache_write=written,
        reasoning=reasoning,
    )
