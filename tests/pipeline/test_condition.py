"""The language of edge conditions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.errors import ConditionError
from onward.pipeline.condition import CLAUSES_MAX, Clause, Condition, parse_condition, resolver


def holds(
    text: str, *, outcome: str = "success", label: str = "", context: dict[str, Any] | None = None
) -> bool:
    """Whether a condition is true after a step."""
    return parse_condition(text).holds(resolver(outcome, label, context or {}))


def test_equals_compares_strings_exactly() -> None:
    """D59: case and spaces matter."""
    assert holds("outcome=success")
    assert holds("outcome = success")
    assert not holds("outcome=Success")
    assert not holds('outcome="success "')


def test_not_equals() -> None:
    """D60: and it is not mistaken for equals."""
    assert holds("outcome!=fail")
    assert not holds("outcome != success")
    assert holds("context.missing!=x")


def test_all_clauses_must_hold() -> None:
    """D61: joined by &&."""
    assert holds("outcome=success && context.n=3", context={"n": 3})
    assert not holds("outcome=success&&context.n=4", context={"n": 3})


@pytest.mark.parametrize("outcome", ["success", "retry", "fail", "partial_success"])
def test_outcome_is_the_status_in_lower_case(outcome: str) -> None:
    """D62: however the caller spells it."""
    assert holds(f"outcome={outcome}", outcome=outcome.upper())


def test_preferred_label_comes_from_the_outcome() -> None:
    """D63: not from the context."""
    assert holds('preferred_label="Fix it"', label="Fix it", context={"preferred_label": "other"})


@pytest.mark.parametrize(
    ("context", "value"),
    [
        ({"context.a.b": "with", "a.b": "without"}, "with"),
        ({"a.b": "without"}, "without"),
        ({"context.a.b": None, "a.b": "without"}, ""),
        ({"a": {"b": 1}}, ""),
        ({}, ""),
    ],
)
def test_context_keys_are_tried_with_and_without_their_prefix(context: dict[str, Any], value: str) -> None:
    """D64, C17: a missing key is the empty string."""
    assert resolver("success", "", context)("context.a.b") == value
    assert holds(f'context.a.b="{value}"', context=context)


@pytest.mark.parametrize("text", ["", "  ", "&&", " && && "])
def test_an_empty_condition_is_true_and_has_no_clauses(text: str) -> None:
    """D65: empty clauses are ignored."""
    assert parse_condition(text) == Condition()
    assert holds(text)


def test_empty_clauses_between_others_are_ignored() -> None:
    """D65: first, last and doubled."""
    assert parse_condition("&& a=1 && && b!=2 &&").clauses == (Clause("a", "=", "1"), Clause("b", "!=", "2"))


def test_an_unqualified_key_is_looked_up_in_the_context() -> None:
    """D64: without the prefix only."""
    assert holds("human.gate.selected=Y", context={"human.gate.selected": "Y"})
    assert not holds("selected=Y", context={"context.selected": "Y"})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("word", "word"),
        (True, "true"),
        (False, "false"),
        (12, "12"),
        (1.5, "1.5"),
        (None, ""),
        ([1, "é"], '[1,"é"]'),
        ({"b": 1, "a": None}, '{"a":null,"b":1}'),
    ],
)
def test_values_of_other_types_become_strings(value: Any, text: str) -> None:
    """D64: the same on every machine."""
    assert resolver("", "", {"x": value})("x") == text


@pytest.mark.parametrize(
    ("value", "truth"),
    [("yes", True), (True, True), (1, True), ("", False), (False, False), (0, False), (None, False)],
)
def test_a_key_alone_asks_whether_its_value_is_a_true_one(value: Any, truth: bool) -> None:
    """D59: a stored false must not count as true because it is written with five letters."""
    assert holds("context.ready", context={"ready": value}) is truth


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ('a="two words"', "two words"),
        ('a="x && y"', "x && y"),
        ('a="x=y!=z"', "x=y!=z"),
        (r'a="say \"hi\""', 'say "hi"'),
        ('a=""', ""),
        ("a=-3", "-3"),
        ("a=true", "true"),
        ("a=summary:high", "summary:high"),
        ("a=v1.2/x", "v1.2/x"),
        ("a=größe", "größe"),
    ],
)
def test_literals(text: str, literal: str) -> None:
    """D59: quoted, integer, boolean and bare."""
    assert parse_condition(text).clauses == (Clause("a", "=", literal),)


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("a=1 || b=2", 4, "'||' is not allowed: OR is not supported; write one edge per alternative"),
        ("a==1", 2, "'==' is not allowed: write a single '='"),
        ("!a", 0, "'!' is not allowed: NOT is not supported; write key!=value"),
        ("a > 1", 2, "'>' is not allowed: numbers cannot be compared; only = and != are supported"),
        ("a < 1", 2, "'<' is not allowed: numbers cannot be compared; only = and != are supported"),
        ("(a=1)", 0, "'(' is not allowed: parentheses are not supported"),
        ("a=1 & b=2", 4, "'&' is not allowed: clauses are joined by '&&'"),
        ("a=", 2, 'a value is missing; write "" for the empty string'),
        ("a= && b=1", 3, 'a value is missing; write "" for the empty string'),
        ('a="x', 2, "the string that starts here is never closed"),
        ("a=two w", 6, "expected '&&' or the end of the condition, found 'w'; quote a value that has spaces"),
        (
            "a like b",
            2,
            "expected '&&' or the end of the condition, found 'like'; quote a value that has spaces",
        ),
        ("=x", 0, "expected a key such as outcome, preferred_label or context.name, found '='"),
        ("a='x'", 2, 'expected a value, found "\'"'),
    ],
)
def test_what_the_language_lacks_is_refused_at_its_place(text: str, offset: int, message: str) -> None:
    """D18, V7, S9: no OR, no NOT, no comparison, no calls."""
    with pytest.raises(ConditionError) as caught:
        parse_condition(text)
    assert (caught.value.offset, caught.value.message) == (offset, message)


def test_a_condition_may_have_as_many_clauses_as_the_limit() -> None:
    """S22: it is asked again on every step."""
    assert len(parse_condition("a=1&&" * CLAUSES_MAX).clauses) == CLAUSES_MAX
    with pytest.raises(ConditionError, match="more than 100 clauses"):
        parse_condition("a=1&&" * (CLAUSES_MAX + 1))


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["a", "=", "!=", "&&", '"', "x y", " ", "\\", "|"])).map("".join)
)
def test_any_text_is_a_condition_or_an_error_with_a_place(text: str) -> None:
    """S22: never a traceback."""
    try:
        holds(text)
    except ConditionError as error:
        offset = error.offset
    else:
        offset = 0
    assert 0 <= offset <= len(text)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.text(max_size=10), min_size=1, max_size=4
    )
)
def test_a_condition_written_from_a_context_holds_in_it(context: dict[str, str]) -> None:
    """D59, D61: and a changed value makes it false."""

    def quoted(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"')

    text = " && ".join(f'context.{key}="{quoted(value)}"' for key, value in context.items())
    assert holds(text, context=context)
    first = next(iter(context))
    assert not holds(text, context={**context, first: context[first] + "x"})
