"""A picture as plain values, for programs that draw it themselves."""

from __future__ import annotations

from typing import Any

from onward.draw.scene import Item, Line, Scene


def to_view(scene: Scene) -> dict[str, Any]:
    """Nodes and edges with their states; what belongs to a run is null where none is shown."""
    edges = [line for line in scene.lines if not line.is_jump]
    return {
        "rankdir": scene.direction.value,
        "start": None if scene.start is None else scene.items[scene.start].id,
        "nodes": [_node(item) for item in scene.items],
        "edges": [
            {
                **_ends(scene, edge),
                **_words(edge),
                "loops_back": place in scene.loops_back,
                "taken": edge.taken,
            }
            for place, edge in enumerate(edges)
        ],
        "jumps": [{**_ends(scene, line), "taken": line.taken} for line in scene.lines if line.is_jump],
    }


def _node(item: Item) -> dict[str, Any]:
    state = item.state
    return {
        "id": item.id,
        "label": item.label,
        "kind": item.kind,
        "shape": item.shape,
        "state": state.standing.name.lower() if state else None,
        "visits": state.visits if state else None,
        "retries": state.retries if state else None,
        "next": state.is_next if state else None,
        "note": state.note if state else None,
    }


def _ends(scene: Scene, line: Line) -> dict[str, str]:
    return {"source": scene.items[line.tail].id, "target": scene.items[line.head].id}


def _words(line: Line) -> dict[str, str]:
    return {"label": line.label, "condition": line.condition}
