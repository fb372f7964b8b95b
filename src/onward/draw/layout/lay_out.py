"""The layout: boxes in layers along the flow, lines between them, nothing on top of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onward.draw.layout.geometry import Box, Curve, Direction, Layout, Point, Route, Size, Wire
from onward.draw.layout.layers import make_grid
from onward.draw.layout.order import arrange
from onward.draw.layout.place import place
from onward.draw.layout.route import bands_of, routes_of

Place = Callable[[Point], Point]


def lay_out(
    sizes: Sequence[Size],
    wires: Sequence[Wire],
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
        Wire(wire.tail, wire.head, _turned(wire.caption)) if turned and wire.caption else wire
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
