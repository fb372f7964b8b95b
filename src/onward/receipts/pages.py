"""The files of a run as values: the content of each, by the dialect's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onward.model.events import AttemptFailed, StepFinished
from onward.model.run import Run
from onward.receipts.homes import Said

Told = tuple[str, tuple[str, ...]]


def manifest(run: Run, *, start_time: str, database: str) -> bytes:
    """Which run this is, and in which database."""
    return _json(
        {
            "name": run.pipeline,
            "goal": run.context.get("graph.goal", ""),
            "start_time": start_time,
            "run_id": run.id,
            "pipeline_hash": run.pipeline_hash,
            "database": database,
        }
    )


def is_of(said: Said | None, run: Run, *, start_time: str, database: str) -> bool:
    """Whether a manifest is this run's: ids may be chosen, and runs may be copied."""
    return said is not None and (
        said.get("run_id"),
        said.get("start_time"),
        said.get("database", database),
    ) == (run.id, start_time, database)


def checkpoint(run: Run, finished: Sequence[Told], *, timestamp: str) -> bytes:
    """How far the run is; `finished` are the nodes of its finished steps, each with its lines of the log.

    A copy: resuming reads the log and never this.
    """
    return _json(
        {
            "timestamp": timestamp,
            "current_node": finished[-1][0] if finished else None,
            "completed_nodes": [node for node, _ in finished],
            "node_retries": run.retries.plain(),
            "context": run.context.plain(),
            "logs": [line for _, lines in finished for line in lines],
        }
    )


class _Checkpoint(msgspec.Struct, frozen=True):
    completed_nodes: list[str] = []


def completed_nodes(content: bytes) -> list[str]:
    """The nodes of the finished steps that a checkpoint tells of; none if it is no checkpoint."""
    try:
        return msgspec.json.decode(content, type=_Checkpoint).completed_nodes
    except msgspec.DecodeError:
        return []


def told(event: StepFinished) -> Told:
    """The node of a finished step, and what is said of it: what it wrote down itself, then its outcome."""
    outcome = event.outcome
    said = outcome.failure_reason or outcome.notes
    ending = f"{event.step}: {outcome.status.value}" + (f": {said}" if said else "")
    return event.node, (*(f"{event.step}: {line}" for line in event.log), ending)


def finished_status(event: StepFinished, after: Mapping[str, Any]) -> bytes:
    """`status.json` of a step that has its outcome; `after` are context values as the step set them."""
    outcome = event.outcome
    updates = {**event.context, **{key: after[key] for key in event.grown if key in after}}
    return _status(
        outcome.status.value,
        outcome.failure_reason,
        preferred_label=outcome.preferred_label,
        suggested_next_ids=list(outcome.suggested_next_ids),
        context_updates=updates,
        notes=outcome.notes,
    )


def failed_status(event: AttemptFailed) -> bytes:
    """`status.json` of an attempt that failed."""
    return _status(
        event.status.value,
        event.reason,
        preferred_label="",
        suggested_next_ids=[],
        context_updates={},
        notes="",
    )


def _status(outcome: str, failure_reason: str, **fields: Any) -> bytes:
    told = {"failure_reason": failure_reason} if failure_reason else {}
    return _json({"outcome": outcome, **fields, **told})


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
