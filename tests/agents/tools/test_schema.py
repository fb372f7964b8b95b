"""Values are held against JSON Schemas in bounded time, and what is wrong is said in plain sentences."""

from __future__ import annotations

from typing import Any

import pytest

from onward.agents.tools.schema import (
    DEPTH_MAX,
    PROBLEMS_MAX,
    SENTENCE_CHARACTERS_MAX,
    check_schema,
    problems,
)
from onward.errors import InvalidInput


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


PROBLEMS: list[tuple[dict[str, Any], Any, str]] = [
    (of(path={"type": "string"}), {}, "`path` is missing"),
    (of(count={"type": "integer"}), {"count": "three"}, '`count` must be an integer, not "three"'),
    (of(count={"type": "integer"}), {"count": 1.5}, "`count` must be an integer, not 1.5"),
    (of(on={"type": "boolean"}), {"on": 1}, "`on` must be true or false, not 1"),
    ({"type": "object"}, 5, "the value must be an object, not 5"),
    (of(kind={"enum": ["a", "b"]}), {"kind": "c"}, '`kind` must be "a" or "b", not "c"'),
    (of(kind={"const": 3}), {"kind": 4}, "`kind` must be 3, not 4"),
    (of(n={"minimum": 1}), {"n": 0}, "`n` must be at least 1, not 0"),
    (of(n={"maxLength": 2}), {"n": "abc"}, '`n` must have at most 2 characters, not "abc"'),
    (of(n={"pattern": "^a"}), {"n": "b"}, '`n` must match the pattern ^a, not "b"'),
    (of(n={"type": ["string", "null"]}), {"n": 5}, "`n` must be a string or null, not 5"),
    (
        of(n={"anyOf": [{"type": "string"}, {"type": "null"}]}),
        {"n": 5},
        "`n` must be a string or null, not 5",
    ),
    (of(n={"anyOf": [of(a={}), {"type": "null"}]}), {"n": {}}, "`n.a` is missing"),
    (of(n={"oneOf": [{"type": "number"}, {"type": "integer"}]}), {"n": 5}, "`n` matches more than one"),
    (of(rows={"items": of(x={})}), {"rows": [{"x": 1}, {}]}, "`rows[1].x` is missing"),
    (
        {**of(path={}), "additionalProperties": False},
        {"path": "", "paht": ""},
        "`paht` is not known; use only `path`",
    ),
    ({"$defs": {"n": {"type": "integer"}}, **of(n={"$ref": "#/$defs/n"})}, {"n": ""}, "must be an integer"),
]


@pytest.mark.parametrize(("schema", "value", "told"), PROBLEMS)
def test_a_problem_is_told_in_one_sentence(schema: dict[str, Any], value: Any, told: str) -> None:
    check_schema(schema, "the schema")
    (sentence,) = problems(schema, value)
    assert told in sentence


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, None),
        (of(count={"type": "integer"}), {"count": 3, "more": True}),
        (of(count={"type": "integer"}), {"count": 3.0}),
        ({"$ref": "#"}, 3),
        (of(big={"type": "integer"}), {"big": 10**40}),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"}, "x"),
    ],
)
def test_a_value_that_fits_has_no_problems(schema: dict[str, Any], value: Any) -> None:
    assert problems(schema, value) == []


def test_sentences_are_few_and_short_however_wrong_a_value_is() -> None:
    found = problems({"items": {"type": "string"}}, list(range(1000)))
    assert len(found) == PROBLEMS_MAX + 1
    assert found[-1] == "and 990 more problems"
    (long,) = problems(of(a={"type": "integer"}), {"a": "x" * 10_000})
    assert len(long) <= SENTENCE_CHARACTERS_MAX


def doubling(levels: int) -> dict[str, Any]:
    """A schema whose every level applies the next one twice."""
    parts: dict[str, Any] = {f"a{levels}": {"type": "string"}}
    for level in range(levels):
        parts[f"a{level}"] = {"allOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2}
    return {"$defs": parts, "$ref": "#/$defs/a0"}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("string", "is not a JSON Schema"),
        ({"type": "text"}, "is not a JSON Schema at /type"),
        ({"pattern": "("}, "is not a JSON Schema at /pattern"),
        ({"pattern": "((a{1,1000}){1,1000}){1,1000}"}, "is not a JSON Schema at /pattern"),
        ({"$ref": "#/$defs/none"}, "does not exist"),
        ({"$schema": "https://example.com/own"}, "is not a JSON Schema"),
        ({"default": object()}, "not JSON"),
        ({"description": "x" * 300_000}, "bytes"),
        (nested(DEPTH_MAX), "nested deeper"),
        (doubling(40), "make it simpler"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=r"^the schema of `fetch` ") as refused:
        check_schema(schema, "the schema of `fetch`")
    assert told in str(refused.value)


@pytest.mark.parametrize("target", ["http://127.0.0.1:1/x", "file:notes.json", "other.json#/a"])
@pytest.mark.parametrize("name", ["$ref", "$dynamicRef"])
def test_nothing_outside_a_schema_is_read(name: str, target: str) -> None:
    """S22, S11: a schema of somebody else makes no requests."""
    with pytest.raises(InvalidInput, match="outside of it"):
        check_schema(of(a={"anyOf": [{name: target}]}), "it")


@pytest.mark.parametrize(
    "schema", [of(**{"$ref": {"type": "string"}}), {"enum": [{"$ref": "http://127.0.0.1:1/x"}]}]
)
def test_a_name_or_a_value_that_looks_like_a_reference_is_none(schema: dict[str, Any]) -> None:
    check_schema(schema, "it")


def test_a_value_that_is_nested_without_end_is_refused() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    assert problems({}, value) == [f"the value is nested deeper than {DEPTH_MAX} levels"]


def test_a_value_that_is_no_json_is_refused() -> None:
    (told,) = problems({"type": "string"}, "\ud800")
    assert told.startswith("the value is not JSON")


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("^(a+)+$", "must match the pattern"),  # linear: it needs no backtracking
        (r"^(?:a|aa)+(?=b)\b$", "that would take too long"),
    ],
)
def test_a_pattern_cannot_take_for_ever(pattern: str, told: str) -> None:
    (found,) = problems(of(a={"pattern": pattern}), {"a": "a" * 5_000 + "!"})
    assert told in found
