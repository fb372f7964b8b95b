"""Document 002's progress: the open steps of a run as its checkpoints of a generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from onward.server.documents.statuses import words_of

if TYPE_CHECKING:
    from onward.replies.documents import GenerationCheckpoint
    from onward.replies.runs import RunState
    from onward.replies.steps import CallProgress, RunPage, StepProgress

TOOLS = ("tool", "function", "effect")
ANSWERED = "ok"


def generation_checkpoints(page: RunPage) -> list[GenerationCheckpoint]:
    """How far each open step has come that has recorded a call."""
    return [_checkpoint(page, step) for step in page["progress"]]


def _checkpoint(run: RunState, step: StepProgress) -> GenerationCheckpoint:
    is_asking = any(gate["decided"] is None for gate in run["gates"])
    tools = [call for call in step["calls"] if call["type"] in TOOLS]
    return {
        "id": f"{run['id']}/{step['step']}",
        "workspaceId": run["chat"],
        "messageId": step["message"],
        "stepNumber": step["rounds"],
        "textCollected": step["text"],
        "toolCalls": _json([_call(call) for call in tools]),
        "toolResults": _json([_result(call) for call in tools if call["state"] == ANSWERED]),
        "reasoning": step["reasoning"],
        "status": words_of(run["status"], claims=run["claims"], is_asking=is_asking).generation,
        "lockedAt": step["held_since"],
        "lockedBy": step["held_by"],
        "model": step["model"],
        "maxSteps": step["rounds_max"],
    }


def _call(call: CallProgress) -> dict[str, object]:
    return {"toolCallId": call["call"], "toolName": call["name"]}


def _result(call: CallProgress) -> dict[str, object]:
    return {"toolCallId": call["call"], "toolName": call["name"], "result": call["result"]}


def _json(values: list[dict[str, object]]) -> str:
    return msgspec.json.encode(values).decode()
