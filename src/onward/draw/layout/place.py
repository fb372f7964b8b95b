"""The position of every cell in its layer: near its neighbours, never on top of another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from onward.draw.layout.layers import Grid

GAP = 26
GAP_LINE = 10
"""Beside a line or a caption."""
ROUNDS, ROUNDS_LARGE, LARGE = 40, 4, 3_000
"""A grid with more cells than this gets only a few rounds."""
PULL_ONLY, PULL_AHEAD, PULL_BACK = 6.0, 1.0, 0.1
"""How strongly a line is straightened at its ends: most if it is the only one, least if it goes back."""
PULL_ALONG, STIFF = 1.0, 8.0
"""How strongly between them: towards its neighbours, and towards the middle of the whole line."""

Pull = tuple[int, float]


def place(grid: Grid) -> list[float]:
    """The centre of every cell across the flow."""
    spots = [0.0] * len(grid.layer_of)
    gaps = [_offsets(grid, cells) for cells in grid.layers]
    for cells, offsets in zip(grid.layers, gaps, strict=True):
        _settle(cells, offsets, [0.0] * len(cells), [1.0] * len(cells), spots)
    ups, downs = _pulls(grid)
    both = [[*above, *below] for above, below in zip(ups, downs, strict=True)]
    rounds = ROUNDS_LARGE if len(spots) > LARGE else ROUNDS
    layers = list(zip(grid.layers, gaps, strict=True))
    for number in range(rounds):
        # First each end alone, so that cells find their side; then both, so that they move to the middle.
        pulls = both if number >= rounds // 3 else ups if number % 2 == 0 else downs
        middles = _middles(grid, spots)
        for cells, offsets in layers if number % 2 == 0 else reversed(layers):
            wishes, weights = list[float](), list[float]()
            for cell in cells:
                weight = total = 0.0
                if cell in middles:
                    weight, total = STIFF, STIFF * middles[cell]
                for other, pull in pulls[cell]:
                    weight += pull
                    total += pull * spots[other]
                wishes.append(total / weight if weight else spots[cell])
                weights.append(weight or PULL_BACK)
            _settle(cells, offsets, wishes, weights, spots)
    _straighten(grid, spots)
    return spots


def _pulls(grid: Grid) -> tuple[list[list[Pull]], list[list[Pull]]]:
    """What pulls at every cell from the layer above, and from the layer below."""
    ups: list[list[Pull]] = [[] for _ in grid.layer_of]
    downs: list[list[Pull]] = [[] for _ in grid.layer_of]
    ahead = [strand for strand in grid.strands if not strand.is_back]
    leaving = Counter(strand.upper for strand in ahead)
    arriving = Counter(strand.lower for strand in ahead)
    for strand in grid.strands:
        is_only = leaving[strand.upper] == 1 == arriving[strand.lower]
        at_end = PULL_BACK if strand.is_back else PULL_ONLY if is_only else PULL_AHEAD
        for above, below in pairwise((strand.upper, *strand.cells, strand.lower)):
            pull = at_end if grid.is_box(above) or grid.is_box(below) else PULL_ALONG
            ups[below].append((above, pull))
            downs[above].append((below, pull))
    return ups, downs


def _middles(grid: Grid, spots: Sequence[float]) -> dict[int, float]:
    """For every cell that a line passes, the middle of that line."""
    middles: dict[int, float] = {}
    for strand in grid.strands:
        if len(strand.cells) > 1:
            middle = sum(spots[cell] for cell in strand.cells) / len(strand.cells)
            middles.update(dict.fromkeys(strand.cells, middle))
    return middles


def _offsets(grid: Grid, cells: Sequence[int]) -> list[float]:
    """The least distance of each cell from the first cell of its layer."""
    offsets = [0.0]
    for last, cell in pairwise(cells):
        gap = GAP if grid.is_box(last) and grid.is_box(cell) else GAP_LINE
        offsets.append(offsets[-1] + grid.after[last] + gap + grid.before[cell])
    return offsets[: len(cells)]


def _settle(
    cells: Sequence[int],
    offsets: Sequence[float],
    wishes: Sequence[float],
    weights: Sequence[float],
    spots: list[float],
) -> None:
    """Place the cells of a layer by least squares, as near to their wishes as possible without overlap.

    Once the space that cells need is subtracted, positions must only not decrease: neighbours whose wishes
    cross share their weighted mean, and groups merge until none cross (isotonic regression).
    """
    groups: list[tuple[float, float, int]] = []
    for wish, weight, taken in zip(wishes, weights, offsets, strict=True):
        mean, size = wish - taken, 1
        while groups and groups[-1][0] >= mean:
            before, before_weight, before_size = groups.pop()
            mean = (mean * weight + before * before_weight) / (weight + before_weight)
            weight, size = weight + before_weight, size + before_size
        groups.append((mean, weight, size))
    position = 0
    for mean, _, size in groups:
        for at in range(position, position + size):
            spots[cells[at]] = mean + offsets[at]
        position += size


def _straighten(grid: Grid, spots: list[float]) -> None:
    """Straighten lines that pass several layers, as far as their neighbours leave space."""
    position = grid.positions()
    for strand in grid.strands:
        run, least, most = list[int](), -float("inf"), float("inf")
        for cell in strand.cells:
            low, high = _freedom(grid, grid.layers[grid.layer_of[cell]], position[cell], spots)
            if max(low, least) > min(high, most):
                _align(run, least, most, spots)
                run, least, most = [], low, high
            run.append(cell)
            least, most = max(low, least), min(high, most)
        _align(run, least, most, spots)


def _freedom(grid: Grid, cells: Sequence[int], position: int, spots: Sequence[float]) -> tuple[float, float]:
    """How far a line's cell may move to either side while its neighbours stay."""
    cell, low, high = cells[position], -float("inf"), float("inf")
    if position:
        last = cells[position - 1]
        low = spots[last] + grid.after[last] + GAP_LINE + grid.before[cell]
    if position + 1 < len(cells):
        following = cells[position + 1]
        high = spots[following] - grid.before[following] - GAP_LINE - grid.after[cell]
    # A cell that fits exactly must still fit after rounding.
    return min(low, spots[cell]), max(high, spots[cell])


def _align(run: Sequence[int], least: float, most: float, spots: list[float]) -> None:
    if len(run) > 1:
        middle = min(max(sum(spots[cell] for cell in run) / len(run), least), most)
        for cell in run:
            spots[cell] = middle
