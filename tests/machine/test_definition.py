"""The graph as the planner uses it."""

from __future__ import annotations

import pytest

from onward.errors import InvalidInput
from onward.machine.definition import MAX_REROUTES, MAX_STEPS, MAX_VISITS, Definition
from onward.pipeline.build import build
from onward.pipeline.graph import BUILT_IN_TYPES, Graph, Node
from tests.machine.play import define


def test_ceilings_have_defaults_and_can_be_written() -> None:
    """C10: there is always a bound, written or not."""
    plain = define("start -> exit")
    assert (plain.max_visits, plain.max_steps, plain.max_reroutes) == (MAX_VISITS, MAX_STEPS, MAX_REROUTES)
    written = define("max_visits=1; max_steps=2; max_reroutes=0; start -> exit")
    assert (written.max_visits, written.max_steps, written.max_reroutes) == (1, 2, 0)


def test_a_ceiling_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidInput, match="max_visits"):
        _ = define('max_visits="many"; start -> exit').max_visits


def test_which_nodes_need_a_handler() -> None:
    definition = define(
        "a [prompt=p]; t [shape=parallelogram]; c [shape=diamond]; h [shape=hexagon]; x [type=mine]; "
        "start -> a -> t -> c -> h -> x -> exit"
    )
    assert definition.effect_kinds == {"a": "codergen", "t": "tool", "x": "mine"}
    assert definition.kind("h") == "wait.human"


def test_a_start_and_an_exit_by_name_are_control_nodes() -> None:
    source = "digraph g { Start; end; Start -> end }"
    definition = Definition(build(source, file="<test>").graph)
    assert (definition.kind("Start"), definition.kind("end")) == ("start", "exit")
    assert definition.effect_kinds == {}


def test_a_graph_that_was_never_checked_has_the_kinds_that_are_written() -> None:
    definition = Definition(Graph(nodes={"a": Node("a"), "c": Node("c", {"shape": "diamond"})}))
    assert (definition.kind("a"), definition.kind("c")) == ("codergen", "conditional")


def test_goal_gates_are_known_once() -> None:
    definition = define("a [goal_gate=true]; b [goal_gate=false]; start -> a -> b -> exit")
    assert definition.goal_gates == {"a"}


def test_the_built_in_kinds_are_the_dialects() -> None:
    assert Definition.BUILT_IN == BUILT_IN_TYPES
