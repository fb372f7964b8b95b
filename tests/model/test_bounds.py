"""The bounds of numbers from outside."""

from __future__ import annotations

import math

import pytest

from onward.engine.control.retention import Policy
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput
from onward.model.values import CONCURRENCY, DURATION_S_MAX, EVENT, INTEGER_MAX, PRIORITY, WAIT, shown
from onward.store.port.runs import RunQuery
from onward.wiring import open_store

ODD: tuple[object, ...] = (10**20, -(10**20), 10**5_000, math.inf, math.nan, "3", None, True, [])


def test_a_whole_number_within_its_bounds_is_itself() -> None:
    for bounds in (PRIORITY, EVENT, CONCURRENCY):
        for value in (bounds.least, bounds.most):
            assert bounds.check(value, "it") == bounds.read(str(value)) == value
        for outside in (bounds.least - 1, bounds.most + 1):
            with pytest.raises(InvalidInput, match=r"^it is .*, which is not a whole number from"):
                bounds.check(outside, "it")
            with pytest.raises(ValueError, match="a whole number from"):
                bounds.read(str(outside))


@pytest.mark.parametrize("value", [*ODD, 1.5], ids=range(10))
def test_anything_else_is_no_whole_number(value: object) -> None:
    with pytest.raises(InvalidInput) as error:
        PRIORITY.check(value, "it")
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("value", [*ODD, -1, DURATION_S_MAX + 1], ids=range(11))
def test_anything_else_is_no_number_of_seconds(value: object) -> None:
    with pytest.raises(InvalidInput) as error:
        WAIT.check(value, "it")
    assert len(str(error.value)) < 200


def test_a_long_value_is_shown_in_short() -> None:
    assert shown("x" * 1_000) == "'" + "x" * 39 + "…"
    assert shown(10**5_000) == "a very large number"
    assert shown(INTEGER_MAX) == str(INTEGER_MAX)


@pytest.mark.anyio
@pytest.mark.parametrize("value", [math.inf, math.nan, 10**400, -1.0])
async def test_seconds_that_python_code_gives_are_held_against_the_bounds(value: float) -> None:
    with pytest.raises(InvalidInput, match="grace_s is"):
        StopSwitch(value)
    with pytest.raises(InvalidInput, match="lease_s is"):
        await open_store(":memory:", lease_s=value)
    if value != -1:
        with pytest.raises(InvalidInput, match="older_than_s is"):
            Policy(older_than_s=value)


@pytest.mark.parametrize("value", [10**20, -1, 1.5])
def test_numbers_that_python_code_gives_are_held_against_the_bounds(value: int) -> None:
    with pytest.raises(InvalidInput, match="limit is"):
        RunQuery(limit=value)
    with pytest.raises(InvalidInput, match="keep is"):
        Policy(keep=value)
