"""How far every node is from the start, and which edges close cycles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Pair = tuple[int, int]


def loops_back(count: int, pairs: Sequence[Pair], start: int | None) -> frozenset[int]:
    """The pairs, by number, that close a cycle on a walk from the start; the others form no cycle."""
    ways = ways_out(count, pairs)
    entered, left = bytearray(count), bytearray(count)
    back: set[int] = set()
    for root in _roots(count, pairs, start):
        if entered[root]:
            continue
        entered[root] = 1
        walk = [(root, iter(ways[root]))]
        while walk:
            node, ahead = walk[-1]
            for number in ahead:
                head = pairs[number][1]
                if not entered[head]:
                    entered[head] = 1
                    walk.append((head, iter(ways[head])))
                    break
                if not left[head]:
                    back.add(number)
            else:
                left[node] = 1
                walk.pop()
    return frozenset(back)


def ranks_of(count: int, pairs: Sequence[Pair], back: frozenset[int], start: int | None) -> list[int]:
    """A rank for every node: one more than the greatest rank of its predecessors."""
    forward = [pair for number, pair in enumerate(pairs) if number not in back]
    ways = ways_out(count, forward)
    open_ways = [0] * count
    for _, head in forward:
        open_ways[head] += 1
    ranks = [0] * count
    sources = [node for node in range(count) if not open_ways[node]]
    ready = list(sources)
    for node in ready:
        for number in ways[node]:
            head = forward[number][1]
            ranks[head] = max(ranks[head], ranks[node] + 1)
            open_ways[head] -= 1
            if not open_ways[head]:
                ready.append(head)
    for node in sources:
        # A node without predecessors goes next to its successors, not up beside the start.
        if node != start and ways[node]:
            ranks[node] = min(ranks[forward[number][1]] for number in ways[node]) - 1
    return ranks


def reading_order(count: int, pairs: Sequence[Pair], start: int | None) -> list[int]:
    """Every node once, after its predecessors (loops aside); of several successors the shorter path first."""
    back = loops_back(count, pairs, start)
    forward = [pair for number, pair in enumerate(pairs) if number not in back]
    ways = ways_out(count, forward)
    ranks = ranks_of(count, pairs, back, start)
    height = [0] * count
    for node in sorted(range(count), key=ranks.__getitem__, reverse=True):
        height[node] = max((height[forward[number][1]] + 1 for number in ways[node]), default=0)
    # The order is reversed at the end, so everything is visited last to first.
    heads = [
        sorted((forward[number][1] for number in reversed(own)), key=height.__getitem__, reverse=True)
        for own in ways
    ]
    reached = {head for _, head in forward}
    roots = [node for node in range(count) if node not in reached]
    roots.sort(key=lambda node: node != start)
    seen, order = bytearray(count), list[int]()
    for root in reversed(roots):
        seen[root] = 1
        walk = [(root, iter(heads[root]))]
        while walk:
            node, ahead = walk[-1]
            for head in ahead:
                if not seen[head]:
                    seen[head] = 1
                    walk.append((head, iter(heads[head])))
                    break
            else:
                order.append(node)
                walk.pop()
    return order[::-1]


def ways_out(count: int, pairs: Sequence[Pair]) -> list[list[int]]:
    """For every node the pairs, by number, that leave it."""
    ways: list[list[int]] = [[] for _ in range(count)]
    for number, (tail, _) in enumerate(pairs):
        ways[tail].append(number)
    return ways


def _roots(count: int, pairs: Sequence[Pair], start: int | None) -> Iterable[int]:
    """Where walks begin: at the start, then at nodes without predecessors, then anywhere."""
    reached = {head for tail, head in pairs if tail != head}
    first = [] if start is None else [start]
    return dict.fromkeys((*first, *(node for node in range(count) if node not in reached), *range(count)))
