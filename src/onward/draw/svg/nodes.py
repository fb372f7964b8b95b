"""Nodes in SVG: an outline, a label, and its state by mark, word and colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from onward.draw.layout.geometry import Box, Size
from onward.draw.layout.measure import cut, one_line, tame, width_of, wrap
from onward.draw.scene import Item
from onward.draw.svg.markup import (
    LABEL,
    LABEL_LEADING,
    SMALL,
    SMALL_LEADING,
    TITLE_ROOM,
    corners_of,
    number,
    rectangle,
    spot,
    xml,
)
from onward.draw.svg.palette import MARKS, NAMES
from onward.draw.svg.shapes import RING, TAB, Outline, inner, octagon, strokes, text_middle

MARK = 15.0
LABEL_ROOM, LABEL_LINES = 24, 3
SMALL_ROOM = 44


class Body(msgspec.Struct, frozen=True):
    """The words of a box."""

    label: Sequence[str]
    small: str
    size: Size


def body_of(item: Item) -> Body:
    label = wrap(item.label, LABEL_ROOM, LABEL_LINES) or wrap(item.id, LABEL_ROOM, LABEL_LINES)
    small = item.state.words if item.state else item.kind_words
    if not item.state and len(label) == 1 and label[0].casefold() == small.casefold():
        small = ""
    small = cut(one_line(small), SMALL_ROOM)
    width = max(
        *(width_of(line, LABEL) * 1.04 for line in label),
        width_of(small, SMALL) + (MARK if item.state else 0),
    )
    height = LABEL_LEADING * len(label) + (SMALL_LEADING if small else 0)
    return Body(label, small, Size(width, height))


def node_svg(item: Item, body: Body, box: Box, corners: Outline) -> str:
    status = item.state.status if item.state else None
    words = [f"<title>{xml(_title(item))}</title>", *_shape(item, box, corners)]
    middle = text_middle(item.shape, box)
    y = middle.y - body.size.height / 2 + LABEL_LEADING - 4.5
    for line in body.label:
        words.append(f'<text class="label middle" x="{number(middle.x)}" y="{number(y)}">{xml(line)}</text>')
        y += LABEL_LEADING
    if body.small:
        y -= 1.5
        x = middle.x + (MARK / 2 if status else 0)
        if status:
            at = x - width_of(body.small, SMALL) * 0.49 - MARK / 2 - 2
            where = f"translate({number(at)} {number(y - 4)})"
            words.append(f'<g class="mark" transform="{where}">{MARKS[status].drawing}</g>')
        words.append(f'<text class="small middle" x="{number(x)}" y="{number(y)}">{xml(body.small)}</text>')
    kind = f' class="{NAMES[status]}"' if status else ""
    return f"<g{kind}>{''.join(words)}</g>"


def _shape(item: Item, box: Box, corners: Outline) -> Iterator[str]:
    if item.state and item.state.is_next:
        rim = inner(box, -5)
        yield rectangle("next", rim, 10)
    if item.shape in ("box", "component") or (len(corners) == 4 and item.shape not in _POINTED):
        radius = 2 if item.shape in ("component", "Msquare") else 7
        yield rectangle("shape", box, radius)
    else:
        yield f'<polygon class="shape" points="{corners_of(corners)}"/>'
    if item.shape == "tripleoctagon":
        for ring in (1, 2):
            yield f'<polygon class="inside" points="{corners_of(octagon(inner(box, ring * RING)))}"/>'
    if item.shape == "component":
        for y in (box.y - box.height / 5, box.y + box.height / 5):
            yield rectangle("shape", Box(box.left + TAB / 4, y, TAB * 1.5, 8), 1)
    for start, end in strokes(item.shape, box):
        yield f'<path class="inside" d="M{spot(start)}L{spot(end)}"/>'


_POINTED = ("diamond", "Mdiamond", "parallelogram")


def _title(item: Item) -> str:
    """Everything about a node, as a tooltip."""
    name = item.id if item.label == item.id else f"{item.id}: {tame(item.label)}"
    parts = [name, f"({item.kind_words})"]
    if item.state:
        parts.append(f"- {item.state.words}" + (f": {tame(item.state.note)}" if item.state.note else ""))
    return cut(" ".join(parts), TITLE_ROOM)
