"""A picture as SVG: one self-contained file without scripts, which says in words what its colours say.

Begin with `to_svg`. There are colours for light and dark mode, and a mark for every state, so that no state
shows by colour alone. A node has an outline, a label, and its state by mark, word and colour. A line runs
from outline to outline, with an arrow and a caption; edges that were taken are heavy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

import msgspec

from onward.draw import geometry
from onward.draw.layout import lay_out
from onward.draw.scene import Item, NodeStatus, Scene, SceneLine


class Tint(NamedTuple):
    """The colours of a box: its inside, its outline, and its small words."""

    fill: str
    stroke: str
    words: str


class Mark(NamedTuple):
    """A sign for a state: on a terminal, on one without Unicode, and drawn around the origin."""

    sign: str
    plain: str
    drawing: str


# The colours of the dashboard (web/src/tokens.css): amber can be resumed, magenta asks a person. A step that
# is retried is one that runs, and its sign tells them apart.
LIGHT: Mapping[NodeStatus, Tint] = {
    NodeStatus.RUNNING: Tint("#e9f1fe", "#2a74ea", "#0a58c7"),
    NodeStatus.WAITING: Tint("#fcedfa", "#b93bb0", "#97238f"),
    NodeStatus.RETRYING: Tint("#e9f1fe", "#2a74ea", "#0a58c7"),
    NodeStatus.FAILED: Tint("#fdedee", "#d92d3f", "#b0143c"),
    NodeStatus.INTERRUPTED: Tint("#fff5e0", "#8a4b00", "#8a4b00"),
    NodeStatus.PARTIAL: Tint("#e7f6ed", "#0a6b4d", "#0a6b4d"),
    NodeStatus.SKIPPED: Tint("#f3f3f5", "#85858f", "#666670"),
    NodeStatus.SUCCEEDED: Tint("#e7f6ed", "#17804b", "#0a6b4d"),
    NodeStatus.NOT_REACHED: Tint("#ffffff", "#85858f", "#5b5b66"),
}
DARK: Mapping[NodeStatus, Tint] = {
    NodeStatus.RUNNING: Tint("#0f2139", "#3f8cf4", "#79b4ff"),
    NodeStatus.WAITING: Tint("#2b1329", "#c558bc", "#f0a6e8"),
    NodeStatus.RETRYING: Tint("#0f2139", "#3f8cf4", "#79b4ff"),
    NodeStatus.FAILED: Tint("#2c1216", "#e5484d", "#ff7076"),
    NodeStatus.INTERRUPTED: Tint("#271c08", "#f2a31b", "#f7b955"),
    NodeStatus.PARTIAL: Tint("#0d2419", "#63d6a8", "#63d6a8"),
    NodeStatus.SKIPPED: Tint("#15171b", "#6c707b", "#858995"),
    NodeStatus.SUCCEEDED: Tint("#0d2419", "#2f9e66", "#63d6a8"),
    NodeStatus.NOT_REACHED: Tint("#111216", "#6c707b", "#9a9daa"),
}
MARKS: Mapping[NodeStatus, Mark] = {
    NodeStatus.RUNNING: Mark("●", "*", '<circle class="on" r="4.2"/>'),
    NodeStatus.WAITING: Mark("?", "?", '<path d="M-2.8-2.2a2.8 2.6 0 1 1 4.4 2.1q-1.6 1-1.6 2.2M0 4.6v.3"/>'),
    NodeStatus.RETRYING: Mark("↻", "~", '<path d="M3.6 1.6A4 4 0 1 1 3-2.7M3.6-4.8v2.6H1"/>'),
    NodeStatus.FAILED: Mark("✗", "x", '<path d="M-3.4-3.4 3.4 3.4M3.4-3.4-3.4 3.4"/>'),
    NodeStatus.INTERRUPTED: Mark("!", "!", '<path d="M0-4.6V1M0 4.3v.3"/>'),
    NodeStatus.PARTIAL: Mark("◐", "%", '<circle r="4"/><path class="on" d="M0-4A4 4 0 0 0 0 4z"/>'),
    NodeStatus.SKIPPED: Mark("»", ">", '<path d="M-4-3.4-.6 0-4 3.4M.6-3.4 4 0 .6 3.4"/>'),
    NodeStatus.SUCCEEDED: Mark("✓", "+", '<path d="M-4 .4-1.2 3.2 4-3.2"/>'),
    NodeStatus.NOT_REACHED: Mark("·", ".", '<circle r="3"/>'),
}
NAMES: Mapping[NodeStatus, str] = {status: status.value.replace(" ", "-") for status in NodeStatus}
"""The class of a state in the style sheet."""

_BASE = """\
.onward text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
.onward .label{font-size:13px;font-weight:600}
.onward .small,.onward .caption{font-size:11px}
.onward .heading{font-size:15px;font-weight:600}
.onward .condition{font-style:italic}
.onward .middle{text-anchor:middle}
.onward .shape{stroke-width:1.5;stroke-linejoin:round}
.onward .inside{fill:none;stroke-width:1.2}
.onward .skipped .shape{stroke-dasharray:5 3}
.onward .running .shape,.onward .waiting .shape,.onward .failed .shape{stroke-width:2.5}
.onward .line{fill:none;stroke-width:1.3}
.onward .taken .line{stroke-width:2.4}
.onward .jump .line{stroke-dasharray:2 4;stroke-linecap:round}
.onward .mark{fill:none;stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round}
.onward .mark .on{stroke:none}
.onward .next{fill:none;stroke-width:1.5;stroke-dasharray:3 3}
"""


def style_sheet() -> str:
    """The rules for light mode, and those that override them in dark mode."""
    light = _rules(LIGHT, page="#ffffff", ink="#17171a", dim="#666670", line="#85858f", taken="#17171a")
    dark = _rules(DARK, page="#111216", ink="#eeeef1", dim="#858995", line="#6c707b", taken="#eeeef1")
    return f"{_BASE}{light}@media (prefers-color-scheme:dark){{\n{dark}}}\n"


def _rules(tints: Mapping[NodeStatus, Tint], *, page: str, ink: str, dim: str, line: str, taken: str) -> str:
    plain = tints[NodeStatus.NOT_REACHED]
    rules = [
        f".onward .page,.onward .halo{{fill:{page}}}",
        f".onward .label,.onward .heading{{fill:{ink}}}",
        f".onward .small,.onward .caption{{fill:{dim}}}",
        f".onward .shape{{fill:{plain.fill};stroke:{ink}}}",
        f".onward .inside{{stroke:{ink}}}",
        f".onward .line{{stroke:{line}}}.onward .tip{{fill:{line}}}",
        f".onward .plain .line{{stroke:{dim}}}.onward .plain .tip{{fill:{dim}}}",
        f".onward .taken .line{{stroke:{taken}}}.onward .taken .tip,.onward .taken .caption{{fill:{taken}}}",
        f".onward .next{{stroke:{dim}}}",
    ]
    for status, tint in tints.items():
        own = f".onward .{NAMES[status]}"
        rules += [
            f"{own} .shape{{fill:{tint.fill};stroke:{tint.stroke}}}{own} .inside{{stroke:{tint.stroke}}}",
            f"{own} .small{{fill:{tint.words}}}{own} .mark{{stroke:{tint.words}}}",
            f"{own} .mark .on{{fill:{tint.words}}}",
        ]
    return "\n".join(rules) + "\n"


LABEL, LABEL_LEADING = 13.0, 17.0
SMALL, SMALL_LEADING = 11.0, 15.0
"""Font size and line height of the two kinds of text; the style sheet has the same."""
TITLE_ROOM = 2_000
"""The longest tooltip; a prompt used as a label may be a book."""


def xml(text: str) -> str:
    """Text escaped for XML, in content and in attributes."""
    return escape(geometry.tame(text), quote=True)


def number(value: float) -> str:
    """A tenth of a pixel is enough."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def spot(point: geometry.Point) -> str:
    """A point in a path."""
    return f"{number(point.x)} {number(point.y)}"


