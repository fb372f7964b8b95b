"""`$name` and `${context.key}`: values of the context in a text."""

from __future__ import annotations

import pytest

from onward.errors import InvalidInput
from onward.model.context import OMITTED, TEXT_CHARACTERS_MAX, context_variables, escaped, expand, references

CONTEXT = {
    "name": "Ada",
    "tool.output": "PASS",
    "graph.goal": "Ship",
    "plan": {"title": "T", "steps": [1, 2]},
    "none": None,
    "yes": True,
    "context.odd": "prefixed",
    "dollar": "$name",
}


@pytest.mark.parametrize(
    ("text", "expanded", "unknown"),
    [
        ("Dear $name.", "Dear Ada.", ()),
        ("${name}s", "Adas", ()),
        ("${context.name}", "Ada", ()),
        ("${tool.output} ${context.tool.output}", "PASS PASS", ()),
        ("$goal ${goal} ${graph.goal}", "Ship Ship Ship", ()),
        ("${plan.title} ${context.plan.steps} $plan", 'T [1,2] {"steps":[1,2],"title":"T"}', ()),
        ("<$none> $yes", "<> true", ()),
        ("${context.odd}", "prefixed", ()),
        ("$dollar", "$name", ()),  # a value is text: nothing in it is expanded
        ("$$name costs $$5 and $5", "$name costs $5 and $5", ()),
        ("$tool.output", "$tool.output", ("tool",)),
        (
            "$gone ${context.gone} ${a:-b} ${ $",
            "$gone ${context.gone} ${a:-b} ${ $",
            ("gone", "context.gone"),
        ),
        ("$gone $gone", "$gone $gone", ("gone",)),
    ],
)
def test_a_reference_becomes_the_value_and_an_unknown_one_stays(
    text: str, expanded: str, unknown: tuple[str, ...]
) -> None:
    assert expand(text, CONTEXT) == (expanded, unknown)


def test_an_escaped_text_expands_to_itself() -> None:
    for text in ("$name $$ ${name} $", "plain"):
        assert expand(escaped(text), CONTEXT) == (text, ())


def test_references_are_found_without_values() -> None:
    assert list(references("$a ${context.b} $$c $a")) == [("a", 0), ("context.b", 3), ("a", 20)]


def test_a_text_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(InvalidInput, match="more than"):
        expand("$name" * 9, {"name": "x" * (TEXT_CHARACTERS_MAX // 8)})


def test_values_become_environment_variables_and_never_replace_others() -> None:
    found = context_variables({"tool.output": "a\nb", "PATH": "/evil", "n": 3, "plan": {"a": 1}})
    assert found == {
        "ONWARD_CONTEXT_TOOL_OUTPUT": "a\nb",
        "ONWARD_CONTEXT_PATH": "/evil",
        "ONWARD_CONTEXT_N": "3",
        "ONWARD_CONTEXT_PLAN": '{"a":1}',
    }


def test_what_no_environment_can_hold_is_named() -> None:
    found = context_variables({"big": "x" * 100_000, "nul": "a\0b", "a.b": 1, "a_b": 2, "ok": "1"})
    assert found == {
        "ONWARD_CONTEXT_OK": "1",
        OMITTED: "ONWARD_CONTEXT_A_B ONWARD_CONTEXT_BIG ONWARD_CONTEXT_NUL",
    }
    many = context_variables({f"k{number}": "x" * 30_000 for number in range(40)})
    assert sum(map(len, many.values())) < 300_000
