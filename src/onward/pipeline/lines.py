"""Which ways a run, and each branch of a fan-out, can take through a graph. A pure question about the graph.

A line is what goes through the graph one node at a time: the run itself, or a branch, which begins at an edge
of its fan-out and ends where the branches join or at the exit. To the line that meets it, a fan-out is one
step, from itself to whatever follows; its branches are lines of their own, inside of that one.

Conditions are taken as far as they speak about the outcome; what the context will say is not known here, so
every other way counts as possible.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onward.errors import ConditionError
from onward.pipeline.condition import Clause
from onward.pipeline.edges import failure_target
from onward.pipeline.graph import Edge, Graph, Node
from onward.pipeline.joins import PARALLEL, components, joins

HOPS_MAX = 100_000
"""More than any well-formed graph needs, whose nodes are each met by one line or two."""
_ROUTERS = ("start", "conditional")
"""What only looks for an edge: it cannot fail, and so jumps nowhere."""


@dataclass(frozen=True, slots=True)
class Hop:
    """From one node to the next: by an edge, by a jump that the attribute `key` names, or by a join."""

    source: str
    target: str
    key: str = ""
    order: int | None = None
    edge: Edge | None = field(default=None, compare=False)

    @classmethod
    def by(cls, edge: Edge) -> Hop:
        """The hop that an edge is."""
        return cls(edge.source, edge.target, order=edge.order, edge=edge)

    @property
    def restarts(self) -> bool:
        """Whether it ends the run and begins another."""
        return self.edge is not None and self.edge.text("loop_restart").strip() == "true"


@dataclass(frozen=True)
class Line:
    """All that one line can do. Without `fan_out` it is the run itself."""

    fan_out: str | None
    join: str | None = None
    hops: Mapping[Hop, None] = field(default_factory=dict)
    before: Mapping[str, Hop] = field(default_factory=dict)
    fan_outs: frozenset[str] = frozenset()

    def way_to(self, hop: Hop) -> Sequence[Hop]:
        """A shortest way of this line that ends with the hop."""
        way = [hop]
        while way[-1].source in self.before and way[-1].source != self.fan_out:
            way.append(self.before[way[-1].source])
        return way[::-1]


@dataclass(frozen=True)
class Lines:
    """The run and the branches of every fan-out that it can come to."""

    run: Line
    branches: Mapping[str, Line]

    def taking(self, hop: Hop) -> Iterator[Line]:
        """The lines that can take a hop, the run first."""
        return (line for line in (self.run, *self.branches.values()) if hop in line.hops)

    def is_taken_in(self, fan_outs: Collection[str], hop: Hop) -> bool:
        """Whether the run itself, or a branch of one of these fan-outs, can take a hop."""
        return any(line.fan_out is None or line.fan_out in fan_outs for line in self.taking(hop))

    def opened_without(self, avoided: str) -> frozenset[str]:
        """The fan-outs that can be entered outside of the branches of `avoided`."""
        found: set[str] = set()
        ahead = list(self.run.fan_outs)
        while ahead:
            name = ahead.pop()
            if name not in found and name != avoided:
                found.add(name)
                ahead += self.branches[name].fan_outs
        return frozenset(found)

    def knots(self) -> Mapping[str, int]:
        """Fan-outs with the same number can each be inside of the other's branches."""
        ways = {name: tuple(line.fan_outs) for name, line in self.branches.items()}
        return {name: number for number, knot in enumerate(components(ways)) for name in knot}


def lines_of(graph: Graph) -> Lines | None:
    """Every line of a graph with a start, or None if they are too many to follow."""
    if graph.start_id is None:
        return None
    ends = joins(graph)
    begin = [Hop("", graph.start_id), *_redirects(graph)]
    left = HOPS_MAX
    run = _followed(graph, Line(None), begin, ends, left)
    branches: dict[str, Line] = {}
    ahead = list(run.fan_outs)
    while ahead:
        name = ahead.pop()
        if name in branches:
            continue
        begin = [Hop.by(edge) for edge in graph.outgoing(name) if _may_hold(edge, "success")]
        branches[name] = line = _followed(graph, Line(name, ends[name]), begin, ends, left)
        left -= len(line.hops)
        if left <= 0:
            return None
        ahead += line.fan_outs
    return Lines(run, branches)


def _followed(
    graph: Graph, line: Line, begin: Iterable[Hop], ends: Mapping[str, str | None], hops_max: int
) -> Line:
    hops: dict[Hop, None] = dict.fromkeys(begin)
    before: dict[str, Hop] = {}
    fan_outs: set[str] = set()
    ahead = list(hops)
    for hop in ahead:  # which grows
        target = graph.nodes.get(hop.target)
        if target is None or target.id in before or len(hops) > hops_max:
            continue
        if line.fan_out is not None and (hop.restarts or target.id in (line.join, graph.exit_id)):
            continue  # here the branch ends, or the run does
        before[target.id] = hop
        if target.kind == PARALLEL:
            fan_outs.add(target.id)
        if target.id != line.fan_out:
            new = [found for found in _onward(graph, target, ends) if found not in hops]
            hops |= dict.fromkeys(new)
            ahead += new
    return Line(line.fan_out, line.join, hops, before, frozenset(fan_outs))


def _onward(graph: Graph, node: Node, ends: Mapping[str, str | None]) -> Iterator[Hop]:
    if node.id == graph.exit_id:
        return
    join = ends.get(node.id) if node.kind == PARALLEL else None
    if join is not None:
        yield Hop(node.id, join)
    for edge in graph.outgoing(node.id):
        if node.kind != PARALLEL or (edge.condition and _may_hold(edge, "fail")):
            yield Hop.by(edge)
    if node.kind in _ROUTERS or node.id == graph.start_id:
        return
    jump = failure_target(graph, node)
    if jump is not None and not any(_must_hold(edge, "fail") for edge in graph.outgoing(node.id)):
        yield Hop(node.id, jump[0], key=jump[1])


def _redirects(graph: Graph) -> Iterator[Hop]:
    """Where goal gates send the run from its end; that of the graph itself is nobody's hop."""
    for node in graph.nodes.values():
        if node.text("goal_gate").strip() == "true":
            jump = failure_target(graph, node)
            if jump is not None:
                yield Hop(node.id, jump[0], key=jump[1])
            elif (own := failure_target(graph, graph)) is not None:
                yield Hop("", own[0])


def _may_hold(edge: Edge, outcome: str) -> bool:
    return all(clause.holds(lambda _: outcome) for clause in _about_the_outcome(edge))


def _must_hold(edge: Edge, outcome: str) -> bool:
    clauses = _about_the_outcome(edge)
    return bool(clauses) and len(clauses) == len(edge.guard.clauses) and _may_hold(edge, outcome)


def _about_the_outcome(edge: Edge) -> Sequence[Clause]:
    try:
        return [clause for clause in edge.guard.clauses if clause.key == "outcome"]
    except ConditionError:
        return ()  # another rule has that to say
