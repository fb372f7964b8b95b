"""The outlines of the dialect's shapes: how much space a text needs in each, and where their edges are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from onward.draw.layout.geometry import Box, Point, Size

PAD_X, PAD_Y = 14.0, 9.0
SLANT = 16.0
"""How far slanted sides lean in."""
ROOF = 14.0
CUT = 9.0
RING = 4.0
"""The distance between the outlines of a shape that has several."""
TAB = 8.0

Outline = Sequence[Point]


def size_around(shape: str, text: Size) -> Size:
    """How large a shape must be for a text of this size to fit into it."""
    width, height = text.width + 2 * PAD_X, text.height + 2 * PAD_Y
    match shape:
        case "diamond" | "Mdiamond":
            # A rectangle fits a diamond if its shares of the two axes add up to one.
            return Size(max(text.width * 1.7 + 8, 96), max(text.height * 2.45, 62))
        case "hexagon" | "parallelogram":
            return Size(width + 2 * SLANT - 8, height)
        case "house":
            return Size(width, height + ROOF)
        case "tripleoctagon":
            return Size(width + 4 * RING + 4, height + 4 * RING)
        case "component":
            return Size(width + 2 * TAB, height)
        case "Msquare":
            return Size(max(width, 84), max(height, 46))
        case _:
            return Size(max(width, 84), height)


def text_middle(shape: str, box: Box) -> Point:
    """Where the centre of the text belongs."""
    match shape:
        case "house":
            return Point(box.x, box.y + ROOF / 2)
        case "component":
            return Point(box.x + TAB / 2, box.y)
        case _:
            return Point(box.x, box.y)


def outline(shape: str, box: Box) -> Outline:
    """The corners of a shape, clockwise."""
    left, right, top, bottom, x, y = box.left, box.right, box.top, box.bottom, box.x, box.y
    match shape:
        case "diamond" | "Mdiamond":
            corners = [(x, top), (right, y), (x, bottom), (left, y)]
        case "hexagon":
            corners = [
                *((left + SLANT, top), (right - SLANT, top), (right, y)),
                *((right - SLANT, bottom), (left + SLANT, bottom), (left, y)),
            ]
        case "parallelogram":
            corners = [(left + SLANT, top), (right, top), (right - SLANT, bottom), (left, bottom)]
        case "house":
            corners = [(x, top), (right, top + ROOF), (right, bottom), (left, bottom), (left, top + ROOF)]
        case "tripleoctagon":
            return octagon(box)
        case _:
            corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    return [Point(*corner) for corner in corners]


def octagon(box: Box) -> Outline:
    """A rectangle without its corners."""
    left, right, top, bottom = box.left, box.right, box.top, box.bottom
    corners = [
        *((left + CUT, top), (right - CUT, top), (right, top + CUT), (right, bottom - CUT)),
        *((right - CUT, bottom), (left + CUT, bottom), (left, bottom - CUT), (left, top + CUT)),
    ]
    return [Point(*corner) for corner in corners]


def inner(box: Box, by: float) -> Box:
    """The box without a rim."""
    return Box(box.x, box.y, box.width - 2 * by, box.height - 2 * by)


def strokes(shape: str, box: Box) -> list[tuple[Point, Point]]:
    """The lines inside a shape that distinguish it from others."""
    left, right, top, bottom, x, y = box.left, box.right, box.top, box.bottom, box.x, box.y
    match shape:
        case "Msquare":
            ends = [
                ((left + CUT, top), (left, top + CUT)),
                ((right - CUT, top), (right, top + CUT)),
                ((left + CUT, bottom), (left, bottom - CUT)),
                ((right - CUT, bottom), (right, bottom - CUT)),
            ]
        case "Mdiamond":
            along = CUT * 0.9
            across = along * box.width / box.height
            ends = [
                ((x - across, top + along), (x + across, top + along)),
                ((x - across, bottom - along), (x + across, bottom - along)),
                ((left + across, y - along), (left + across, y + along)),
                ((right - across, y - along), (right - across, y + along)),
            ]
        case _:
            ends = []
    return [(Point(*start), Point(*end)) for start, end in ends]


def meeting(corners: Outline, port: Point, *, upright: bool) -> Point:
    """Where a line that comes straight to `port`, at the rim of the box, meets the outline."""
    found: list[float] = []
    for start, end in pairwise([*corners, corners[0]]):
        here, there = (start, end) if upright else (Point(start.y, start.x), Point(end.y, end.x))
        at = port.x if upright else port.y
        if min(here.x, there.x) <= at <= max(here.x, there.x):
            share = 0.0 if here.x == there.x else (at - here.x) / (there.x - here.x)
            found.append(here.y + share * (there.y - here.y))
    at_rim = port.y if upright else port.x
    nearest = min(found, key=lambda place: abs(place - at_rim), default=at_rim)
    return Point(port.x, nearest) if upright else Point(nearest, port.y)
