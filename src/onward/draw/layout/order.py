"""The order of the cells in each layer: few lines cross, and the same graph always gets the same order."""

from __future__ import annotations

from collections.abc import Sequence

from onward.draw.layout.layers import Grid

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
