"""Where the branches of a parallel node meet (D43, D44, C8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.pipeline.branches import joins
from onward.pipeline.graph import Graph
from tests.chance import examples
from tests.pipeline.reading import body


def flow(*edges: str, more: str = "") -> Graph:
    """A graph whose nodes are what their first letter says: P parallel, F fan-in, exit the exit."""
    ids = dict.fromkeys(name for edge in edges for name in edge.replace(" ", "").split("->"))
    shapes = {"P": "component", "F": "tripleoctagon"}
    nodes = [f"{node_id} [shape={shapes.get(node_id[0], 'box')}]" for node_id in ids if node_id != "exit"]
    return body("\n".join([*nodes, "exit [shape=Msquare]", *edges, more]))


def test_branches_meet_at_their_fan_in() -> None:
    graph = flow("P -> a -> F", "P -> b -> c -> F", "F -> exit")
    assert joins(graph)["P"] == "F"


def test_a_branch_may_be_the_fan_in_itself() -> None:
    assert joins(flow("P -> F", "P -> a -> F", "F -> exit"))["P"] == "F"


def test_a_fan_in_by_type_counts_like_one_by_shape() -> None:
    graph = body(
        'P [type=parallel]; a; b; j [type="parallel.fan_in"]\nexit\nP -> a -> j -> exit; P -> b -> j'
    )
    assert joins(graph)["P"] == "j"


def test_the_nearest_common_fan_in_counts_not_the_next() -> None:
    graph = flow("P -> a -> F1 -> z -> F2 -> exit", "P -> b -> F1")
    assert joins(graph)["P"] == "F1"


def test_a_fan_in_that_only_some_branches_reach_is_passed() -> None:
    graph = flow("P -> a -> F1", "P -> b -> F1 -> F2 -> exit", "P -> c -> F2")
    assert joins(graph)["P"] == "F2"


def test_an_inner_fan_in_belongs_to_the_inner_parallel() -> None:
    graph = flow("P1 -> P2 -> a -> F2", "P2 -> b -> F2", "F2 -> F1", "P1 -> c -> F1", "F1 -> exit")
    assert joins(graph) == {"P1": "F1", "P2": "F2"}


def test_even_a_single_branch_does_not_stop_at_an_inner_fan_in() -> None:
    graph = flow("P1 -> x -> P2 -> a -> F2", "P2 -> b -> F2 -> y -> F1 -> exit")
    assert joins(graph) == {"P1": "F1", "P2": "F2"}


def test_when_all_branches_pass_the_same_inner_parallel_its_fan_in_is_still_the_inner_one() -> None:
    graph = flow("P1 -> a -> P2", "P1 -> b -> P2", "P2 -> c -> F2", "P2 -> d -> F2 -> F1 -> exit")
    assert joins(graph) == {"P1": "F1", "P2": "F2"}


def test_without_an_outer_fan_in_the_outer_branches_meet_at_the_exit() -> None:
    graph = flow("P1 -> x -> P2 -> a -> F2", "P2 -> b -> F2 -> exit", "P1 -> c -> exit")
    assert joins(graph) == {"P1": "exit", "P2": "F2"}


def test_two_parallels_one_after_the_other_in_a_branch_are_both_passed() -> None:
    one, two = ("P2 -> a -> F2", "P2 -> b -> F2"), ("P3 -> c -> F3", "P3 -> d -> F3")
    graph = flow("P1 -> P2", *one, "F2 -> P3", *two, "F3 -> F1", "P1 -> e -> F1", "F1 -> exit")
    assert joins(graph) == {"P1": "F1", "P2": "F2", "P3": "F3"}


def test_a_fan_in_may_serve_the_inner_and_the_outer_parallel() -> None:
    long_way = "P1 -> a1 -> a2 -> a3 -> a4 -> F"
    graph = flow("P1 -> P2", "P2 -> b -> F", "P2 -> c -> F", long_way, "F -> exit")
    assert joins(graph) == {"P1": "F", "P2": "F"}


def test_branches_without_a_fan_in_meet_at_the_exit() -> None:
    assert joins(flow("P -> a -> exit", "P -> b -> exit"))["P"] == "exit"


def test_a_branch_that_leads_nowhere_leaves_no_join() -> None:
    assert joins(flow("P -> a -> exit", "P -> b"))["P"] is None
    assert joins(flow("P -> a -> F -> exit", "P -> b -> exit"))["P"] == "exit"


def test_a_parallel_without_branches_has_no_join() -> None:
    assert joins(flow("a -> P"))["P"] is None


def test_what_is_no_parallel_node_has_no_join() -> None:
    graph = flow("P -> a -> F -> exit")
    assert joins(graph).get("a") is None
    assert joins(graph).get("nobody") is None


def test_a_way_back_to_the_start_of_the_block_does_not_confuse() -> None:
    block = ("P -> a -> F", "P -> b -> c -> d -> F", "F -> check -> exit")
    graph = flow("s -> P", *block, "check -> s", "c -> b")
    assert joins(graph)["P"] == "F"


def test_a_loop_around_nested_parallels_does_not_bring_the_inner_fan_in_near() -> None:
    inner = ("P1 -> P2 -> a -> F2", "P2 -> b -> F2 -> F1")
    graph = flow("s -> P1", *inner, "P1 -> c1 -> c2 -> c3 -> c4 -> c5 -> F1", "F1 -> s", "F1 -> exit")
    assert joins(graph) == {"P1": "F1", "P2": "F2"}


def test_a_branch_that_leaps_out_to_an_outer_parallel_has_no_join() -> None:
    graph = flow("s -> P1 -> P2 -> a -> F2 -> F1 -> exit", "P2 -> b -> s", "P1 -> c -> F1")
    assert joins(graph) == {"P1": "F1", "P2": None}


def test_an_undeclared_target_is_a_branch_that_never_arrives() -> None:
    graph = body("P [shape=component]\nF [shape=tripleoctagon]\nexit\nP -> F -> exit\nP -> nobody")
    assert joins(graph)["P"] is None


def test_deep_nesting_needs_neither_recursion_nor_patience() -> None:
    depth = 2_400
    down = " -> ".join(f"P{level}" for level in range(depth))
    up = " -> ".join(f"F{level}" for level in reversed(range(depth)))
    graph = flow(f"{down} -> a -> {up} -> exit")
    assert joins(graph) == {f"P{level}": f"F{level}" for level in range(depth)}


@st.composite
def blocks(draw: st.DrawFn, depth: int = 0) -> list[object]:
    """A sequence of plain nodes ("n") and parallel blocks (a list of branches, each a sequence)."""
    plain = st.just("n")
    if depth == 3:
        return draw(st.lists(plain, max_size=2))
    block = st.lists(blocks(depth + 1), min_size=1, max_size=3)
    return draw(st.lists(st.one_of(plain, block), max_size=3))


class _Writer:
    """Writes a nested description as edges, and knows which fan-in belongs to which parallel."""

    def __init__(self) -> None:
        self.count = 0
        self.edges: list[str] = []
        self.expected: dict[str, str] = {}

    def chain(self, sequence: list[object], first: str, last: str) -> None:
        here = first
        for part in sequence:
            self.count += 1
            number = self.count
            if isinstance(part, list):
                self.edges.append(f"{here} -> P{number}")
                for branch in part:
                    self.chain(branch, f"P{number}", f"F{number}")
                self.expected[f"P{number}"] = here = f"F{number}"
            else:
                self.edges.append(f"{here} -> n{number}")
                here = f"n{number}"
        self.edges.append(f"{here} -> {last}")


@pytest.mark.slow
@given(blocks())
@examples(100)
def test_in_every_well_nested_pipeline_each_parallel_finds_its_own_fan_in(sequence: list[object]) -> None:
    writer = _Writer()
    writer.chain(sequence, "s", "exit")
    graph = flow(*dict.fromkeys(writer.edges))
    assert joins(graph) == writer.expected
