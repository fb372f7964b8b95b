"""Which nodes and edges each branch of a graph can reach. A pure question about the graph.

The main branch is the run itself. A branch of a fan-out begins at an edge of its fan-out and ends where the
branches join or at the exit. To the branch that reaches it, a fan-out is one step, from itself to whatever
follows its join; the branches that it opens are separate.

Only the parts of conditions about the outcome are known here. Anything that depends on the context counts as
possible.
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
"""More than any well-formed graph needs: one or two branches reach each of its nodes."""
_ROUTERS = ("start", "conditional")
"""Nodes that only choose an edge: they cannot fail, and so never jump."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A move from one node to the next: by an edge, by a jump (`key` is its attribute), or to a join."""

    source: str
    target: str
    key: str = ""
    order: int | None = None
    edge: Edge | None = field(default=None, compare=False)

    @classmethod
    def by(cls, edge: Edge) -> Hop:
        """The hop along an edge."""
        return cls(edge.source, edge.target, order=edge.order, edge=edge)

    @property
    def restarts(self) -> bool:
        """Whether it ends the run and starts another."""
        return self.edge is not None and self.edge.loop_restart


@dataclass(frozen=True)
class Branch:
    """Everything one branch can reach. Without `fan_out` it is the main branch."""

    fan_out: str | None
    join: str | None = None
    hops: Mapping[Hop, None] = field(default_factory=dict)
    before: Mapping[str, Hop] = field(default_factory=dict)
    fan_outs: tuple[str, ...] = ()
    """The fan-outs in the order it reaches them, so that messages are the same in every process."""

    def route_to(self, hop: Hop) -> Sequence[Hop]:
        """A shortest route of this branch that ends with the hop."""
        route = [hop]
        while route[-1].source in self.before and route[-1].source != self.fan_out:
            route.append(self.before[route[-1].source])
        return route[::-1]


@dataclass(frozen=True)
class Branches:
    """The main branch, and the branches of every fan-out that can be reached, by its id."""

    main: Branch
    of_fan_outs: Mapping[str, Branch]

    def taking(self, hop: Hop) -> Iterator[Branch]:
        """The branches that can take a hop, the main branch first."""
        return (branch for branch in (self.main, *self.of_fan_outs.values()) if hop in branch.hops)

    def is_taken_in(self, fan_outs: Collection[str], hop: Hop) -> bool:
        """Whether the main branch, or a branch of one of these fan-outs, can take a hop."""
        return any(branch.fan_out is None or branch.fan_out in fan_outs for branch in self.taking(hop))

    def opened_without(self, avoided: str) -> frozenset[str]:
        """The fan-outs that can be entered from outside the branches of `avoided`."""
        found: set[str] = set()
        ahead = list(self.main.fan_outs)
        while ahead:
            name = ahead.pop()
            if name not in found and name != avoided:
                found.add(name)
                ahead += self.of_fan_outs[name].fan_outs
        return frozenset(found)

    def knots(self) -> Mapping[str, int]:
        """A number for each fan-out; two with the same number can each be inside the other's branches."""
        ways = {name: branch.fan_outs for name, branch in self.of_fan_outs.items()}
        return {name: number for number, knot in enumerate(components(ways)) for name in knot}


def branches_of(graph: Graph) -> Branches | None:
    """Every branch of a graph with a start, or None if there are too many to follow."""
    if graph.start_id is None:
        return None
    ends = joins(graph)
    begin = [Hop("", graph.start_id), *_redirects(graph)]
    left = HOPS_MAX
    main = _followed(graph, Branch(None), begin, ends, left)
    found: dict[str, Branch] = {}
    ahead = list(main.fan_outs)
    for name in ahead:  # grows inside the loop
        if name in found:
            continue
        begin = [Hop.by(edge) for edge in graph.outgoing(name) if _may_hold(edge, "success")]
        found[name] = branch = _followed(graph, Branch(name, ends[name]), begin, ends, left)
        left -= len(branch.hops)
        if left <= 0:
            return None
        ahead += branch.fan_outs
    return Branches(main, found)


def _followed(
    graph: Graph, branch: Branch, begin: Iterable[Hop], ends: Mapping[str, str | None], hops_max: int
) -> Branch:
    hops: dict[Hop, None] = dict.fromkeys(begin)
    before: dict[str, Hop] = {}
    fan_outs: list[str] = []
    ahead = list(hops)
    for hop in ahead:  # grows inside the loop
        target = graph.nodes.get(hop.target)
        if target is None or target.id in before or len(hops) > hops_max:
            continue
        if branch.fan_out is not None and (hop.restarts or target.id in (branch.join, graph.exit_id)):
            continue  # here the branch ends, or the run does
        before[target.id] = hop
        if target.kind == PARALLEL:
            fan_outs.append(target.id)
        if target.id != branch.fan_out:
            new = [found for found in _onward(graph, target, ends) if found not in hops]
            hops |= dict.fromkeys(new)
            ahead += new
    return Branch(branch.fan_out, branch.join, hops, before, tuple(fan_outs))


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
    """Where goal gates send the run from the exit; a target of the graph has no source node."""
    for node in graph.nodes.values():
        if node.is_true("goal_gate"):
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
        return ()  # condition_syntax reports it
