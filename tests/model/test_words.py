"""Values as people and commands see them: times, spans, tags, last lines, variables."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from onward.errors import InvalidInput
from onward.machine.fold.rows import run_row
from onward.model.context import FrozenMap, as_told, expand, unset_in
from onward.model.events import STDOUT, LastOutput, PrintedLine, branch_name
from onward.model.row import CallOpened
from onward.model.values import TAGS_MAX, Seconds, checked_tags, instant_of, read_rfc3339, rfc3339, span
from tests.machine.play import created

ZONE = timezone(timedelta(hours=2))


def test_a_time_is_read_as_it_was_written() -> None:
    at_us = 1_700_000_000_123_456
    assert rfc3339(at_us) == "2023-11-14T22:13:20.123456Z"
    assert read_rfc3339(rfc3339(at_us)) == at_us
    assert read_rfc3339("2023-11-15T00:13:20+02:00") == 1_700_000_000_000_000


def test_an_instant_is_the_same_in_every_zone_and_never_before_1970() -> None:
    assert instant_of(datetime(1970, 1, 1, 2, 0, 1, 5, tzinfo=ZONE)) == 1_000_005
    assert instant_of(datetime(1969, 1, 1, tzinfo=UTC)) == 0


@pytest.mark.parametrize("text", ["2023-11-14T22:13:20", "yesterday", ""])
def test_a_time_without_its_zone_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a time with its zone, such as 2030-01-31T09:00:00Z"):
        read_rfc3339(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 ms"),
        (0.0123, "12 ms"),
        (1.26, "1.3 s"),
        (59, "59 s"),
        (61, "1 min 01 s"),
        (3_660, "1 h 01 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_span_has_two_digits_that_matter(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_seconds_that_are_written_are_numbers_in_their_bounds() -> None:
    assert Seconds(1.0).read("1.5") == 1.5
    for text in ("0.5", "soon", "1e3", "inf"):
        with pytest.raises(ValueError, match=re.escape(str(Seconds(1.0)))):
            Seconds(1.0).read(text)


def test_a_run_has_a_limited_number_of_tags() -> None:
    assert checked_tags(["b", "a", "b"]) == ("a", "b")
    with pytest.raises(
        InvalidInput, match=f"a run has at most {TAGS_MAX} tags, and these are {TAGS_MAX + 1}"
    ):
        checked_tags([f"t{number}" for number in range(TAGS_MAX + 1)])


def test_the_last_lines_are_of_the_traceback_or_of_what_was_printed() -> None:
    lines = tuple(PrintedLine(stream=STDOUT, text=text) for text in "abc")
    assert LastOutput(lines=lines).ending(2) == ["b", "c"]
    assert LastOutput(lines=lines, traceback="x\ny\nz").ending(2) == ["y", "z"]


def test_every_run_has_a_branch_of_its_own() -> None:
    assert branch_name("r1") == "onward/r1"


def test_a_call_says_whether_it_reserved_and_whether_it_speaks() -> None:
    opened = CallOpened(step="a#1", call="m1", number=1)
    assert (opened.is_reserved, opened.is_streamed) == (False, False)


def test_a_map_with_many_changes_is_the_map_with_each_of_them() -> None:
    begun, changes = FrozenMap({"a": 1}), {f"k{number}": number for number in range(100)}
    assert begun.with_all({}) is begun
    assert dict(begun.with_all(changes)) == {"a": 1} | changes
    assert dict(begun) == {"a": 1}


def test_a_prompt_means_all_of_the_last_response() -> None:
    context = {"last_response": "Once upon"}
    assert as_told(context, "Once upon a time", "a")["last_response"] == "Once upon a time"
    assert as_told(context, "Another", "a")["last_response"] == "Once upon"


def test_a_value_is_found_behind_any_of_the_dots_in_its_name() -> None:
    context = {"a": {"x": 1}, "a.b": {"c": 2}}
    assert expand("${context.a.b.c} ${context.a.x}", context).text == "2 1"


def test_the_variables_that_a_command_does_not_get_are_named() -> None:
    assert unset_in("echo $ONWARD_CONTEXT_A $ONWARD_CONTEXT_B", {"ONWARD_CONTEXT_B": "1"}) == [
        "ONWARD_CONTEXT_A"
    ]


@pytest.mark.parametrize(("reason", "detail", "node"), [("dead_end", "b", "b"), ("", "b", None)])
def test_the_row_of_a_run_names_the_node_without_edges_at_which_it_ended(
    reason: str, detail: str, node: str | None
) -> None:
    row = run_row(created())
    assert row.ended_at_node is None
    assert msgspec.structs.replace(row, reason=reason, detail=detail).ended_at_node == node
