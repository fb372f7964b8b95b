"""Where a run begins and ends: which nodes count, and what is said when none does."""

from __future__ import annotations

import pytest

from onward.pipeline.build import build
from tests.pipeline.reading import body, findings, place


def test_a_type_names_the_start_and_the_exit() -> None:
    """Many files write `type=exit` and leave the shape alone."""
    pipeline = build("digraph { a [type=start]; b [prompt=p]; c [type=exit]; a -> b -> c }", file="<test>")
    assert (pipeline.graph.start_id, pipeline.graph.exit_id) == ("a", "c")
    assert pipeline.warnings == ()


def test_a_shape_and_a_name_count_before_a_type() -> None:
    """A stored run keeps the exit that it began with."""
    assert body("a [shape=Msquare]; b [type=exit]").exit_id == "a"
    assert body("end; b [type=exit]").exit_id == "end"


@pytest.mark.parametrize("first", ["a [shape=Msquare]", "exit", "a [type=exit]"])
def test_a_second_exit_is_found_however_it_is_written(first: str) -> None:
    (found,) = findings(f"digraph {{\n{first}\nb [type=exit]\n}}", "terminal_node")
    assert place(found).startswith("3:1 terminal_node the pipeline has 2 exit nodes: ")


@pytest.mark.parametrize(
    ("statements", "fix"),
    [
        ("start -> Exit; start; Exit", "did you mean 'Exit'? Write Exit [shape=Msquare]"),
        ("start -> x; start; x [shape=msquare]", "did you mean 'x'? Write x [shape=Msquare]"),
        (
            "Done; Finish; start; start -> Done; start -> Finish",
            "did you mean one of 'Done', 'Finish'? Write Done [shape=Msquare]",
        ),
        (
            "start; ship; drop; start -> ship; start -> drop",
            "no edge leaves 'ship', 'drop': write exit [shape=Msquare] and ship -> exit",
        ),
        ("start; a; start -> a -> start", "give one node shape=Msquare, or name it 'exit'"),
        ("a", "give one node shape=Msquare, or name it 'exit'"),
    ],
)
def test_without_an_exit_the_advice_names_the_nodes_that_may_be_meant(statements: str, fix: str) -> None:
    (found,) = findings(f"digraph {{ {statements} }}", "terminal_node")
    assert found.fix == fix


def test_without_a_start_the_advice_names_the_node_that_may_be_meant() -> None:
    (found,) = findings("digraph { Begin; exit; Begin -> exit }", "start_node")
    assert found.fix == "did you mean 'Begin'? Write Begin [shape=Mdiamond]"
    (found,) = findings("digraph { work; exit; work -> exit }", "start_node")
    assert found.fix == "give one node shape=Mdiamond, or name it 'start'"
