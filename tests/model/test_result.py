"""What a handler hands back."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from onward.errors import InvalidInput
from onward.model.events import StepStatus
from onward.model.result import Result


def test_nothing_said_is_success_without_changes() -> None:
    result = Result()
    assert (result.status, dict(result.context_updates), result.retryable) == (StepStatus.SUCCESS, {}, True)


def test_success_carries_notes_and_changes() -> None:
    result = Result.success("done", answer=42)
    assert (result.status, result.notes, result.context_updates) == (
        StepStatus.SUCCESS,
        "done",
        {"answer": 42},
    )


@pytest.mark.parametrize("retryable", [True, False])
def test_a_failure_says_why_and_whether_trying_again_may_help(retryable: bool) -> None:
    result = Result.fail("no disk", retryable=retryable)
    assert (result.status, result.failure_reason, result.retryable) == (StepStatus.FAIL, "no disk", retryable)


def test_not_yet_is_a_result_of_its_own() -> None:
    result = Result.retry("busy")
    assert (result.status, result.failure_reason, result.retryable) == (StepStatus.RETRY, "busy", True)


def test_a_result_cannot_be_changed_afterwards() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Result().notes = "later"  # type: ignore[misc]


@pytest.mark.parametrize("status", ["fail", StepStatus.FAIL])
def test_a_status_may_be_said_by_its_name(status: Any) -> None:
    assert Result(status=status).status is StepStatus.FAIL


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"status": "fine"}, "'fine' of a result is not one of success, partial_success"),
        ({"status": None}, "None of a result is not one of"),
        ({"notes": None}, "notes of a result is a NoneType; use a string"),
        ({"failure_reason": ValueError("x")}, "failure_reason of a result is a ValueError"),
        ({"preferred_label": 5}, "preferred_label of a result is a int"),
        ({"suggested_next_ids": [1]}, "a suggested id of a result is a int"),
    ],
)
def test_what_could_not_be_read_again_is_refused_at_once(fields: dict[str, Any], why: str) -> None:
    """K22: an outcome that cannot be decoded would make the whole history unreadable."""
    with pytest.raises(InvalidInput, match=why):
        Result(**fields)


def test_half_a_character_in_what_a_step_says_does_not_lose_the_rest() -> None:
    """File names and foreign output come with such characters, and end up in messages."""
    result = Result(
        status=StepStatus.FAIL,
        failure_reason="no file 'caf\udce9'",
        notes="h\u00e9",
        preferred_label="\ud800",
        suggested_next_ids=["a\udc80"],  # type: ignore[arg-type]
    )
    assert (result.failure_reason, result.notes) == ("no file 'caf?'", "h\u00e9")
    assert (result.preferred_label, result.suggested_next_ids) == ("?", ("a?",))


def test_a_text_of_another_class_becomes_plain() -> None:
    assert type(Result(notes=StepStatus.FAIL).notes) is str
