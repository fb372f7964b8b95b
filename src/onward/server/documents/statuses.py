"""The statuses of runs and steps in the words of documents 000, 002 and 004: one table, and its readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from onward.model.run import RunStatus


class StatusWords(NamedTuple):
    """One status in the words of documents 000, 002 and 004. None: document 000 has no word for it."""

    agents: str | None
    generation: str
    workflow: str


UNDER_WAY = StatusWords("running", "processing", "IN_PROGRESS")
STOPPED = StatusWords("interrupted", "pending", "FAILED")
WORDS: Mapping[RunStatus, StatusWords] = {
    RunStatus.QUEUED: StatusWords("running", "pending", "PENDING"),
    RunStatus.RUNNING: UNDER_WAY,
    RunStatus.WAITING: StatusWords("awaiting_checkpoint", "processing", "BLOCKED"),
    RunStatus.PAUSED: STOPPED,
    RunStatus.INTERRUPTED: STOPPED,
    RunStatus.FAILED: StatusWords("failed", "error", "FAILED"),
    RunStatus.COMPLETED: StatusWords("completed", "completed", "COMPLETED"),
    RunStatus.CANCELLED: StatusWords(None, "error", "CANCELLED"),
}


def words_of(status: str, *, claims: int, is_asking: bool) -> StatusWords:
    """The words for a run. `claims` is how often a process has claimed it: one that was claimed and is queued
    again was resumed or answered, and is under way. One that waits and is not asking anybody sleeps."""
    found = RunStatus(status)
    is_resumed = found is RunStatus.QUEUED and claims > 0
    is_asleep = found is RunStatus.WAITING and not is_asking
    return UNDER_WAY if is_resumed or is_asleep else WORDS[found]


def may_ask(status: str) -> bool:
    """Whether a run of this status can have an open question that counts for its words."""
    return status == RunStatus.WAITING


RESTART, COST_LIMIT, STOPPED_BY_PERSON = "restart", "cost_limit", "stopped"
_INTERRUPTED: Mapping[str, str] = {
    "restart": RESTART,
    "crash": RESTART,
    "limit": COST_LIMIT,
    "rate_limit": "rate_limit",
    "in_doubt": "in_doubt",
}


def interrupted_reason(reason: str) -> str:
    """Why a run stopped, in document 000's words; a stop that somebody asked for is `stopped`."""
    return _INTERRUPTED.get(reason, STOPPED_BY_PERSON)


AGENT_FAILED = "agent_failed"
_ERROR_TYPES: Mapping[str, str] = {
    "limit": COST_LIMIT,
    "provider_credit": "credit_exhaustion",
    "provider_auth": "auth_failure",
    "provider_forbidden": "forbidden",
    "provider_request": "invalid_request",
}


def error_type(reason: str) -> str:
    """Why a run stopped, as document 000 classes errors of agents."""
    return _ERROR_TYPES.get(reason, AGENT_FAILED)


RUNNING, COMPLETED, FAILED, RETRYING, AGENT_STOPPED = "running", "completed", "failed", "retrying", "stopped"
_AGENTS: Mapping[str, str] = {
    "running": RUNNING,
    "waiting": RUNNING,
    "retrying": RETRYING,
    "failed": FAILED,
    "fail": FAILED,
    "interrupted": AGENT_STOPPED,
    "held": AGENT_STOPPED,
    "in_doubt": AGENT_STOPPED,
    "left": AGENT_STOPPED,
}


def agent_status(state: str) -> str:
    """The state of a step in document 000's words for agents; any other outcome is a completed agent."""
    return _AGENTS.get(state, COMPLETED)


def limit_words(measure: str) -> str:
    """What document 000 says when a limit stops a pipeline."""
    named = {"tokens": "Token", "cost": "Cost", "calls": "Agent call"}.get(measure, "Visit")
    return f"{named} limit reached. Pipeline paused."
