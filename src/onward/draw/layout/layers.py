"""The grid: layers of cells. A cell holds a box, the caption of a line, or a line that passes through."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from onward.draw.layout.geometry import Size, Wire
from onward.draw.layout.ranks import loops_back, ranks_of

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


def make_grid(sizes: Sequence[Size], wires: Sequence[Wire], start: int | None) -> Grid:
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


def _layers(ranks: Sequence[int], strands: Sequence[Strand], wires: Sequence[Wire]) -> tuple[list[int], int]:
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


def _thread(grid: Grid, strands: Sequence[Strand], wires: Sequence[Wire]) -> None:
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