def corners_of(points: Sequence[geometry.Point]) -> str:
    """The corners of a polygon."""
    return " ".join(f"{number(point.x)},{number(point.y)}" for point in points)


def rectangle(kind: str, box: geometry.Box, radius: float) -> str:
    """A box of a class, with round corners."""
    return (
        f'<rect class="{kind}" x="{number(box.left)}" y="{number(box.top)}" width="{number(box.width)}" '
        f'height="{number(box.height)}" rx="{number(radius)}"/>'
    )


MARK = 15.0
LABEL_ROOM, LABEL_LINES = 24, 3
SMALL_ROOM = 44


class Body(msgspec.Struct, frozen=True):
    """The words of a box."""

    label: Sequence[str]
    small: str
    size: geometry.Size


def body_of(item: Item) -> Body:
    label = geometry.wrap(item.label, LABEL_ROOM, LABEL_LINES) or geometry.wrap(
        item.id, LABEL_ROOM, LABEL_LINES
    )
    small = item.state.words if item.state else item.kind_words
    if not item.state and len(label) == 1 and label[0].casefold() == small.casefold():
        small = ""
    small = geometry.cut(geometry.one_line(small), SMALL_ROOM)
    width = max(
        *(geometry.width_of(line, LABEL) * 1.04 for line in label),
        geometry.width_of(small, SMALL) + (MARK if item.state else 0),
    )
    height = LABEL_LEADING * len(label) + (SMALL_LEADING if small else 0)
    return Body(label, small, geometry.Size(width, height))


