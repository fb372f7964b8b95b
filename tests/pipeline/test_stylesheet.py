"""The grammar of model stylesheets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.errors import StylesheetError
from onward.pipeline.stylesheet import RULES_MAX, Property, Selector, StyleRule, parse_stylesheet


def test_rules_are_read_in_order_with_their_places() -> None:
    """V8, D66: every kind of selector and of value."""
    text = """
        * { llm_model: claude-opus-4-6; llm_provider: "my \\"own\\"" }
        box { reasoning_effort: low; }
        .loop-a { llm_model: openai/gpt-5.1 }
        #review_2 { }
    """
    rules = parse_stylesheet(text)
    assert [(rule.selector.kind, rule.selector.name, rule.selector.specificity) for rule in rules] == [
        ("all", "*", 0),
        ("shape", "box", 1),
        ("class", "loop-a", 2),
        ("id", "review_2", 3),
    ]
    assert [[(item.name, item.value) for item in rule.properties] for rule in rules] == [
        [("llm_model", "claude-opus-4-6"), ("llm_provider", 'my "own"')],
        [("reasoning_effort", "low")],
        [("llm_model", "openai/gpt-5.1")],
        [],
    ]
    for rule in rules:
        assert text[rule.selector.offset :].lstrip(".#").startswith(rule.selector.name)
        assert all(text[item.offset :].startswith(item.name) for item in rule.properties)


def test_spaces_are_optional() -> None:
    """V8: and the last semicolon too."""
    assert parse_stylesheet("*{llm_model:m}") == (
        StyleRule(Selector("all", "*", 0), (Property("llm_model", "m", 2),)),
    )


@pytest.mark.parametrize("text", ["", " \n "])
def test_an_empty_stylesheet_has_no_rules(text: str) -> None:
    """V8: the attribute may be left empty."""
    assert parse_stylesheet(text) == ()


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("{ }", 0, "expected a selector: *, a shape, .class (lower case) or #id, found '{'"),
        (".Loop { }", 0, "expected a selector: *, a shape, .class (lower case) or #id, found '.'"),
        ("#1 { }", 0, "expected a selector: *, a shape, .class (lower case) or #id, found '#'"),
        ("box llm_model: m", 4, "expected '{', found 'l'"),
        ("box", 3, "expected '{', found the end"),
        ("* {", 2, "this '{' is never closed"),
        ("* { llm_model: m", 2, "this '{' is never closed"),
        ("* { ; }", 4, "expected a property, found ';'"),
        (
            "* { color: red }",
            4,
            "unknown property 'color'; use one of llm_model, llm_provider, reasoning_effort, agent_program",
        ),
        ("* { llm_model m }", 14, "expected ':', found 'm'"),
        ("* { llm_model: }", 15, "expected a value, found '}'"),
        ('* { llm_model: "m }', 15, "expected a value, found '\"'"),
        ("* { llm_model: a b }", 17, "expected ';' or '}', found 'b'"),
        ("* { } }", 6, "expected a selector: *, a shape, .class (lower case) or #id, found '}'"),
    ],
)
def test_a_fault_is_named_at_its_place(text: str, offset: int, message: str) -> None:
    """V8: what was expected, and what stands there."""
    with pytest.raises(StylesheetError) as caught:
        parse_stylesheet(text)
    assert (caught.value.offset, caught.value.message) == (offset, message)


def test_a_stylesheet_may_have_as_many_rules_as_the_limit() -> None:
    """S22: a bomb of empty rules is refused."""
    assert len(parse_stylesheet("*{}" * RULES_MAX)) == RULES_MAX
    with pytest.raises(StylesheetError, match="more than 1,000 rules"):
        parse_stylesheet("*{}" * (RULES_MAX + 1))


@given(
    st.lists(
        st.sampled_from(["*", "box", ".a", "#b", "{", "}", "llm_model", ":", ";", '"', " ", "\\", "x"])
    ).map("".join)
)
def test_any_text_is_a_stylesheet_or_an_error_with_a_place(text: str) -> None:
    """S22: never a traceback."""
    try:
        parse_stylesheet(text)
    except StylesheetError as error:
        offset = error.offset
    else:
        offset = 0
    assert 0 <= offset <= len(text)
