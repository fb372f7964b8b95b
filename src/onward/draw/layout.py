"""The layout: boxes in layers along the flow, lines between them, nothing on top of another.

Begin with `lay_out`. A cell's position in its layer is near its neighbours, and never on top of another. A
line runs straight through the layers and bends only between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

from onward.draw.geometry import Box, Curve, Direction, Layout, LayoutLine, Point, Route, Size
from onward.draw.layers import LOOP_ROOM, Grid, Strand, arrange, make_grid

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
    grid: Grid, spots: Sequence[float], bands: Bands, boxes: Sequence[Box], wires: Sequence[LayoutLine]
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
    strand: Strand, spots: Sequence[float], bands: Bands, grid: Grid, wires: Sequence[LayoutLine]
) -> Box | None:
    size = wires[strand.wire].caption
    if strand.caption is None or size is None:
        return None
    layer = grid.layer_of[strand.caption]
    return Box(spots[strand.caption], (bands.top[layer] + bands.bottom[layer]) / 2, *size)


def _with_loops(boxes: Sequence[Box], wires: Sequence[LayoutLine], done: dict[int, Route]) -> Iterable[Route]:
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


Place = Callable[[Point], Point]


def lay_out(
    sizes: Sequence[Size],
    wires: Sequence[LayoutLine],
    *,
    start: int | None = None,
    direction: Direction = Direction.DOWN,
) -> Layout:
    """Place boxes of these sizes and the lines between them; the same input gives the same layout.

    Boxes never overlap, lines never cross a box, and captions never cover a box or each other. A line that
    would be too costly to route between the boxes goes around them, without its caption.
    """
    turned = direction.is_sideways
    sizes = [_turned(size) if turned else size for size in sizes]
    wires = [
        LayoutLine(wire.tail, wire.head, _turned(wire.caption)) if turned and wire.caption else wire
        for wire in wires
    ]
    grid = make_grid(sizes, wires, start)
    arrange(grid)
    spots = place(grid)
    bands = bands_of(grid, spots)
    boxes = [
        Box(spots[cell], (bands.top[layer] + bands.bottom[layer]) / 2, *sizes[cell])
        for cell, layer in enumerate(grid.layer_of[: grid.boxes])
    ]
    routes = routes_of(grid, spots, bands, boxes, wires)
    left, right = _extent(boxes, routes)
    length = bands.bottom[-1] if bands.bottom else 0.0
    size = Size(right - left, length)
    put = _placer(direction, left, length)
    return Layout(
        _turned(size) if turned else size,
        tuple(_moved(box, put, turned) for box in boxes),
        tuple(_led(route, put, turned) for route in routes),
    )


def _turned(size: Size) -> Size:
    return Size(size.height, size.width)


def _extent(boxes: Sequence[Box], routes: Sequence[Route]) -> tuple[float, float]:
    """How far the picture reaches across the flow."""
    spans = [(box.left, box.right) for box in boxes]
    spans += [(route.caption.left, route.caption.right) for route in routes if route.caption]
    spans += [(x, x) for route in routes for curve in route.curves for x in (curve.first.x, curve.second.x)]
    return min((left for left, _ in spans), default=0.0), max((right for _, right in spans), default=0.0)


def _placer(direction: Direction, left: float, length: float) -> Place:
    """Maps points of a graph that flows down to the wanted direction, with the corner at the origin."""
    match direction:
        case Direction.DOWN:
            return lambda point: Point(point.x - left, point.y)
        case Direction.UP:
            return lambda point: Point(point.x - left, length - point.y)
        case Direction.RIGHT:
            return lambda point: Point(point.y, point.x - left)
        case Direction.LEFT:
            return lambda point: Point(length - point.y, point.x - left)


def _moved(box: Box, put: Place, turned: bool) -> Box:
    x, y = put(Point(box.x, box.y))
    return Box(x, y, box.height, box.width) if turned else Box(x, y, box.width, box.height)


def _led(route: Route, put: Place, turned: bool) -> Route:
    curves = tuple(Curve(*map(put, curve)) for curve in route.curves)
    caption = route.caption and _moved(route.caption, put, turned)
    return Route(put(route.start), curves, caption, route.is_back)
