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
            "human.default_choice of ask is 'exit', which is not one of: a, b",
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


# -- data and options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("fast", "write a JSON object such as"),
        (r"{\"a\": }", "(Expecting value: line 1 column 7 (char 6))"),
        ("[1]", "write a JSON object such as"),
        (r"{\"a\": 1e999}", "JSON cannot represent"),
        ("{" + " " * 9_000 + "}", "write a JSON object of at most 8,192 bytes"),
    ],
)
def test_data_of_an_edge_that_are_no_json_object_are_an_error_at_their_place(data: str, why: str) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        build(SOURCE.format(attrs="label=Go", edges=f'ask -> b [data="{data}"]'), file="<test>")
    [found] = refused.value.diagnostics
    assert (found.rule, found.edge, found.line) == ("attribute_type", ("ask", "b"), 3)
    assert found.message.startswith("data of edge ask -> b is ")
    assert found.fix is not None
    assert why in found.fix


def warned(attrs: str, edges: str) -> list[tuple[str, str]]:
    built = build(SOURCE.format(attrs=attrs, edges=edges), file="<test>")
    return [(found.rule, found.message) for found in built.warnings if found.rule != "loop_bounded"]


def test_data_where_nobody_chooses_have_no_effect_and_that_is_said() -> None:
    edges = r'ask -> b [label=Back, data="{\"a\": 1}"]; b -> a [data="{}", condition="outcome=fail"]'
    assert warned("label=Go", edges) == [
        ("attribute_unused", "data of edge b -> a has no effect: node 'b' is an agent")
    ]


def test_data_on_the_edge_of_options_have_no_effect_and_that_is_said() -> None:
    source = SOURCE.replace("ask -> a;", "ask -> a [data=DATA];").replace("DATA", r'"{{\"a\": 1}}"')
    built = build(source.format(attrs="label=Go, human.options=ways", edges=""), file="<test>")
    assert [found.message for found in built.warnings] == [
        "data of edge ask -> a has no effect: its options have their own"
    ]


def test_options_need_one_edge_without_a_label() -> None:
    [(rule, message, _)] = wrong("label=Go, human.options=ways", "ask -> b")
    assert (rule, message) == (
        "human_gate",
        "human gate ask takes options from 'ways', which all lead along its edge without a label; "
        "it has 2 such edges, so write one and label the others",
    )
    assert warned("label=Go, human.options=ways", "ask -> b [label=Other]") == []
    assert warned("label=Go, human.options=ways", 'ask -> b [condition="outcome=fail"]') == []


def test_only_a_multiple_choice_takes_options() -> None:
    [(rule, message, _)] = wrong("label=Go, human.options=ways, human.type=yes_no")
    assert (rule, message) == (
        "human_gate",
        "human gate ask is of type yes_no, which has no options; "
        "remove human.options, or write human.type=multiple_choice",
    )


def test_the_default_of_options_is_where_they_lead_or_a_written_choice() -> None:
    assert warned("human.options=ways, human.default_choice=a, label=Go", "ask -> b [label=Other]") == []
    [(_, message, _)] = wrong("human.options=ways, human.default_choice=Quiet, label=Go")
    assert message == "human.default_choice of ask is 'Quiet', which is not one of: a"


def test_a_prompt_may_name_the_data_of_a_choice() -> None:
    edges = (
        'ask -> c [label=See]; c [prompt="Use ${human.gate.data.colors} of $human and ${human.gate.data}"]'
    )
    assert warned("label=Go", edges + "; c -> exit") == []
