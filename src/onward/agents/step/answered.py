"""An answer of a model as it is recorded, and read again by whoever continues the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from onward.agents.model.request import ToolCall
from onward.agents.model.stream import Answer, FinishReason


class Answered(msgspec.Struct, frozen=True):
    """What decides how the conversation continues. `output` is what the answer cost in tokens."""

    text: str
    finish_reason: FinishReason
    tool_calls: tuple[ToolCall, ...] = ()
    output: int = 0


def recorded(answer: Answer, head: str) -> dict[str, Any]:
    """The value of the call; `head` is the end of the conversation with the answer in it."""
    value: dict[str, Any] = {
        "text": answer.text,
        "finish_reason": answer.finished.finish_reason.value,
        "thread": head,
    }
    if answer.finished.usage.output:
        value["output"] = answer.finished.usage.output
    if answer.tool_calls:
        value["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in answer.tool_calls
        ]
    return value


def read_recorded(value: Mapping[str, Any]) -> Answered:
    """The same from the log."""
    return Answered(
        text=value["text"],
        finish_reason=FinishReason(value["finish_reason"]),
        tool_calls=tuple(ToolCall(**call) for call in value.get("tool_calls", ())),
        output=value.get("output", 0),
    )
