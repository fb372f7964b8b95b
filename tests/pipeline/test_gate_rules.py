"""Human gates are checked before a run, not when somebody is to be asked."""

from __future__ import annotations

import pytest

from onward.errors import InvalidPipeline
from onward.pipeline.build import build

SOURCE = """digraph g {{ start [shape=Mdiamond]; exit [shape=Msquare]; start -> ask
a [prompt=p]; b [prompt=p]; ask -> a; a -> b -> exit
ask [shape=hexagon, {attrs}]; {edges} }}"""


def wrong(attrs: str, edges: str = "") -> list[tuple[str, str, int]]:
    with pytest.raises(InvalidPipeline) as refused:
        build(SOURCE.format(attrs=attrs, edges=edges), file="<test>")
    return [(found.rule, found.message, found.line) for found in refused.value.diagnostics]


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ("human.type=essay", "human.type of node 'ask' is 'essay'"),
        ("human.timeout=soon", "human.timeout of node 'ask' is 'soon'"),
        ("human.timeout=10", "human.timeout of node 'ask' is '10'"),
        ("human.remind=0s", "human.remind of node 'ask' is '0s'"),
        ("human.on_timeout=retry", "human.on_timeout of node 'ask' is 'retry'"),
    ],
)
def test_an_attribute_of_the_wrong_type_is_an_error_once(attrs: str, expected: str) -> None:
    assert wrong(attrs) == [("attribute_type", expected, 3)]


def test_a_default_choice_that_nobody_offers_is_an_error_with_what_is_offered() -> None:
    assert wrong("human.default_choice=exit", "ask -> b") == [
        (
            "human_gate",
            "human.default_choice of ask is 'exit', which is none of: a, b",
            3,
        )
    ]


@pytest.mark.parametrize("edges", ["ask -> b", "ask -> b [label=Yes]; ask -> exit [label=No]"])
def test_a_yes_no_question_whose_edges_are_neither_is_an_error(edges: str) -> None:
    [(rule, message, line)] = wrong("human.type=yes_no", edges)
    assert (rule, line) == ("human_gate", 3)
    assert message == (
        "human gate ask is of type yes_no, but its edges are not a yes and a no; "
        "label one Yes and at most one other No"
    )


@pytest.mark.parametrize(
    ("attrs", "edges"),
    [
        ("human.type=YES-NO, human.default_choice=no, human.timeout=1h", ""),
        ("human.type=freeform, human.remind=10m", "ask -> b"),
        ("human.type=confirmation, human.default_choice=b, timeout=5m", "ask -> b [label=Cancel]"),
        ("human.on_timeout=reject, human.timeout=1d", ""),
    ],
)
def test_a_gate_that_can_be_asked_is_no_finding(attrs: str, edges: str) -> None:
    build(SOURCE.format(attrs=attrs, edges=edges), file="<test>")