def node_svg(item: Item, body: Body, box: geometry.Box, corners: geometry.Outline) -> str:
    status = item.state.status if item.state else None
    words = [f"<title>{xml(_title(item))}</title>", *_shape(item, box, corners)]
    middle = geometry.text_middle(item.shape, box)
    y = middle.y - body.size.height / 2 + LABEL_LEADING - 4.5
    for line in body.label:
        words.append(f'<text class="label middle" x="{number(middle.x)}" y="{number(y)}">{xml(line)}</text>')
        y += LABEL_LEADING
    if body.small:
        y -= 1.5
        x = middle.x + (MARK / 2 if status else 0)
        if status:
            at = x - geometry.width_of(body.small, SMALL) * 0.49 - MARK / 2 - 2
            where = f"translate({number(at)} {number(y - 4)})"
            words.append(f'<g class="mark" transform="{where}">{MARKS[status].drawing}</g>')
        words.append(f'<text class="small middle" x="{number(x)}" y="{number(y)}">{xml(body.small)}</text>')
    kind = f' class="{NAMES[status]}"' if status else ""
    return f"<g{kind}>{''.join(words)}</g>"


def _shape(item: Item, box: geometry.Box, corners: geometry.Outline) -> Iterator[str]:
    if item.state and item.state.is_next:
        rim = geometry.inner(box, -5)
        yield rectangle("next", rim, 10)
    if item.shape in ("box", "component") or (len(corners) == 4 and item.shape not in _POINTED):
        radius = 2 if item.shape in ("component", "Msquare") else 7
        yield rectangle("shape", box, radius)
    else:
        yield f'<polygon class="shape" points="{corners_of(corners)}"/>'
    if item.shape == "tripleoctagon":
        for ring in (1, 2):
            inside = geometry.octagon(geometry.inner(box, ring * geometry.RING))
            yield f'<polygon class="inside" points="{corners_of(inside)}"/>'
    if item.shape == "component":
        for y in (box.y - box.height / 5, box.y + box.height / 5):
            yield rectangle("shape", geometry.Box(box.left + geometry.TAB / 4, y, geometry.TAB * 1.5, 8), 1)
    for start, end in geometry.strokes(item.shape, box):
        yield f'<path class="inside" d="M{spot(start)}L{spot(end)}"/>'


_POINTED = ("diamond", "Mdiamond", "parallelogram")


def _title(item: Item) -> str:
    """Everything about a node, as a tooltip."""
    name = item.id if item.label == item.id else f"{item.id}: {geometry.tame(item.label)}"
    parts = [name, f"({item.kind_words})"]
    if item.state:
        parts.append(
            f"- {item.state.words}" + (f": {geometry.tame(item.state.note)}" if item.state.note else "")
        )
    return geometry.cut(" ".join(parts), TITLE_ROOM)


TIP, TIP_HALF = 9.0, 4.5
CAPTION_ROOM = 30

Caption = list[tuple[str, str]]
"""Lines of words, each with its class."""


def caption_lines(line: SceneLine) -> Caption:
    found: Caption = []
    if line.label:
        found.append((geometry.cut(line.label, CAPTION_ROOM), "caption"))
    if line.condition:
        found.append((geometry.cut(line.condition, CAPTION_ROOM), "caption condition"))
    if line.taken is not None and line.taken > 1:
        last, kind = found.pop() if found else ("", "caption")
        found.append((f"{last} ×{line.taken}".strip(), kind))
    return found


