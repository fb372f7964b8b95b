"""Which context keys are the engine's."""

from __future__ import annotations

from typing import Any

import pytest

from onward.errors import InvalidInput, UnstorableValue
from onward.model.context import as_seen, check_given, check_updates

FREE = {
    "x": 1,
    "context.x": 1,
    "last_stage": "a",
    "last_response": "done",
    "work.item": 1,
    "human.gate.text": "yes",
    "parallel.fan_in.best_id": "a",
    "graphs": 1,
    "internals": 1,
    "outcome.detail": 1,
}


def test_every_other_key_is_free() -> None:
    """D48: the dialect's prefixes are a convention among handlers, but for the engine's own."""
    check_updates(FREE)
    check_given({**FREE, "outcome": "fail", "preferred_label": "Fix"})


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("graph.goal", "change 'goal' in its file"),
        ("graph.", "mirrors the pipeline"),
        ("current_node", "is reserved for the engine; use another name"),
        ("internal.retry_count.a", "is reserved for the engine; use another name"),
        ("internal.mine", "is reserved for the engine"),
    ],
)
def test_what_the_engine_keeps_is_set_by_nobody(key: str, advice: str) -> None:
    for check in (check_given, check_updates):
        with pytest.raises(InvalidInput, match=advice) as refused:
            check({"fine": 1, key: "x"})
        assert repr(key) in str(refused.value)


@pytest.mark.parametrize(("key", "field"), [("outcome", "status"), ("preferred_label", "preferred_label")])
def test_what_a_result_says_in_a_field_of_its_own_is_not_said_beside_it(key: str, field: str) -> None:
    with pytest.raises(InvalidInput, match=f"return a Result with {field}="):
        check_updates({key: "x"})


@pytest.mark.parametrize("value", [object(), {"deep": [float("nan")]}])
def test_what_cannot_be_stored_is_refused_here_too(value: Any) -> None:
    for check in (check_given, check_updates):
        with pytest.raises(UnstorableValue, match="context value 'odd'"):
            check({"odd": value})


def test_what_follows_from_the_state_hides_what_was_stored_under_its_name() -> None:
    stored = {"current_node": "old", "internal.retry_count.a": 9, "x": 1}
    seen = as_seen(stored, "a", 2)
    assert dict(seen) == {"current_node": "a", "internal.retry_count.a": 2, "x": 1}
    assert stored["current_node"] == "old"
