"""Positions and sizes: of boxes and lines, of texts, and of the dialect's shapes.

They are in pixels; x grows to the right and y downwards. Text for a picture is made harmless, cut to a
length, and measured. A shape says how much space a text needs in it, and where its edges are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple
from unicodedata import combining, east_asian_width

import msgspec


class Point(NamedTuple):
    """A position."""

    x: float
    y: float


class Size(NamedTuple):
    """How much space something needs."""

    width: float
    height: float


class Box(NamedTuple):
    """A rectangle, given by its centre."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width / 2

    @property
    def top(self) -> float:
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height / 2


class Curve(NamedTuple):
    """A cubic curve that starts where the previous one ended."""

    first: Point
    second: Point
    end: Point


class Direction(StrEnum):
    """Which way the graph flows: the values of `rankdir`."""

    DOWN = "TB"
    RIGHT = "LR"
    UP = "BT"
    LEFT = "RL"

    @property
    def is_sideways(self) -> bool:
        return self in (Direction.RIGHT, Direction.LEFT)


class LayoutLine(msgspec.Struct, frozen=True):
    """A line to draw from one box to another, both by number, and the size of its caption."""

    tail: int
    head: int
    caption: Size | None = None


class Route(msgspec.Struct, frozen=True):
    """Where a line runs; `is_back` if it goes against the flow."""

    start: Point
    curves: tuple[Curve, ...]
    caption: Box | None
    is_back: bool

    @property
    def end(self) -> Point:
        return self.curves[-1].end


class Layout(msgspec.Struct, frozen=True):
    """A box for every size that was given, a route for every wire, and the page that holds them all."""

    size: Size
    boxes: tuple[Box, ...]
    routes: tuple[Route, ...]


# Escape sequences first, or their tails would remain as text.
_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\x9c|$)|\x9b[0-?]*[ -/]*[@-~]", re.DOTALL
)
# Characters that XML forbids, that control a terminal, or that reorder text.
_LOUD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]"
)
# Shares of the font's size for a plain sans-serif face, on the generous side.
_NARROW, _WIDE = frozenset("fijlrtI.,:;|!'`()[]{}/ "), frozenset("mwMW@%&—…→")
_SHARES = {"narrow": 0.36, "wide": 0.95, "capital": 0.72, "other": 0.6, "full": 1.05}
ELLIPSIS = "…"


def tame(text: str) -> str:
    """The text without control characters; line breaks stay."""
    if text.isascii() and text.isprintable():
        return text
    text = _SEQUENCES.sub("", text.replace("\r\n", "\n"))
    kept = _LOUD.sub("", text)
    return "".join(character for character in kept if ord(character) & 0xFFFE != 0xFFFE)


def one_line(text: str) -> str:
    """The tamed text on one line."""
    return " ".join(tame(text).split())


def cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text
    )


def cut(text: str, room: int) -> str:
    """The text, cut to at most `room` columns."""
    if cells(text) <= room:
        return text
    kept, used = list[str](), 0
    for character in text:
        used += cells(character)
        if used > room - 1:
            break
        kept.append(character)
    return "".join(kept).rstrip() + ELLIPSIS if room > 0 else ""


def wrap(text: str, room: int, lines_max: int) -> list[str]:
    """The text in at most `lines_max` lines of `room` columns; an ellipsis marks what was cut."""
    lines: list[str] = []
    for paragraph in tame(text).split("\n"):
        line = ""
        for word in _words(paragraph, room):
            joined = f"{line} {word}" if line else word
            if line and cells(joined) > room:
                lines.append(line)
                line = word
            else:
                line = joined
            if len(lines) > lines_max:
                break
        lines += [line] if line else []
    if len(lines) > lines_max:
        last = cut(lines[lines_max - 1], room - 1)
        lines = [*lines[: lines_max - 1], last if last.endswith(ELLIPSIS) else last + ELLIPSIS]
    return lines


def _words(paragraph: str, room: int) -> Iterable[str]:
    """The words, long ones in pieces."""
    for word in paragraph.split():
        while cells(word) > room:
            piece = word
            while cells(piece) > room:
                piece = piece[: max(1, min(room, len(piece) - 1))]
            yield piece
            word = word[len(piece) :]
        if word:
            yield word


def width_of(text: str, font_size: float) -> float:
    """About how wide a text is, in pixels."""
    return font_size * sum(_share(character) for character in text)


def _share(character: str) -> float:
    if character in _NARROW:
        return _SHARES["narrow"]
    if character in _WIDE:
        return _SHARES["wide"]
    if character.isascii():
        return _SHARES["capital" if character.isupper() else "other"]
    if combining(character):
        return 0.0
    return _SHARES["full" if east_asian_width(character) in "WF" else "capital"]


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
