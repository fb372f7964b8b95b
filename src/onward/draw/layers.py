"""The grid: layers of cells. A cell holds a box, the caption of a line, or a line that passes through.

First how far every node is from the start, and which edges close cycles; then the grid itself; then the
order of the cells in each layer: few lines cross, and the same graph always gets the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from onward.draw.geometry import LayoutLine, Size

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


CELLS_MAX = 8_000
"""Cells for lines that pass. The longest lines go around the outside instead, so work stays near linear."""
PASSING = Size(10, 0)
LOOP_ROOM = 26


class Strand(msgspec.Struct):
    """A wire between layers: its upper and lower end, whichever way it points, and the cells between."""

    wire: int
    upper: int
    lower: int
    is_back: bool
    cells: list[int] = msgspec.field(default_factory=list)
    caption: int | None = None


class Grid(msgspec.Struct):
    """Cells by number, boxes first. `before` and `after`: the space it takes on either side."""

    layers: list[list[int]]
    layer_of: list[int]
    before: list[float]
    after: list[float]
    depth: list[float]
    up: list[list[int]]
    down: list[list[int]]
    strands: list[Strand]
    outside: list[Strand]
    boxes: int

    def is_box(self, cell: int) -> bool:
        return cell < self.boxes

    def positions(self) -> list[int]:
        """For every cell, its position in its layer."""
        positions = [0] * len(self.layer_of)
        for cells in self.layers:
            for position, cell in enumerate(cells):
                positions[cell] = position
        return positions


def make_grid(sizes: Sequence[Size], wires: Sequence[LayoutLine], start: int | None) -> Grid:
    """Put boxes into layers, with cells for every line that passes a layer or has a caption."""
    count = len(sizes)
    pairs = [(wire.tail, wire.head) for wire in wires]
    back = loops_back(count, pairs, start)
    ranks = ranks_of(count, pairs, back, start)
    strands = [
        Strand(number, *((head, tail) if number in back else (tail, head)), number in back)
        for number, (tail, head) in enumerate(pairs)
        if tail != head
    ]
    places, captions = _layers(ranks, strands, wires)
    grid = Grid(
        layers=[[] for _ in range(captions)],
        layer_of=[places[rank] for rank in ranks],
        before=[size.width / 2 for size in sizes],
        after=[size.width / 2 for size in sizes],
        depth=[size.height for size in sizes],
        up=[[] for _ in sizes],
        down=[[] for _ in sizes],
        strands=[],
        outside=[],
        boxes=count,
    )
    for cell, layer in enumerate(grid.layer_of):
        grid.layers[layer].append(cell)
    for wire in wires:
        if wire.tail == wire.head:
            caption = wire.caption or PASSING
            grid.after[wire.tail] += LOOP_ROOM + caption.width
            grid.depth[wire.tail] = max(grid.depth[wire.tail], caption.height)
    _thread(grid, strands, wires)
    return grid


def _layers(
    ranks: Sequence[int], strands: Sequence[Strand], wires: Sequence[LayoutLine]
) -> tuple[list[int], int]:
    """The layer of every rank, with one more after ranks whose captions need it; and the number of layers."""
    captioned = {_caption_gap(strand, ranks) for strand in strands if wires[strand.wire].caption}
    places, layer = list[int](), 0
    for rank in range(max(ranks, default=-1) + 1):
        places.append(layer)
        layer += 2 if rank in captioned else 1
    return places, layer


def _caption_gap(strand: Strand, ranks: Sequence[int]) -> int:
    """The rank after which a line has its caption: next to where it starts."""
    return ranks[strand.lower] - 1 if strand.is_back else ranks[strand.upper]


def _thread(grid: Grid, strands: Sequence[Strand], wires: Sequence[LayoutLine]) -> None:
    budget = CELLS_MAX
    by_length = sorted(strands, key=lambda strand: grid.layer_of[strand.lower] - grid.layer_of[strand.upper])
    for strand in by_length:
        first, last = grid.layer_of[strand.upper] + 1, grid.layer_of[strand.lower]
        budget -= last - first
        if budget < 0:
            grid.outside.append(strand)
            continue
        grid.strands.append(strand)
        caption = wires[strand.wire].caption
        caption_layer = None if caption is None else last - 1 if strand.is_back else first
        above = strand.upper
        for layer in range(first, last):
            size = caption if caption and layer == caption_layer else PASSING
            cell = _add(grid, layer, size)
            if layer == caption_layer:
                strand.caption = cell
            strand.cells.append(cell)
            _join(grid, above, cell)
            above = cell
        _join(grid, above, strand.lower)
    grid.strands.sort(key=lambda strand: strand.wire)


def _add(grid: Grid, layer: int, size: Size) -> int:
    cell = len(grid.layer_of)
    grid.layer_of.append(layer)
    grid.layers[layer].append(cell)
    grid.before.append(size.width / 2)
    grid.after.append(size.width / 2)
    grid.depth.append(size.height)
    grid.up.append([])
    grid.down.append([])
    return cell


def _join(grid: Grid, above: int, below: int) -> None:
    grid.down[above].append(below)
    grid.up[below].append(above)


SWEEPS = 14
LARGE = 3_000
"""A grid with more cells than this gets only a few sweeps."""
SWEEPS_LARGE = 3


def arrange(grid: Grid) -> None:
    """Put every layer into the best order found."""
    _first_order(grid)
    best, fewest = _copy(grid), _crossings(grid)
    is_large = len(grid.layer_of) > LARGE
    for sweep in range(SWEEPS_LARGE if is_large else SWEEPS):
        if not fewest:
            break
        if sweep % 2:
            _sweep(grid, range(len(grid.layers) - 2, -1, -1), grid.down)
        else:
            _sweep(grid, range(1, len(grid.layers)), grid.up)
        if not is_large:
            _swap(grid)
        found = _crossings(grid)
        if found < fewest:
            best, fewest = _copy(grid), found
    grid.layers = best


def _first_order(grid: Grid) -> None:
    """Start with the order of a walk from the top, which puts connected cells side by side."""
    met, order = bytearray(len(grid.layer_of)), list[int]()
    for layer in grid.layers:
        for root in layer:
            walk = [root]
            while walk:
                cell = walk.pop()
                if not met[cell]:
                    met[cell] = 1
                    order.append(cell)
                    walk += reversed(grid.down[cell])
    grid.layers = [[] for _ in grid.layers]
    for cell in order:
        grid.layers[grid.layer_of[cell]].append(cell)


def _sweep(grid: Grid, layers: Sequence[int], neighbours: Sequence[Sequence[int]]) -> None:
    """Move each cell to the mean of its neighbours in the previous layer; one without neighbours stays."""
    place = grid.positions()
    for layer in layers:
        cells = grid.layers[layer]
        wish = {
            cell: sum(place[other] for other in neighbours[cell]) / len(neighbours[cell])
            if neighbours[cell]
            else place[cell]
            for cell in cells
        }
        cells.sort(key=wish.__getitem__)
        for position, cell in enumerate(cells):
            place[cell] = position


def _swap(grid: Grid) -> None:
    """Swap adjacent cells where fewer lines cross that way, which sweeps can miss."""
    place = grid.positions()
    for cells in grid.layers:
        for position in range(len(cells) - 1):
            left, right = cells[position], cells[position + 1]
            as_is = turned = 0
            for neighbours in (grid.up, grid.down):
                for one in neighbours[left]:
                    for other in neighbours[right]:
                        as_is += place[one] > place[other]
                        turned += place[one] < place[other]
            if turned < as_is:
                cells[position], cells[position + 1] = right, left
                place[right], place[left] = position, position + 1


def _crossings(grid: Grid) -> int:
    """How many pairs of lines cross between neighbouring layers."""
    total = 0
    for upper, lower in zip(grid.layers, grid.layers[1:], strict=False):
        place = {cell: position for position, cell in enumerate(lower)}
        ends = [spot for cell in upper for spot in sorted(place[below] for below in grid.down[cell])]
        total += _inversions(ends, len(lower))
    return total


def _inversions(ends: Sequence[int], size: int) -> int:
    """The number of pairs out of order, counted with a Fenwick tree."""
    tree, found = [0] * (size + 1), 0
    for before, end in enumerate(ends):
        not_greater, index = 0, end + 1
        while index:
            not_greater += tree[index]
            index &= index - 1
        found += before - not_greater
        index = end + 1
        while index <= size:
            tree[index] += 1
            index += index & -index
    return found


def _copy(grid: Grid) -> list[list[int]]:
    return [list(cells) for cells in grid.layers]
