"""The frozen map behaves as a dict that is copied on every change, and costs less."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.model.context import _OVERLAY_MAX, FrozenMap

keys = st.sampled_from([f"k{number}" for number in range(12)])
plain = st.dictionaries(keys, st.integers())
changes = st.lists(
    st.one_of(
        st.tuples(st.just("set"), keys, st.integers()),
        st.tuples(st.just("all"), plain, st.none()),
        st.tuples(st.just("drop"), keys, st.none()),
    ),
    max_size=80,
)


def changed(
    found: FrozenMap[int], model: dict[str, int], change: Any
) -> tuple[FrozenMap[int], dict[str, int]]:
    kind, what, value = change
    if kind == "set":
        return found.with_(what, value), {**model, what: value}
    if kind == "all":
        return found.with_all(what), {**model, **what}
    return found.without(what), {key: old for key, old in model.items() if key != what}


@given(plain, changes)
def test_it_is_a_dict_that_is_copied_on_every_change(start: dict[str, int], steps: list[Any]) -> None:
    found, model = FrozenMap(start), dict(start)
    history: list[tuple[FrozenMap[int], str]] = []
    for change in steps:
        history.append((found, json.dumps(model)))
        found, model = changed(found, model, change)
        agree(found, model)
    for earlier, written in history:
        assert json.dumps(earlier.plain()) == written


def agree(found: FrozenMap[int], model: dict[str, int]) -> None:
    """The same content in the same order, by every way of looking."""
    assert found == model
    assert list(found) == list(model)
    assert len(found) == len(model)
    assert found.plain() == model
    assert list(found.items()) == list(model.items())
    for number in range(12):
        key = f"k{number}"
        assert (key in found) is (key in model)
        assert found.get(key) == model.get(key)
        assert found.get(key, -1) == model.get(key, -1)
        if key in model:
            assert found[key] == model[key]


def test_what_is_not_there_is_a_key_error() -> None:
    found = FrozenMap({"a": 1}).with_("b", 2)
    with pytest.raises(KeyError):
        found["c"]


def test_a_value_of_none_is_there() -> None:
    start: FrozenMap[Any] = FrozenMap({"a": 1})
    found = start.with_("a", None)
    assert found["a"] is None
    assert found.get("a", 5) is None


def test_no_change_is_the_same_map() -> None:
    found = FrozenMap({"a": 1})
    assert found.with_all({}) is found
    assert found.without("b") is found


def test_it_keeps_nothing_of_the_dict_it_was_made_of() -> None:
    source = {"a": 1}
    found = FrozenMap(source)
    source["a"] = 2
    found.plain()["a"] = 3
    assert found["a"] == 1


def test_a_map_with_many_changes_still_shares_its_base() -> None:
    """The cost of a change does not grow with the map: most changes copy only a small overlay."""
    found = FrozenMap({f"k{number}": number for number in range(10_000)})
    copied = 0
    for number in range(320):
        after = found.with_(f"n{number}", number)
        copied += after._base is not found._base
        found = after
    assert copied == 320 // (_OVERLAY_MAX + 1)
    assert len(found) == 10_320


def test_equal_maps_have_equal_hashes_and_say_what_they_are() -> None:
    one = FrozenMap({"a": 1}).with_("b", 2)
    other = FrozenMap({"b": 2, "a": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == "FrozenMap({'a': 1, 'b': 2})"
    assert one != {"a": 1}
    assert one != 5
    assert FrozenMap() == {}
