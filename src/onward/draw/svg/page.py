"""A picture as SVG: one self-contained file without scripts, which says in words what its colours say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from onward.draw.layout.geometry import Layout, Wire
from onward.draw.layout.lay_out import lay_out
from onward.draw.layout.measure import cut, width_of
from onward.draw.scene import Scene
from onward.draw.states import NodeStatus
from onward.draw.svg.legend import legend_svg
from onward.draw.svg.lines import caption_lines, caption_size, lines_svg
from onward.draw.svg.markup import number, xml
from onward.draw.svg.nodes import body_of, node_svg
from onward.draw.svg.palette import style_sheet
from onward.draw.svg.shapes import outline, size_around

MARGIN = 24.0
HEADING = 34.0
PAGE_LEAST = 260.0


def to_svg(scene: Scene) -> str:
    """The scene as a document, as text; the same scene always gives the same document."""
    bodies = [body_of(item) for item in scene.items]
    captions = [caption_lines(line) for line in scene.lines]
    sizes = [size_around(item.shape, body.size) for item, body in zip(scene.items, bodies, strict=True)]
    wires = [
        Wire(line.tail, line.head, caption_size(caption))
        for line, caption in zip(scene.lines, captions, strict=True)
    ]
    layout = lay_out(sizes, wires, start=scene.start, direction=scene.direction)
    outlines = [outline(item.shape, box) for item, box in zip(scene.items, layout.boxes, strict=True)]
    parts = [
        *lines_svg(scene, layout, captions, outlines),
        *(node_svg(*one) for one in zip(scene.items, bodies, layout.boxes, outlines, strict=True)),
    ]
    return _document(scene, layout, parts)


def _document(scene: Scene, layout: Layout, parts: Sequence[str]) -> str:
    title = cut(scene.title, 100)
    width = max(layout.size.width, PAGE_LEAST, width_of(title, 16)) + 2 * MARGIN
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
