"""Document 004's replies and socket: workflows and their events, from runs in lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from onward.server.documents.statuses import words_of

if TYPE_CHECKING:
    from onward.replies.documents import WorkflowMessage, WorkflowState
    from onward.replies.runs import GateListed, RunListed, RunState

FAILED, IN_PROGRESS, PENDING = "FAILED", "IN_PROGRESS", "PENDING"
RESTARTED = "Server restarted while workflow was running"
_RESTARTS = ("restart", "crash")


def workflow_state(run: RunListed | RunState, *, is_asking: bool) -> WorkflowState:
    """A run as a workflow. `is_asking`: one of its questions is open."""
    status = words_of(run["status"], claims=run["claims"], is_asking=is_asking).workflow
    has_failed = status == FAILED
    return {
        "id": run["id"],
        "status": status,
        "failure_reason": failure_reason(run) if has_failed else None,
        "recoverable": run["recoverable"] if has_failed else None,
        "pipeline": run["pipeline"],
        "worktree_path": run["exclusive_key"],
        "started_at": run["created_at"],
        "completed_at": run["ended_at"],
    }


def failure_reason(run: RunListed | RunState) -> str:
    """Why a workflow failed. A restart and a crash are the same to document 004."""
    return RESTARTED if run["reason"] in _RESTARTS else run["detail"] or run["reason"]


def not_failed(run: RunListed | RunState, *, is_asking: bool) -> str | None:
    """Why a workflow cannot be resumed as it stands, in document 004's words; None if it is FAILED."""
    status = words_of(run["status"], claims=run["claims"], is_asking=is_asking).workflow
    return None if status == FAILED else f"Workflow {run['id']} is {status}, not FAILED"


class WorkflowFeed:
    """What is announced of workflows. It remembers those that stopped: their next start is a resume."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._asked: set[tuple[str, str]] = set()

    def opening(self, stopped: Iterable[RunListed], gates: Iterable[GateListed]) -> Iterator[WorkflowMessage]:
        """What a client is sent that connects now: every stopped workflow, and every open approval."""
        for run in stopped:
            yield from self.changed(run)
        for gate in gates:
            yield from self.asked(gate)

    def changed(self, run: RunListed) -> Iterator[WorkflowMessage]:
        """What is announced when a run has another status."""
        before = self._known.get(run["id"])
        status = words_of(run["status"], claims=run["claims"], is_asking=True).workflow
        self._known[run["id"]] = status
        if status == before:
            return
        if status == FAILED:
            reason = failure_reason(run)
            yield _message(
                "WORKFLOW_FAILED", run["id"], recoverable=run["recoverable"], failure_reason=reason
            )
        elif status == IN_PROGRESS and before in (FAILED, PENDING, None):
            yield from self._started(run, before)
        elif status == "COMPLETED":
            yield _message("WORKFLOW_COMPLETED", run["id"])
        elif status == "CANCELLED":
            yield _message("WORKFLOW_CANCELLED", run["id"])

    def _started(self, run: RunListed, before: str | None) -> Iterator[WorkflowMessage]:
        is_resumed = before == FAILED
        # One that is not known and was claimed before was under way already: it only waited for a while.
        if is_resumed or before == PENDING or run["claims"] <= 1:
            yield _message("WORKFLOW_STARTED", run["id"], resumed=is_resumed)

    def asked(self, gate: GateListed) -> Iterator[WorkflowMessage]:
        """What is announced when a question was asked."""
        if (gate["run"], gate["gate"]) in self._asked:
            return
        self._asked.add((gate["run"], gate["gate"]))
        yield _message("APPROVAL_REQUIRED", gate["run"], gate=gate["gate"], text=gate["text"])

    def closed(self, run: str, gate: str) -> None:
        """A question was answered or withdrawn: the same one may be asked again."""
        self._asked.discard((run, gate))


def _message(type: str, workflow: str, **data: Any) -> WorkflowMessage:
    return {"type": type, "workflow_id": workflow, "data": data}
