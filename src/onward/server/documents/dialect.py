"""The paths of document 003 and its dialect: a run as a pipeline, and its questions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from onward.model.ids import node_of, place_of

if TYPE_CHECKING:
    from onward.replies.documents import PipelineQuestion, PipelineState
    from onward.replies.runs import GateShown, RunState


def pipeline_state(run: RunState) -> PipelineState:
    """A run as a pipeline: what it has done, and where it continues."""
    return {
        "id": run["id"],
        "display_id": run["display_id"],
        "pipeline": run["pipeline"],
        "status": run["status"],
        "reason": run["reason"],
        "detail": run["detail"],
        "next_node_id": run["next"],
        "completed_nodes": [node_of(place_of(step)) for step in run.get("completed", [])],
    }


def questions(run: RunState) -> list[PipelineQuestion]:
    """What the pipeline waits to be told."""
    return [_question(gate) for gate in run["gates"] if gate["decided"] is None]


def _question(gate: GateShown) -> PipelineQuestion:
    return {
        "id": gate["gate"],
        "text": gate["text"],
        "type": gate["type"],
        "stage": gate["node"],
        "options": [{"key": choice["key"], "label": choice["label"]} for choice in gate["choices"]],
        "default": gate["default"],
        "timeout_seconds": _seconds(gate["opened_at"], gate["deadline"]),
        "metadata": dict(gate["metadata"]),
    }


def _seconds(since: str, until: str | None) -> float | None:
    if until is None:
        return None
    return (_time(until) - _time(since)).total_seconds()


def _time(instant: str) -> datetime:
    return datetime.fromisoformat(instant.replace("Z", "+00:00"))