def caption_size(lines: Caption) -> geometry.Size | None:
    if not lines:
        return None
    return geometry.Size(
        max(geometry.width_of(text, SMALL) for text, _ in lines) + 8, SMALL_LEADING * len(lines) + 2
    )


def lines_svg(
    scene: Scene, layout: geometry.Layout, captions: Sequence[Caption], outlines: Sequence[geometry.Outline]
) -> Iterator[str]:
    """Lines not taken first, so that those taken are on top; captions above all lines."""
    drawn = sorted(zip(scene.lines, layout.routes, captions, strict=True), key=lambda one: bool(one[0].taken))
    for line, route, _ in drawn:
        yield _edge(scene, line, onto(route, outlines[line.tail], outlines[line.head]))
    for line, route, caption in drawn:
        if route.caption:
            yield f'<g class="{_edge_class(line)}">{"".join(_caption(route.caption, caption))}</g>'


def onto(route: geometry.Route, tail: geometry.Outline, head: geometry.Outline) -> geometry.Route:
    """The route from outline to outline instead of from box to box."""
    first, last = route.curves[0], route.curves[-1]
    start = geometry.meeting(tail, route.start, upright=abs(first.first.x - route.start.x) < 0.01)
    end = geometry.meeting(head, route.end, upright=abs(last.second.x - route.end.x) < 0.01)
    curves = list(route.curves)
    if start != route.start:
        curves.insert(0, _straight(start, route.start))
    if end != route.end:
        curves.append(_straight(route.end, end))
    return geometry.Route(start, tuple(curves), route.caption, route.is_back)


def _straight(start: geometry.Point, end: geometry.Point) -> geometry.Curve:
    return geometry.Curve(start, end, end)


def _edge(scene: Scene, line: SceneLine, route: geometry.Route) -> str:
    path, tip = _path(route)
    title = f"<title>{xml(_edge_title(scene, line))}</title>"
    return f'<g class="{_edge_class(line)}">{title}<path class="line" d="{path}"/>{tip}</g>'


def _path(route: geometry.Route) -> tuple[str, str]:
    """The line up to the foot of its arrow, and the arrow."""
    end = route.end
    last = route.curves[-1]
    before = next((p for p in (last.second, last.first) if p != end), None)
    if before is None:
        before = route.curves[-2].end if len(route.curves) > 1 else route.start
    dx, dy = end.x - before.x, end.y - before.y
    length = (dx * dx + dy * dy) ** 0.5 or 1.0
    ux, uy = dx / length, dy / length
    foot = geometry.Point(end.x - ux * (TIP - 1), end.y - uy * (TIP - 1))
    pieces = [f"M{spot(route.start)}"]
    for count, curve in enumerate(route.curves, start=1):
        goal = foot if count == len(route.curves) else curve.end
        pieces.append(f"C{spot(curve.first)} {spot(curve.second)} {spot(goal)}")
    back = geometry.Point(end.x - ux * TIP, end.y - uy * TIP)
    corners = (
        end,
        geometry.Point(back.x - uy * TIP_HALF, back.y + ux * TIP_HALF),
        geometry.Point(back.x + uy * TIP_HALF, back.y - ux * TIP_HALF),
    )
    return "".join(pieces), f'<polygon class="tip" points="{corners_of(corners)}"/>'


def _edge_class(line: SceneLine) -> str:
    names = ["plain" if line.taken is None else "taken" if line.taken else "untaken"]
    return " ".join([*names, "jump"] if line.is_jump else names)


def _edge_title(scene: Scene, line: SceneLine) -> str:
    parts = [f"{scene.items[line.tail].id} → {scene.items[line.head].id}"]
    if line.label:
        parts.append(line.label)
    if line.condition:
        parts.append(f"if {line.condition}")
    if line.taken is not None:
        parts.append(
            f"taken {line.taken} times" if line.taken > 1 else "taken" if line.taken else "not taken"
        )
    return geometry.cut("; ".join(parts), TITLE_ROOM)


def _caption(box: geometry.Box, lines: Caption) -> Iterator[str]:
    yield rectangle("halo", box, 3)
    for count, (text, kind) in enumerate(lines, start=1):
        y = box.top + SMALL_LEADING * count - 3
        yield f'<text class="{kind} middle" x="{number(box.x)}" y="{number(y)}">{xml(text)}</text>'


