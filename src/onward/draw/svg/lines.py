"""Lines in SVG: from outline to outline, with an arrow and a caption; edges that were taken are heavy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onward.draw.layout.geometry import Box, Curve, Layout, Point, Route, Size
from onward.draw.layout.measure import cut, width_of
from onward.draw.scene import Line, Scene
from onward.draw.svg.markup import SMALL, SMALL_LEADING, TITLE_ROOM, corners_of, number, rectangle, spot, xml
from onward.draw.svg.shapes import Outline, meeting

TIP, TIP_HALF = 9.0, 4.5
CAPTION_ROOM = 30

Caption = list[tuple[str, str]]
"""Lines of words, each with its class."""


def caption_lines(line: Line) -> Caption:
    found: Caption = []
    if line.label:
        found.append((cut(line.label, CAPTION_ROOM), "caption"))
    if line.condition:
        found.append((cut(line.condition, CAPTION_ROOM), "caption condition"))
    if line.taken is not None and line.taken > 1:
        last, kind = found.pop() if found else ("", "caption")
        found.append((f"{last} ×{line.taken}".strip(), kind))
    return found


def caption_size(lines: Caption) -> Size | None:
    if not lines:
        return None
    return Size(max(width_of(text, SMALL) for text, _ in lines) + 8, SMALL_LEADING * len(lines) + 2)


def lines_svg(
    scene: Scene, layout: Layout, captions: Sequence[Caption], outlines: Sequence[Outline]
) -> Iterator[str]:
    """Lines not taken first, so that those taken are on top; captions above all lines."""
    drawn = sorted(zip(scene.lines, layout.routes, captions, strict=True), key=lambda one: bool(one[0].taken))
    for line, route, _ in drawn:
        yield _edge(scene, line, _onto(route, outlines[line.tail], outlines[line.head]))
    for line, route, caption in drawn:
        if route.caption:
            yield f'<g class="{_edge_class(line)}">{"".join(_caption(route.caption, caption))}</g>'


def _onto(route: Route, tail: Outline, head: Outline) -> Route:
    """The route from outline to outline instead of from box to box."""
    first, last = route.curves[0], route.curves[-1]
    start = meeting(tail, route.start, upright=abs(first.first.x - route.start.x) < 0.01)
    end = meeting(head, route.end, upright=abs(last.second.x - route.end.x) < 0.01)
    curves = list(route.curves)
    if start != route.start:
        curves.insert(0, _straight(start, route.start))
    if end != route.end:
        curves.append(_straight(route.end, end))
    return Route(start, tuple(curves), route.caption, route.is_back)


def _straight(start: Point, end: Point) -> Curve:
    return Curve(start, end, end)


def _edge(scene: Scene, line: Line, route: Route) -> str:
    path, tip = _path(route)
    title = f"<title>{xml(_edge_title(scene, line))}</title>"
    return f'<g class="{_edge_class(line)}">{title}<path class="line" d="{path}"/>{tip}</g>'


def _path(route: Route) -> tuple[str, str]:
    """The line up to the foot of its arrow, and the arrow."""
    end = route.end
    last = route.curves[-1]
    before = next((p for p in (last.second, last.first) if p != end), None)
    if before is None:
        before = route.curves[-2].end if len(route.curves) > 1 else route.start
    dx, dy = end.x - before.x, end.y - before.y
    length = (dx * dx + dy * dy) ** 0.5 or 1.0
    ux, uy = dx / length, dy / length
    foot = Point(end.x - ux * (TIP - 1), end.y - uy * (TIP - 1))
    pieces = [f"M{spot(route.start)}"]
    for count, curve in enumerate(route.curves, start=1):
        goal = foot if count == len(route.curves) else curve.end
        pieces.append(f"C{spot(curve.first)} {spot(curve.second)} {spot(goal)}")
    back = Point(end.x - ux * TIP, end.y - uy * TIP)
    corners = (
        end,
        Point(back.x - uy * TIP_HALF, back.y + ux * TIP_HALF),
        Point(back.x + uy * TIP_HALF, back.y - ux * TIP_HALF),
    )
    return "".join(pieces), f'<polygon class="tip" points="{corners_of(corners)}"/>'


def _edge_class(line: Line) -> str:
    names = ["plain" if line.taken is None else "taken" if line.taken else "untaken"]
    return " ".join([*names, "jump"] if line.is_jump else names)


def _edge_title(scene: Scene, line: Line) -> str:
    parts = [f"{scene.items[line.tail].id} → {scene.items[line.head].id}"]
    if line.label:
        parts.append(line.label)
    if line.condition:
        parts.append(f"if {line.condition}")
    if line.taken is not None:
        parts.append(
            f"taken {line.taken} times" if line.taken > 1 else "taken" if line.taken else "not taken"
        )
    return cut("; ".join(parts), TITLE_ROOM)


def _caption(box: Box, lines: Caption) -> Iterator[str]:
    yield rectangle("halo", box, 3)
    for count, (text, kind) in enumerate(lines, start=1):
        y = box.top + SMALL_LEADING * count - 3
        yield f'<text class="{kind} middle" x="{number(box.x)}" y="{number(y)}">{xml(text)}</text>'
