"""The graph as the planner uses it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.errors import InvalidPipeline
from onward.machine.definition import Definition
from onward.machine.plan.route import next_transition
from onward.model.events import Outcome, StepStatus, Transition
from onward.pipeline.build import build
from onward.pipeline.graph import BUILT_IN_TYPES, Graph, Node
from tests.machine.play import define
from tests.machine.walk import definitions


def test_ceilings_have_defaults_and_can_be_written() -> None:
    """C10: there is always a bound, written or not."""
    plain = define("start -> exit")
    assert (plain.max_visits, plain.max_steps, plain.max_reroutes) == (1_000, 100_000, 50)
    written = define("max_visits=1; max_steps=2; max_reroutes=0; start -> exit")
    assert (written.max_visits, written.max_steps, written.max_reroutes) == (1, 2, 0)


def test_a_ceiling_that_is_no_number_is_refused_before_there_is_a_definition() -> None:
    with pytest.raises(InvalidPipeline, match="max_visits"):
        define('max_visits="many"; start -> exit')


def test_which_nodes_need_a_handler() -> None:
    definition = define(
        "a [prompt=p]; t [shape=parallelogram]; c [shape=diamond]; h [shape=hexagon]; x [type=mine]; "
        "start -> a -> t -> c -> h -> x -> exit"
    )
    assert definition.handler_kinds == {"a": "codergen", "t": "tool", "x": "mine"}
    assert definition.kind("h") == "wait.human"


def test_a_start_and_an_exit_by_name_are_control_nodes() -> None:
    source = "digraph g { Start; end; Start -> end }"
    definition = Definition(build(source, file="<test>").graph)
    assert (definition.kind("Start"), definition.kind("end")) == ("start", "exit")
    assert definition.handler_kinds == {}


def test_a_graph_that_was_never_checked_has_the_kinds_that_are_written() -> None:
    definition = Definition(Graph(nodes={"a": Node("a"), "c": Node("c", {"shape": "diamond"})}))
    assert (definition.kind("a"), definition.kind("c")) == ("codergen", "conditional")


def test_goal_gates_are_known_once() -> None:
    definition = define("a [goal_gate=true]; b [goal_gate=false]; start -> a -> b -> exit")
    assert definition.goal_gates == {"a"}


@pytest.mark.slow
@given(definitions(), st.sampled_from([StepStatus.SUCCESS, StepStatus.PARTIAL_SUCCESS, StepStatus.SKIPPED]))
def test_an_only_way_is_the_way_that_choosing_finds(definition: Definition, status: StepStatus) -> None:
    """D25: the short cut takes the edge, for the reason, that the five steps would have given."""
    for node_id in definition.graph.nodes:
        only = definition.only_transition(node_id)
        assert only is None or only == next_transition(definition.graph, node_id, Outcome(status=status), {})


def test_there_is_no_only_way_where_there_is_a_choice_or_a_condition() -> None:
    definition = define(
        'a; b; c; start -> a; a -> b [condition="outcome=success"]; start -> b; b -> c -> exit; b -> exit'
    )
    assert [definition.only_transition(node) for node in ("start", "a", "b", "exit")] == [None] * 4
    assert definition.only_transition("c") == Transition(to="exit", reason="weight", edge=4)


def test_the_built_in_kinds_are_the_dialects() -> None:
    assert Definition.BUILT_IN == BUILT_IN_TYPES
