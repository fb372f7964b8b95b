"""Writing SVG: numbers, points, and text that is escaped for XML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from onward.draw.layout.geometry import Box, Point
from onward.draw.layout.measure import tame

LABEL, LABEL_LEADING = 13.0, 17.0
SMALL, SMALL_LEADING = 11.0, 15.0
"""Font size and line height of the two kinds of text; the style sheet has the same."""
TITLE_ROOM = 2_000
"""The longest tooltip; a prompt used as a label may be a book."""


def xml(text: str) -> str:
    """Text escaped for XML, in content and in attributes."""
    return escape(tame(text), quote=True)


def number(value: float) -> str:
    """A tenth of a pixel is enough."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def spot(point: Point) -> str:
    """A point in a path."""
    return f"{number(point.x)} {number(point.y)}"


def corners_of(points: Sequence[Point]) -> str:
    """The corners of a polygon."""
    return " ".join(f"{number(point.x)},{number(point.y)}" for point in points)


def rectangle(kind: str, box: Box, radius: float) -> str:
    """A box of a class, with round corners."""
    return (
        f'<rect class="{kind}" x="{number(box.left)}" y="{number(box.top)}" width="{number(box.width)}" '
        f'height="{number(box.height)}" rx="{number(radius)}"/>'
    )
