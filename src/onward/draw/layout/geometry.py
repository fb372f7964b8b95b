"""Positions and sizes, in pixels; x grows to the right and y downwards."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

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


class Wire(msgspec.Struct, frozen=True):
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
