"""What a step costs does not depend on how large the pipeline is."""

from __future__ import annotations

from collections.abc import Iterator, ValuesView
from dataclasses import replace

from onward.machine.definition import Definition
from onward.model.run import RunStatus
from onward.pipeline.build import build
from onward.pipeline.graph import Edge, Node
from tests.machine.play import Play


class Counted(dict[str, Node]):
    """Nodes that know how often they are looked up, and whether anybody went through all of them."""

    looked_up = 0
    gone_through = 0

    def __getitem__(self, key: str) -> Node:
        self.looked_up += 1
        return super().__getitem__(key)

    def get(self, key: str, default: Node | None = None) -> Node | None:  # type: ignore[override]
        self.looked_up += 1
        return super().get(key, default)

    def __iter__(self) -> Iterator[str]:
        self.gone_through += 1
        return super().__iter__()

    def values(self) -> ValuesView[Node]:  # type: ignore[override]
        self.gone_through += 1
        return dict(self.items()).values()


class CountedEdges(tuple[Edge, ...]):
    """Edges that know whether anybody went through all of them."""

    gone_through = 0

    def __iter__(self) -> Iterator[Edge]:
        CountedEdges.gone_through += 1
        return super().__iter__()


def looping(size: int) -> Play:
    """A run in a loop of two steps, at the beginning of a pipeline of `size` nodes."""
    rest = [f"n{number}" for number in range(size)]
    nodes = "; ".join(f"{name} [prompt=p]" for name in rest)
    source = (
        f"digraph g {{ start; exit; a [prompt=p]; c [shape=diamond]; {nodes}; start -> a -> c; "
        f'c -> a [condition="context.more!=no"]; c -> {" -> ".join(rest)} -> exit }}'
    )
    graph = build(source, file="<test>").graph
    return Play(Definition(replace(graph, nodes=Counted(graph.nodes), edges=CountedEdges(graph.edges))))


def cost_of_a_step(size: int) -> tuple[int, int]:
    """How often nodes are looked up in five steps, and how often all nodes or edges are gone through."""
    play = looping(size)
    play.succeed()
    nodes = play.definition.graph.nodes
    assert isinstance(nodes, Counted)
    nodes.looked_up = nodes.gone_through = CountedEdges.gone_through = 0
    for _ in range(5):
        play.succeed()
    assert play.run.status is RunStatus.RUNNING
    return nodes.looked_up, nodes.gone_through + CountedEdges.gone_through


def test_planning_a_step_does_not_depend_on_the_size_of_the_pipeline() -> None:
    """After the first step nothing goes through the graph any more; each step looks up its own nodes."""
    small, large = cost_of_a_step(10), cost_of_a_step(2_000)
    assert small == large
    assert small[1] == 0
    assert 0 < small[0] <= 40
