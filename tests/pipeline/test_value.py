"""Attribute values and how one type is read from another."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onward.pipeline.source import (
    Duration,
    Value,
    as_boolean,
    as_count,
    as_duration_s,
    as_integer,
    as_positive,
    as_text,
    number,
    shown,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("0s", 0.0), ("30s", 30.0), ("15m", 900.0), ("2h", 7200.0), ("1d", 86400.0)],
)
def test_a_duration_is_a_number_with_its_unit(text: str, seconds: float) -> None:
    duration = Duration.parse(text)
    assert duration.seconds == seconds
    assert str(duration) == text


@pytest.mark.parametrize(
    "text", ["", "s", "5", "1.5s", "-1s", "5 s", "5S", "5w", "5s ", "٥s", "9" * 19 + "ms"]
)
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="a whole number with its unit, such as 250ms, 30s, 15m, 2h or 1d"):
        Duration.parse(text)


def test_a_duration_ends_at_a_hundred_years() -> None:
    assert Duration.parse("36500d").seconds == 36_500 * 86_400
    with pytest.raises(ValueError, match="at most a hundred years"):
        Duration.parse("36501d")


@pytest.mark.parametrize(
    ("reading", "value", "result"),
    [
        (as_integer, 3, 3),
        (as_integer, " -3 ", -3),
        (as_integer, 2**63 - 1, 2**63 - 1),
        (as_count, "0", 0),
        (as_positive, "1", 1),
        (as_boolean, True, True),
        (as_boolean, "false", False),
        (as_boolean, " true ", True),
        (as_duration_s, Duration.parse("5s"), 5.0),
        (as_duration_s, " 900s ", 900.0),
        (as_text, True, "true"),
        (as_text, False, "false"),
        (as_text, 1.5, "1.5"),
        (as_text, Duration.parse("5m"), "5m"),
        (as_text, "x", "x"),
        (number, "12", 12),
        (number, "-0.5", -0.5),
        (number, "3h", Duration.parse("3h")),
    ],
)
def test_a_value_is_read_as_another_type(
    reading: Callable[[Value], Value], value: Value, result: Value
) -> None:
    read = reading(value)
    assert read == result
    assert type(read) is type(result)


@pytest.mark.parametrize(
    ("reading", "value", "expected"),
    [
        (as_integer, "many", "a whole number such as 3"),
        (as_integer, True, "a whole number such as 3"),
        (as_integer, 1.0, "a whole number such as 3"),
        (as_integer, Duration.parse("1s"), "a whole number such as 3"),
        (as_integer, 2**63, "a whole number of at most 64 bits"),
        (as_integer, "9" * 30, "a whole number such as 3"),
        (as_count, -1, "a whole number of 0 or more"),
        (as_positive, "0", "a whole number of at least 1"),
        (as_boolean, "maybe", "true or false"),
        (as_boolean, "True", "true or false"),
        (as_boolean, 1, "true or false"),
        (as_duration_s, "soon", "a whole number with its unit"),
        (as_duration_s, 900, "a whole number with its unit"),
        (as_duration_s, True, "a whole number with its unit"),
        (number, "900sec", "an integer, a decimal number, or a whole number with its unit"),
    ],
)
def test_an_impossible_reading_says_what_was_expected(
    reading: Callable[[Value], Value], value: Value, expected: str
) -> None:
    with pytest.raises(ValueError, match=f"^{expected}"):
        reading(value)


def test_a_value_in_a_message_is_printable_and_short() -> None:
    assert shown("a\x1b[31m\n") == r"'a\x1b[31m\n'"
    assert shown(True) == "'true'"
    assert len(shown("x" * 1_000_000)) == 62
