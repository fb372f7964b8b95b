"""A picture as plain values, for programs that draw it themselves; and back again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onward.draw.layout.geometry import Direction
from onward.draw.layout.measure import one_line
from onward.draw.scene import JUMP, Item, Line, Scene
from onward.draw.states import NodeState, NodeStatus


def to_view(scene: Scene) -> dict[str, Any]:
    """Nodes and edges with their states; without a run, the fields of a run are null."""
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
        "state": state.status.name.lower() if state else None,
        "visits": state.visits if state else None,
        "retries": state.retries if state else None,
        "next": state.is_next if state else None,
        "note": state.note if state else None,
    }


def _ends(scene: Scene, line: Line) -> dict[str, str]:
    return {"source": scene.items[line.tail].id, "target": scene.items[line.head].id}


def _words(line: Line) -> dict[str, str]:
    return {"label": line.label, "condition": line.condition}


def from_view(view: Mapping[str, Any], *, title: str) -> Scene:
    """The picture that `to_view` gave the values of."""
    items = [_item(node) for node in view["nodes"]]
    places = {item.id: place for place, item in enumerate(items)}

    def line(drawn: Mapping[str, Any], label: str, condition: str, *, is_jump: bool) -> Line:
        return Line(
            places[drawn["source"]], places[drawn["target"]], label, condition, drawn["taken"], is_jump
        )

    edges = [line(edge, edge["label"], edge["condition"], is_jump=False) for edge in view["edges"]]
    jumps = [line(jump, JUMP, "", is_jump=True) for jump in view["jumps"]]
    start = None if view["start"] is None else places[view["start"]]
    has_run = any(item.state is not None for item in items)
    return Scene(one_line(title), items, [*edges, *jumps], start, Direction(view["rankdir"]), has_run)


def _item(node: Mapping[str, Any]) -> Item:
    state = None
    if node["state"] is not None:
        status = NodeStatus[node["state"].upper()]
        state = NodeState(status, node["visits"], node["retries"], node["next"], node["note"])
    return Item(node["id"], node["label"], node["kind"], node["shape"], state)
