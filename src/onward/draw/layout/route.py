"""The route of every line: straight through the layers, bending only between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from onward.draw.layout.geometry import Box, Curve, Point, Route, Size, Wire
from onward.draw.layout.layers import LOOP_ROOM, Grid, Strand

STEP = 16.0
"""The distance between lines that leave the same side of a box."""
GAP_LEAST, GAP_MOST = 30.0, 80.0
LANE, LANES = 7.0, 64
STUB = 11.0
"""How far a line runs straight before it arrives, so that its arrow points in its direction."""
SNAP = 0.3
"""How far from its even position a line may leave a box to run straight, as a share of the box."""


class Bands(msgspec.Struct, frozen=True):
    """Where each layer begins and ends along the flow."""

    top: Sequence[float]
    bottom: Sequence[float]


def bands_of(grid: Grid, spots: Sequence[float]) -> Bands:
    """Space for every layer, and more between two where lines have far to go."""
    top, bottom, along = list[float](), list[float](), 0.0
    for cells in grid.layers:
        thick = max((grid.depth[cell] for cell in cells), default=0.0)
        far = max((abs(spots[cell] - spots[to]) for cell in cells for to in grid.down[cell]), default=0.0)
        top.append(along)
        bottom.append(along + thick)
        along += thick + min(max(GAP_LEAST, 18 + 0.16 * far), GAP_MOST)
    return Bands(top, bottom)


def routes_of(
    grid: Grid, spots: Sequence[float], bands: Bands, boxes: Sequence[Box], wires: Sequence[Wire]
) -> list[Route]:
    """A route for every wire, in order, as if the graph flowed down."""
    leaving = _ports(grid.strands + grid.outside, spots, boxes, True, lambda strand: spots[_next(strand)])
    arriving = _ports(
        grid.strands + grid.outside,
        spots,
        boxes,
        False,
        lambda strand: spots[strand.cells[-1]] if strand.cells else leaving[strand.wire],
    )
    routes: dict[int, Route] = {}
    for strand in grid.strands:
        points = _through(grid, strand, spots, bands)
        ends = leaving[strand.wire], arriving[strand.wire]
        caption = _caption(strand, spots, bands, grid, wires)
        routes[strand.wire] = _route(strand, _whole(grid, strand, points, ends, boxes, bands), caption)
    edge = max((spots[cell] + grid.after[cell] for cell in range(len(spots))), default=0.0)
    for number, strand in enumerate(grid.outside):
        points = _around(grid, strand, edge + LANE * (2 + number % LANES), bands)
        ends = leaving[strand.wire], arriving[strand.wire]
        routes[strand.wire] = _route(strand, _whole(grid, strand, points, ends, boxes, bands), None)
    return list(_with_loops(boxes, wires, routes))


def _next(strand: Strand) -> int:
    return strand.cells[0] if strand.cells else strand.lower


def _ports(
    strands: Sequence[Strand],
    spots: Sequence[float],
    boxes: Sequence[Box],
    is_upper: bool,
    leads_to: Callable[[Strand], float],
) -> dict[int, float]:
    """Where on the side of its box each line ends: next to each other, and straight where possible."""
    sides: dict[int, list[tuple[float, int]]] = {}
    for strand in strands:
        end = strand.upper if is_upper else strand.lower
        sides.setdefault(end, []).append((leads_to(strand), strand.wire))
    ports: dict[int, float] = {}
    for number, ends in sides.items():
        box = boxes[number]
        step = min(STEP, 0.6 * box.width / len(ends))
        last = -float("inf")
        for position, (wanted, wire) in enumerate(sorted(ends)):
            even = box.x + (position - (len(ends) - 1) / 2) * step
            room = SNAP * box.width if len(ends) == 1 else step / 2
            # Half a step either way keeps the order of the lines and a little space between them.
            ports[wire] = last = max(wanted if abs(wanted - even) <= room else even, last + step / 2)
    return ports


def _through(grid: Grid, strand: Strand, spots: Sequence[float], bands: Bands) -> list[Point]:
    points: list[Point] = []
    for cell in strand.cells:
        layer = grid.layer_of[cell]
        points += (Point(spots[cell], bands.top[layer]), Point(spots[cell], bands.bottom[layer]))
    return points


def _around(grid: Grid, strand: Strand, lane: float, bands: Bands) -> list[Point]:
    first, last = grid.layer_of[strand.upper] + 1, grid.layer_of[strand.lower] - 1
    return [Point(lane, bands.top[first]), Point(lane, bands.bottom[max(first, last)])]


def _whole(
    grid: Grid,
    strand: Strand,
    between: Iterable[Point],
    ends: tuple[float, float],
    boxes: Sequence[Box],
    bands: Bands,
) -> list[Point]:
    upper, lower = boxes[strand.upper], boxes[strand.lower]
    first, last = ends
    into_upper, into_lower = (STUB, 0.0) if strand.is_back else (0.0, STUB)
    return [
        Point(first, upper.bottom),
        Point(first, bands.bottom[grid.layer_of[strand.upper]] + into_upper),
        *between,
        Point(last, bands.top[grid.layer_of[strand.lower]] - into_lower),
        Point(last, lower.top),
    ]


def _route(strand: Strand, points: list[Point], caption: Box | None) -> Route:
    if strand.is_back:
        points.reverse()
    curves, here = list[Curve](), points[0]
    for point in points[1:]:
        if point == here:
            continue
        if curves and point.x == here.x == curves[-1].first.x == curves[-1].second.x:
            curves.pop()  # straight on: one piece
        middle = (here.y + point.y) / 2
        curves.append(Curve(Point(here.x, middle), Point(point.x, middle), point))
        here = point
    return Route(points[0], tuple(curves), caption, strand.is_back)


def _caption(
    strand: Strand, spots: Sequence[float], bands: Bands, grid: Grid, wires: Sequence[Wire]
) -> Box | None:
    size = wires[strand.wire].caption
    if strand.caption is None or size is None:
        return None
    layer = grid.layer_of[strand.caption]
    return Box(spots[strand.caption], (bands.top[layer] + bands.bottom[layer]) / 2, *size)


def _with_loops(boxes: Sequence[Box], wires: Sequence[Wire], done: dict[int, Route]) -> Iterable[Route]:
    """All routes in order, and those from a box to itself: out at its side and back in below."""
    room: dict[int, float] = {}
    for number, wire in enumerate(wires):
        if number in done:
            yield done[number]
            continue
        box, size = boxes[wire.tail], wire.caption or Size(0, 0)
        out = box.right + room.get(wire.tail, 0.0)
        room[wire.tail] = room.get(wire.tail, 0.0) + LOOP_ROOM + size.width
        high, low = box.y - box.height / 5, box.y + box.height / 5
        bulge = out + LOOP_ROOM
        curve = Curve(Point(bulge, high - 4), Point(bulge, low + 4), Point(box.right, low))
        caption = Box(out + LOOP_ROOM - 2 + size.width / 2, box.y, *size) if wire.caption else None
        yield Route(Point(box.right, high), (curve,), caption, True)
