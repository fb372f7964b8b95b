"""How documents 000, 002 and 004 call our statuses: the whole table."""

from __future__ import annotations

import pytest

from onward.machine.reasons import REASONS
from onward.model.run import RunStatus
from onward.server.documents.statuses import (
    WORDS,
    agent_status,
    error_type,
    interrupted_reason,
    limit_words,
    words_of,
)


@pytest.mark.parametrize(
    ("status", "claims", "is_asking", "words"),
    [
        ("queued", 0, False, ("running", "pending", "PENDING")),
        ("queued", 1, False, ("running", "processing", "IN_PROGRESS")),
        ("running", 1, False, ("running", "processing", "IN_PROGRESS")),
        ("waiting", 1, True, ("awaiting_checkpoint", "processing", "BLOCKED")),
        ("waiting", 1, False, ("running", "processing", "IN_PROGRESS")),
        ("paused", 1, False, ("interrupted", "pending", "FAILED")),
        ("interrupted", 1, False, ("interrupted", "pending", "FAILED")),
        ("failed", 1, False, ("failed", "error", "FAILED")),
        ("completed", 1, False, ("completed", "completed", "COMPLETED")),
        ("cancelled", 1, False, (None, "error", "CANCELLED")),
    ],
)
def test_a_run_has_the_words_of_every_document(
    status: str, claims: int, is_asking: bool, words: tuple[str | None, str, str]
) -> None:
    """S0-5, S4-1, S4-2, S4-3: a run that was claimed before and is queued again is under way."""
    assert words_of(status, claims=claims, is_asking=is_asking) == words


def test_every_status_has_words() -> None:
    assert set(WORDS) == set(RunStatus)


def test_every_reason_of_a_stop_has_a_word_of_document_000() -> None:
    """B0-9: the reason is stored with the run, so a page says the same before and after a refresh."""
    stops = {
        name: interrupted_reason(name)
        for name, row in REASONS.items()
        if row.status in (RunStatus.PAUSED, RunStatus.INTERRUPTED)
    }
    assert stops == {
        "signal": "stopped",
        "manager": "stopped",
        "child": "stopped",
        "operator": "stopped",
        "restart": "restart",
        "crash": "restart",
        "limit": "cost_limit",
        "in_doubt": "in_doubt",
        "rate_limit": "rate_limit",
    }


def test_errors_of_agents_have_the_types_of_document_000() -> None:
    providers = [name for name in REASONS if name.startswith("provider_")]
    assert {name: error_type(name) for name in (*providers, "limit", "step_failed", "goal_unmet")} == {
        "provider_auth": "auth_failure",
        "provider_credit": "credit_exhaustion",
        "provider_forbidden": "forbidden",
        "provider_request": "invalid_request",
        "limit": "cost_limit",
        "step_failed": "agent_failed",
        "goal_unmet": "agent_failed",
    }


def test_a_limit_is_told_by_what_it_limits() -> None:
    """S0-31."""
    assert limit_words("tokens") == "Token limit reached. Pipeline paused."
    assert limit_words("cost") == "Cost limit reached. Pipeline paused."
    assert limit_words("calls") == "Agent call limit reached. Pipeline paused."
    assert limit_words("visits") == "Visit limit reached. Pipeline paused."


def test_states_of_steps_are_statuses_of_agents() -> None:
    met = ["success", "partial_success", "skipped"]
    assert [agent_status(state) for state in ("running", "retrying", "failed", "fail")] == [
        *("running", "retrying", "failed", "failed")
    ]
    assert {agent_status(state) for state in ("held", "interrupted", "in_doubt")} == {"stopped"}
    assert {agent_status(state) for state in met} == {"completed"}
