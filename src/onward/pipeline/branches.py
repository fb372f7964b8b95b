"""The branches of a graph: where those of a parallel node meet, and what each of them can reach.

Both are pure questions about the graph.

The branches of a parallel node start at the nodes its edges lead to, and its join is the nearest fan-in
that all of them reach. Parallels nest, and then an inner fan-in belongs to the inner parallel: an inner
parallel counts as one step, from itself to whatever follows its own join. So the inner joins are found
first, and each part of a well-formed graph is visited once, however deep the nesting is. A fan-in may serve
an inner and an outer parallel at once, if some branch reaches it from outside the inner.

The main branch is the run itself. A branch of a fan-out begins at an edge of its fan-out and ends where the
branches join or at the exit. To the branch that reaches it, a fan-out is one step; the branches that it
opens are separate. Only the parts of conditions about the outcome are known here. Anything that depends on
the context counts as possible.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onward.errors import ConditionError
from onward.pipeline.condition import Clause
from onward.pipeline.edges import failure_target
from onward.pipeline.graph import Edge, Graph, Node

PARALLEL, FAN_IN = "parallel", "parallel.fan_in"
LOOKS_MAX = 50_000
"""Twice what any well-formed graph needs. Branches that are more tangled get no join."""
_FIRST_LOOK = 4
"""Nodes to visit before the first check whether the branches have met; doubled each time."""


def joins(graph: Graph) -> Mapping[str, str | None]:
    """For every parallel node its fan-in; or the exit, if the branches meet only there; or None."""
    found: dict[str, str | None] = {}
    looks = 0
    for node in graph.nodes.values():
        if node.kind == PARALLEL and node.id not in found:
            looks += _resolve(graph, node.id, found, LOOKS_MAX - looks)
    return found


def _resolve(graph: Graph, node_id: str, found: dict[str, str | None], looks_max: int) -> int:
    # Searches that wait for an inner one are in a dict: nesting may be deeper than Python's stack.
    waiting = {node_id: _Search(graph, node_id)}
    looks = 0
    while waiting:
        current = next(reversed(waiting))
        search = waiting[current]
        looks -= search.looks
        inner = search.run(found, waiting, looks_max - looks)
        looks += search.looks
        if inner is None:
            found[current] = waiting.pop(current).join
        else:
            waiting[inner] = _Search(graph, inner)
    return looks


class _Search:
    """Looks for one join, in widening circles around the branches."""

    def __init__(self, graph: Graph, origin: str) -> None:
        self.graph = graph
        self.join: str | None = None
        self.looks = 0
        self.circle = _FIRST_LOOK
        self.branches = tuple(dict.fromkeys(edge.target for edge in graph.outgoing(origin)))
        self.seen = dict.fromkeys((*self.branches, origin))
        self.ahead = deque(node_id for node_id in self.branches if node_id != origin)
        self.ways: dict[str, tuple[str, ...]] = {}
        self.passed: dict[str, str] = {}

    def run(self, found: Mapping[str, str | None], waiting: Collection[str], looks_max: int) -> str | None:
        """Search to the end, or until it reaches an inner parallel whose join must be known first."""
        while self.looks < looks_max:
            while self.ahead and len(self.ways) < self.circle:
                inner = self._look(self.ahead[0], found, waiting)
                if inner is not None:
                    return inner
                self.ahead.popleft()
            self.looks += len(self.ways)
            self.circle = 2 * len(self.ways)
            self.join = self._meeting()
            if self.join is not None or not self.ahead:
                break
        return None

    def _look(self, node_id: str, found: Mapping[str, str | None], waiting: Collection[str]) -> str | None:
        node = self.graph.nodes.get(node_id)
        if node is None or node.kind != PARALLEL:
            self._see(node_id, (edge.target for edge in self.graph.outgoing(node_id)))
        elif node_id in waiting:
            self._see(node_id, ())  # an edge back to a parallel around this one leads to no join of this one
        elif node_id not in found:
            return node_id
        else:
            self._see(node_id, self._beyond(node_id, found[node_id]))
        return None

    def _beyond(self, inner: str, join: str | None) -> Iterable[str]:
        if join is not None and join == self.graph.exit_id:
            return (join,)
        if join is not None:
            self.passed[inner] = join
        return (edge.target for edge in self.graph.outgoing(join or inner))

    def _see(self, node_id: str, targets: Iterable[str]) -> None:
        self.ways[node_id] = ways = tuple(dict.fromkeys(targets))
        for target in ways:
            if target not in self.seen:
                self.seen[target] = None
                self.ahead.append(target)

    def _meeting(self) -> str | None:
        """The first fan-in of those seen that every branch reaches; the exit only when all has been seen."""
        nodes, exit_id = self.graph.nodes, self.graph.exit_id
        fan_ins = [node_id for node_id in self.seen if node_id in nodes and nodes[node_id].kind == FAN_IN]
        ends = [*fan_ins, exit_id] if exit_id in self.seen and not self.ahead else fan_ins
        bits = {node_id: 1 << place for place, node_id in enumerate(ends)}
        if not bits or not self.branches:
            return None
        reached = _reached(self.ways, bits)
        # A fan-in after an inner parallel counts only if another branch reaches it directly.
        beside = {node_id: bits.get(join, 0) for node_id, join in self.passed.items()}
        passed = _reached(self.ways, {**bits, **{key: bits.get(key, 0) | bit for key, bit in beside.items()}})
        common, direct = -1, 0
        for branch in self.branches:
            common &= passed.get(branch, 0)
            direct |= reached.get(branch, 0)
        common &= direct
        return ends[(common & -common).bit_length() - 1] if common else None


def _reached(ways: Mapping[str, tuple[str, ...]], own: Mapping[str, int]) -> dict[str, int]:
    """For every node, the bits of all nodes it leads to and its own: one pass, sinks first."""
    reached: dict[str, int] = {}
    for component in components(ways):
        bits = 0
        for node_id in component:
            bits |= own.get(node_id, 0)
            for target in ways.get(node_id, ()):
                bits |= reached.get(target, 0)
        for node_id in component:
            reached[node_id] = bits
    return reached


def components(ways: Mapping[str, tuple[str, ...]]) -> Iterator[list[str]]:
    """The strongly connected components, each after those it leads to (Tarjan's algorithm, with a list)."""
    numbers: dict[str, int] = {}
    lows: dict[str, int] = {}
    pending: list[str] = []
    open_ids: set[str] = set()
    for root in ways:
        path = [(root, iter(ways[root]))] if root not in numbers else []
        while path:
            node_id, targets = path[-1]
            if node_id not in numbers:
                numbers[node_id] = lows[node_id] = len(numbers)
                pending.append(node_id)
                open_ids.add(node_id)
            for target in targets:
                if target not in numbers:
                    path.append((target, iter(ways.get(target, ()))))
                    break
                if target in open_ids:
                    lows[node_id] = min(lows[node_id], numbers[target])
            else:
                path.pop()
                if path:
                    parent = path[-1][0]
                    lows[parent] = min(lows[parent], lows[node_id])
                if lows[node_id] == numbers[node_id]:
                    component: list[str] = []
                    while not component or component[-1] != node_id:
                        component.append(pending.pop())
                    open_ids.difference_update(component)
                    yield component


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
class BranchReach:
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

    main: BranchReach
    of_fan_outs: Mapping[str, BranchReach]

    def taking(self, hop: Hop) -> Iterator[BranchReach]:
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
    main = _followed(graph, BranchReach(None), begin, ends, left)
    found: dict[str, BranchReach] = {}
    ahead = list(main.fan_outs)
    for name in ahead:  # grows inside the loop
        if name in found:
            continue
        begin = [Hop.by(edge) for edge in graph.outgoing(name) if _may_hold(edge, "success")]
        found[name] = branch = _followed(graph, BranchReach(name, ends[name]), begin, ends, left)
        left -= len(branch.hops)
        if left <= 0:
            return None
        ahead += branch.fan_outs
    return Branches(main, found)


def _followed(
    graph: Graph, branch: BranchReach, begin: Iterable[Hop], ends: Mapping[str, str | None], hops_max: int
) -> BranchReach:
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
    return BranchReach(branch.fan_out, branch.join, hops, before, tuple(fan_outs))


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
