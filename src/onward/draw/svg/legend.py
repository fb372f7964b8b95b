"""The legend: what the marks and lines of a picture mean."""

from __future__ import annotations

from onward.draw.layout.measure import width_of
from onward.draw.scene import Scene
from onward.draw.states import NodeStatus
from onward.draw.svg.markup import SMALL, number
from onward.draw.svg.palette import MARKS, NAMES


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
        width = 24 + width_of(words, SMALL) + 18
        if x and x + width > room:
            x, y = 0.0, y + 26
        text = f'<text class="small" x="24" y="4">{words}</text>'
        parts.append(f'<g transform="translate({number(x)} {number(y)})">{drawing}{text}</g>')
        x += width
    return parts, y + 12
