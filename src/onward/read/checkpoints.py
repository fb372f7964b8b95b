"""Every checkpoint of a run, with the whole state at it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from onward.machine.fold.apply import apply
from onward.model.catalogue import CHECKPOINTS
from onward.model.events import Event, StepFinished
from onward.model.ids import branch_of
from onward.model.run import Run
from onward.read.lookup import log_pages
from onward.read.view import instant
from onward.store.codec import unseal
from onward.store.port.log import RunLog, StoredEvent


async def read_checkpoints(log: RunLog, run_id: str) -> AsyncIterator[dict[str, Any]]:
    """The checkpoints of a log in order, one at a time, because each has a whole context."""
    run: Run | None = None
    completed: list[str] = []
    async for page in log_pages(log, run_id):
        for record in page:
            event = unseal(record)
            run = apply(run, event, run_id=run_id, at_us=record.at_us, token=record.token)
            if isinstance(event, StepFinished):
                completed.append(event.node)
            if isinstance(event, CHECKPOINTS):
                yield _checkpoint(record, event, run, completed)


def _checkpoint(record: StoredEvent, event: Event, run: Run, completed: Sequence[str]) -> dict[str, Any]:
    branch = branch_of(event.step) if isinstance(event, StepFinished) else ""
    return {
        "seq": record.seq,
        "at": instant(record.at_us),
        **({"branch": branch} if branch else {}),
        "current_node": event.node if isinstance(event, StepFinished) else None,
        "next_node_id": run.branches[branch].next_node,
        "completed_nodes": list(completed),
        "context": run.branches[branch].context.plain(),
        "retry_counters": run.retries.plain(),
        "visited_outcomes": run.outcomes.plain(),
        "reroute_count": run.reroutes,
    }
