"""The inputs that a pipeline declares: what is given is checked and converted, what is missing is told."""

from __future__ import annotations

from typing import Any

import pytest

from onward.errors import InvalidInput, InvalidPipeline
from onward.pipeline.build import build
from onward.pipeline.graph import Graph
from onward.pipeline.inputs import inputs_of, take_inputs

DECLARED = """inputs="topic, pages, tone, draft, extra, ratio",
input.topic="What to write about",
input.pages.type=int, input.pages.default=3,
input.tone.type="formal | casual", input.tone.default=formal,
input.draft.type=bool, input.draft.default=true,
input.extra.type=json, input.extra.required=false,
input.ratio.type=number, input.ratio.default=0.5"""


def graph(attributes: str) -> Graph:
    source = f"""digraph site {{ graph [{attributes}]
    start [shape=Mdiamond]; exit [shape=Msquare]; a [prompt=p]; start -> a -> exit }}"""
    return build(source, file="<test>").graph


def taken(**given: Any) -> dict[str, Any]:
    return take_inputs(graph(DECLARED), given, may_be_more=False)


def test_what_is_not_given_has_its_default() -> None:
    assert taken(topic="tea") == {
        **{"topic": "tea", "pages": 3, "tone": "formal"},
        **{"draft": True, "ratio": 0.5},
    }


@pytest.mark.parametrize(
    ("name", "given", "is_taken_as"),
    [
        ("pages", "7", 7),
        ("pages", 7, 7),
        ("draft", "false", False),
        ("draft", False, False),
        ("tone", "casual", "casual"),
        ("ratio", "0.25", 0.25),
        ("ratio", 2, 2),
        ("extra", {"a": [1]}, {"a": [1]}),
        ("topic", "12", "12"),
    ],
)
def test_a_text_is_read_as_the_declared_type(name: str, given: Any, is_taken_as: Any) -> None:
    found = taken(**{"topic": "tea", name: given})[name]
    assert found == is_taken_as
    assert type(found) is type(is_taken_as)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "needs the input 'topic' (What to write about); its inputs are topic, pages, tone"),
        ({"topic": "t", "page": 1}, "has no input 'page'; its inputs are topic, pages"),
        (
            {"topic": "t", "pages": "many"},
            "the input 'pages' of pipeline 'site' is 'many'; write a whole number.",
        ),
        ({"topic": "t", "pages": 1.5}, "write a whole number."),
        ({"topic": "t", "pages": True}, "write a whole number."),
        ({"topic": "t", "pages": "9" * 5_000}, "write a whole number."),
        ({"topic": "t", "draft": "maybe"}, "write true or false."),
        ({"topic": "t", "tone": "rude"}, "write one of formal, casual."),
        ({"topic": "t", "ratio": "half"}, "write a number."),
        ({"topic": ["t"]}, "write a text."),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        taken(**given)
    assert says in str(refused.value)


def test_a_pipeline_that_declares_nothing_takes_what_it_is_given() -> None:
    assert take_inputs(graph("goal=x"), {"anything": 1}, may_be_more=False) == {"anything": 1}
    assert inputs_of(graph("goal=x")) == ()


def test_what_a_chat_knows_is_never_refused() -> None:
    assert taken(topic="t", intent="build", user_message="hello")["user_message"] == "hello"


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ('inputs="a, a"', "different names"),
        ('inputs="a", input.b=x', 'name b in inputs, as in inputs="a, b"'),
        ('inputs="a", input.a.typ=int', "write input.a, input.a.type, input.a.default or input.a.required"),
        ('inputs="a", input.a.type=integer', "text, int, number, bool, json"),
        ('inputs="a", input.a.type=int, input.a.default=many', "a whole number"),
        ('inputs="a", input.a.required=perhaps', "true or false"),
    ],
)
def test_a_declaration_that_cannot_be_read_is_an_error_with_what_to_write(attributes: str, says: str) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        graph(attributes)
    assert says in str(refused.value)
