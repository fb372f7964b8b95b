"""Context values: what may be stored comes back exactly; what cannot, is refused when it is set."""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onward.errors import UnstorableValue
from onward.model.context import (
    DEPTH_MAX,
    changes_between,
    check_changes,
    check_value,
    copied,
    grow,
    same,
)

texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
small = st.recursive(
    st.sampled_from([0, 1, True, False, 1.0, 0.0, -0.0, None, "", "1", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)
contexts = st.dictionaries(st.sampled_from(["a", "b", "c"]), small, max_size=3)


class Colour(enum.IntEnum):
    RED = 1


class Name(str):
    __slots__ = ()


class Weight(float):
    pass


def shape(value: Any) -> Any:
    """A value with the type of everything in it."""
    match value:
        case list():
            return [shape(item) for item in value]
        case dict():
            return {key: shape(item) for key, item in value.items()}
        case float():
            return float, value.hex()
        case _:
            return type(value), value


# -- what may be stored --------------------------------------------------------------------------------


@example(-(2**63))
@example(2**64 - 1)
@given(values)
def test_what_is_allowed_comes_back_exactly(value: Any) -> None:
    """K22: with its type, all the way down, in order."""
    check_changes({"key": value})
    [back] = copied({"key": value}).values()
    assert shape(back) == shape(value)
    assert list(back) == list(value) if isinstance(value, dict) else True


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (2**64, "of more than 64 bits"),
        (-(2**63) - 1, "of more than 64 bits"),
        (math.nan, "which JSON cannot represent"),
        (math.inf, "which JSON cannot represent"),
        (-math.inf, "which JSON cannot represent"),
        ("\ud800", "a lone surrogate"),
        ({"\udfff": 1}, "a lone surrogate"),
        ({1: 2}, "has the key 1; keys must be strings"),
        ({Name("k"): 2}, "keys must be strings"),
        ((1, 2), "is a tuple, which cannot be stored exactly"),
        ({1, 2}, "is a set"),
        (b"bytes", "is a bytes"),
        (Decimal(1), "is a Decimal"),
        (object(), "is a object"),
        (OrderedDict(a=1), "is a OrderedDict"),
        (Colour.RED, "is a Colour, which cannot be stored exactly"),
        (Weight(1.5), "is a Weight, which cannot be stored exactly"),
        (Name("n"), "is a Name; store a plain string"),
    ],
)
def test_what_would_not_come_back_is_refused(value: Any, why: str) -> None:
    """K22: at the moment it is set, naming the place."""
    with pytest.raises(UnstorableValue, match=why) as refused:
        check_changes({"key": value})
    assert str(refused.value).startswith("context value 'key'")
    with pytest.raises(UnstorableValue, match=why) as refused:
        check_changes({"key": [0, {"in": value}]})
    assert str(refused.value).startswith("context value 'key'[1].in")


@pytest.mark.parametrize("key", ["", 5, None, Name("k"), "\ud800"])
def test_a_context_key_is_a_plain_text(key: Any) -> None:
    with pytest.raises(UnstorableValue, match="context key"):
        check_changes({key: 1})


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"k": inner}])
def test_nesting_has_a_limit(wrap: Any) -> None:
    value: Any = 1
    for _ in range(DEPTH_MAX):
        value = wrap(value)
    check_value(value, "it")
    assert shape(copied({"k": value})["k"]) == shape(value)
    with pytest.raises(UnstorableValue, match=f"deeper than {DEPTH_MAX} levels; flatten it"):
        check_value(wrap(value), "it")


def test_a_copy_shares_nothing() -> None:
    source: dict[str, Any] = {"list": [1, [2]]}
    copy = copied(source)
    source["list"][1].append(3)
    assert copy == {"list": [1, [2]]}


# -- what has changed ----------------------------------------------------------------------------------


@given(small, small)
def test_same_means_equal_with_the_same_types(one: Any, other: Any) -> None:
    """1 is not 1.0 and not true, and 0.0 is not -0.0."""
    assert same(one, other) is (msgspec.json.encode(one) == msgspec.json.encode(other))
    assert same(one, one)


@given(contexts, contexts)
def test_a_change_that_is_stored_can_be_made_again(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Setting what is fresh and appending what has grown gives exactly the values that were handed over."""
    fresh, grown = changes_between(before, after)
    rebuilt = {**before, **fresh, **{key: grow(before[key], tail) for key, tail in grown.items()}}
    assert shape(rebuilt) == shape({**before, **after})
    assert not fresh.keys() & grown.keys()


@given(contexts, contexts)
def test_nothing_is_stored_that_has_not_changed(before: dict[str, Any], after: dict[str, Any]) -> None:
    fresh, grown = changes_between(before, after)
    for key in after:
        unchanged = key in before and msgspec.json.encode(before[key]) == msgspec.json.encode(after[key])
        assert (key not in fresh and key not in grown) is unchanged


@given(st.lists(small, min_size=1, max_size=4), st.lists(small, min_size=1, max_size=4))
def test_a_list_that_grew_costs_what_is_new(old: list[Any], new: list[Any]) -> None:
    """Design §2: a conversation handed over whole at every step does not cost its square."""
    assert changes_between({"k": old}, {"k": copied({"k": old})["k"] + new}) == ({}, {"k": new})


@given(st.text(min_size=1, max_size=4), st.text(min_size=1, max_size=4))
def test_a_text_that_grew_costs_what_is_new(old: str, new: str) -> None:
    assert changes_between({"k": old}, {"k": old + new}) == ({}, {"k": new})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([1], [1.0, 2]),  # equal to Python, not the same value
        ([1, 2], [1]),
        ([2], [1, 2]),
        ([], [1]),  # nothing to grow from
        ("", "a"),
        ("b", "ab"),
        ([1], "12"),
        ("1", [1, 2]),
        ({"a": 1}, {"a": 1, "b": 2}),
        (1, 12),
        (None, [1]),
    ],
)
def test_what_did_not_simply_grow_is_stored_whole(old: Any, new: Any) -> None:
    assert changes_between({"k": old}, {"k": new}) == ({"k": new}, {})
