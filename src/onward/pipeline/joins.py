"""Where the branches of a parallel node meet again. A pure question about the graph.

The branches of a parallel node start at the nodes its edges lead to, and its join is the nearest fan-in that
all of them reach. Parallels nest, and then an inner fan-in belongs to the inner parallel: an inner parallel
counts as one step, from itself to whatever follows its own join. So the inner joins are found first, and each
part of a well-formed graph is visited once, however deep the nesting is.

A fan-in may serve an inner and an outer parallel at once, if some branch reaches it from outside the inner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping

from onward.pipeline.graph import Graph

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
