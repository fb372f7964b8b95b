"""`status.json` from outside: a closed schema, and one sentence about what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onward.errors import InvalidInput
from onward.model.events import StepStatus
from onward.model.result import Result
from onward.receipts.run_directory import STATUS_BYTES_MAX, as_reported, read_status


def read(**fields: Any) -> Result:
    return as_reported(
        Result(context_updates={"kept": 1}), read_status(json.dumps(fields).encode(), "status.json")
    )


def test_all_that_the_dialect_knows_is_understood() -> None:
    found = read(
        outcome="partial_success",
        preferred_label="Go",
        suggested_next_ids=["x", "y"],
        context_updates={"new": [1]},
        notes="half of it",
    )
    assert found.status is StepStatus.PARTIAL_SUCCESS
    assert (found.preferred_label, found.suggested_next_ids, found.notes) == ("Go", ("x", "y"), "half of it")
    assert found.context_updates == {"kept": 1, "new": [1]}


def test_the_other_name_of_the_label_is_understood() -> None:
    assert read(outcome="success", preferred_next_label="Go").preferred_label == "Go"
    assert read(outcome="success", preferred_label="Go", preferred_next_label="Go").preferred_label == "Go"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"outcome": "fail"}, "its status.json says fail"),
        ({"outcome": "retry", "notes": "not yet"}, "not yet"),
        ({"outcome": "fail", "notes": "n", "failure_reason": "why"}, "why"),
        ({"outcome": "success", "failure_reason": "ignored"}, ""),
    ],
)
def test_a_failure_has_a_reason(fields: dict[str, Any], reason: str) -> None:
    found = read(**fields)
    assert (found.status.value, found.failure_reason) == (fields["outcome"], reason)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"\xff", "malformed"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field `outcome`"),
        (b'{"outcome":"skipped"}', "Invalid enum value 'skipped'"),
        (b'{"outcome":"done"}', "Invalid enum value 'done'"),
        (b'{"outcome":"success","surprise":1}', "unknown field `surprise`"),
        (b'{"outcome":"success","notes":1}', "Expected `str`, got `int`"),
        (b'{"outcome":"success","suggested_next_ids":"x"}', "Expected `array`, got `str`"),
        (b'{"outcome":"success","preferred_label":"A","preferred_next_label":"B"}', "two labels"),
        (b'{"outcome":' + b"[" * 100_000, "does not say how the step ended"),
        (b" " * (STATUS_BYTES_MAX + 1), "has more than"),
    ],
)
def test_a_malformed_one_is_named_with_its_problem(content: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=r"^/runs/x/status\.json ") as found:
        read_status(content, "/runs/x/status.json")
    assert why in str(found.value)