def legend_svg(scene: Scene, room: float) -> tuple[list[str], float]:
    """What the marks and lines of this picture mean; and the height that takes."""
    if not scene.has_run:
        return [], 0.0
    found = {item.state.status for item in scene.items if item.state}
    entries = [
        (f'<g class="{NAMES[one]}"><rect class="shape" x="0" y="-9" width="18" height="18" rx="4"/>'
         f'<g class="mark" transform="translate(9 0)">{MARKS[one].drawing}</g></g>', one.value)
        for one in NodeStatus
        if one in found
    ]  # fmt: skip
    entries.append(('<g class="taken"><path class="line" d="M0 0H18"/></g>', "edge taken"))
    if any(line.is_jump for line in scene.lines):
        entries.append(
            ('<g class="taken jump"><path class="line" d="M0 0H18"/></g>', "jump: no edge of the graph")
        )
    if any(item.state and item.state.is_next for item in scene.items):
        entries.append(('<rect class="next" y="-9" width="18" height="18" rx="5"/>', "continues here"))
    parts, x, y = list[str](), 0.0, 40.0
    for drawing, words in entries:
        width = 24 + geometry.width_of(words, SMALL) + 18
        if x and x + width > room:
            x, y = 0.0, y + 26
        text = f'<text class="small" x="24" y="4">{words}</text>'
        parts.append(f'<g transform="translate({number(x)} {number(y)})">{drawing}{text}</g>')
        x += width
    return parts, y + 12


MARGIN = 24.0
HEADING = 34.0
PAGE_LEAST = 260.0


def to_svg(scene: Scene) -> str:
    """The scene as a document, as text; the same scene always gives the same document."""
    bodies = [body_of(item) for item in scene.items]
    captions = [caption_lines(line) for line in scene.lines]
    layout, outlines = placed(scene, bodies, captions)
    parts = [
        *lines_svg(scene, layout, captions, outlines),
        *(node_svg(*one) for one in zip(scene.items, bodies, layout.boxes, outlines, strict=True)),
    ]
    return _document(scene, layout, parts)


def placed(
    scene: Scene, bodies: Sequence[Body], captions: Sequence[Caption]
) -> tuple[geometry.Layout, Sequence[geometry.Outline]]:
    """Where the boxes and lines of a scene are, and the outline of each box."""
    sizes = [
        geometry.size_around(item.shape, body.size) for item, body in zip(scene.items, bodies, strict=True)
    ]
    wires = [
        geometry.LayoutLine(line.tail, line.head, caption_size(caption))
        for line, caption in zip(scene.lines, captions, strict=True)
    ]
    layout = lay_out(sizes, wires, start=scene.start, direction=scene.direction)
    outlines = [
        geometry.outline(item.shape, box) for item, box in zip(scene.items, layout.boxes, strict=True)
    ]
    return layout, outlines


def _document(scene: Scene, layout: geometry.Layout, parts: Sequence[str]) -> str:
    title = geometry.cut(scene.title, 100)
    width = max(layout.size.width, PAGE_LEAST, geometry.width_of(title, 16)) + 2 * MARGIN
    legend, legend_height = legend_svg(scene, width - 2 * MARGIN)
    top = MARGIN + HEADING
    height = top + layout.size.height + legend_height + MARGIN
    left = (width - layout.size.width) / 2
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="onward" role="img" width="{number(width)}" '
            f'height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}">',
            f"<title>{xml(scene.title)}</title>",
            f"<desc>{xml(_summary(scene))}</desc>",
            f"<style>\n{style_sheet()}</style>",
            f'<rect class="page" width="{number(width)}" height="{number(height)}"/>',
            f'<text class="heading" x="{number(MARGIN)}" y="{number(MARGIN + 12)}">{xml(title)}</text>',
            f'<g transform="translate({number(left)} {number(top)})">',
            *parts,
            "</g>",
            f'<g transform="translate({number(MARGIN)} {number(height - MARGIN - legend_height)})">',
            *legend,
            "</g>",
            "</svg>",
            "",
        )
    )


def _summary(scene: Scene) -> str:
    edges = sum(not line.is_jump for line in scene.lines)
    counts = Counter(item.state.status for item in scene.items if item.state)
    parts = [f"{counts[status]} {status.value}" for status in NodeStatus if counts[status]]
    return f"{len(scene.items)} nodes, {edges} edges" + (f": {', '.join(parts)}" if parts else "")
