"""The geometry of a picture as plain values, for pages that draw it themselves.

The boxes and lines are those of the SVG: the layouter runs once for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from onward.draw.geometry import Route
from onward.draw.scene import Scene
from onward.draw.svg import body_of, caption_lines, onto, placed, spot

if TYPE_CHECKING:
    from onward.replies.steps import EdgePath, Geometry, NodeBox

NO_STEPS: Mapping[str, str] = MappingProxyType({})


def geometry_of(scene: Scene, *, steps: Mapping[str, str] = NO_STEPS) -> Geometry:
    """Where everything of a scene stands; `steps` has the last step of each node."""
    bodies = [body_of(item) for item in scene.items]
    layout, outlines = placed(scene, bodies, [caption_lines(line) for line in scene.lines])
    nodes: list[NodeBox] = []
    for item, box in zip(scene.items, layout.boxes, strict=True):
        nodes.append(
            {
                "id": item.id,
                "label": item.label,
                "kind": item.kind,
                "shape": item.shape,
                "x": _short(box.left),
                "y": _short(box.top),
                "w": _short(box.right - box.left),
                "h": _short(box.bottom - box.top),
                "state": item.state.status.name.lower() if item.state else None,
                "step": steps.get(item.id),
            }
        )
    edges: list[EdgePath] = []
    for line, route in zip(scene.lines, layout.routes, strict=True):
        caption = route.caption
        edges.append(
            {
                "from": scene.items[line.tail].id,
                "to": scene.items[line.head].id,
                "label": line.label or line.condition,
                "path": _path(onto(route, outlines[line.tail], outlines[line.head])),
                "label_x": None if caption is None else _short((caption.left + caption.right) / 2),
                "label_y": None if caption is None else _short((caption.top + caption.bottom) / 2),
                "taken": bool(line.taken),
            }
        )
    return {
        "width": _short(layout.size.width),
        "height": _short(layout.size.height),
        "nodes": nodes,
        "edges": edges,
    }


def _path(route: Route) -> str:
    """The whole line as SVG path data, up to the point of its arrow."""
    pieces = [f"M{spot(route.start)}"]
    pieces += (f"C{spot(curve.first)} {spot(curve.second)} {spot(curve.end)}" for curve in route.curves)
    return "".join(pieces)


def _short(value: float) -> float:
    return round(value, 1)
