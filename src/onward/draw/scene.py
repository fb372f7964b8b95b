"""The boxes, lines and words of one picture, before the layout.

Also as plain values, for programs that draw it themselves; and back again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from onward.draw.geometry import Direction, one_line
from onward.draw.layers import Pair, loops_back, reading_order
from onward.draw.states import NodeState, NodeStatus, States
from onward.pipeline.graph import SHAPE_KINDS, Edge, Graph, Node

if TYPE_CHECKING:
    from onward.replies.steps import DrawnEdge, DrawnJump, DrawnNode, SceneShown

KIND_SHAPES: Mapping[str, str] = {kind: shape for shape, kind in SHAPE_KINDS.items()}
KIND_WORDS: Mapping[str, str] = {
    "codergen": "agent",
    "wait.human": "human gate",
    "parallel": "fan-out",
    "parallel.fan_in": "fan-in",
    "stack.manager_loop": "manager loop",
}

JUMP = "jump"  # what a line says that no edge stands for


@dataclass(frozen=True, slots=True)
class Item:
    """A node as it is drawn; `state` is None when no run is shown."""

    id: str
    label: str
    kind: str
    shape: str
    state: NodeState | None

    @property
    def kind_words(self) -> str:
        """What the node is, for a person."""
        return KIND_WORDS.get(self.kind, self.kind)


@dataclass(frozen=True, slots=True)
class SceneLine:
    """An edge as it is drawn, or a jump (these come last); its ends are indexes into the items."""

    tail: int
    head: int
    label: str
    condition: str
    taken: int | None
    is_jump: bool = False


@dataclass(frozen=True)
class Scene:
    """Everything a picture shows. `title` is its heading; `start` is an index into the items."""

    title: str
    items: Sequence[Item]
    lines: Sequence[SceneLine]
    start: int | None
    direction: Direction
    has_run: bool

    @cached_property
    def reading_order(self) -> list[int]:
        """The items, by index, in the order in which a person would read them."""
        return reading_order(len(self.items), self._edges, self.start)

    @cached_property
    def loops_back(self) -> frozenset[int]:
        """The edges, by index, that close a cycle."""
        return loops_back(len(self.items), self._edges, self.start)

    @property
    def _edges(self) -> list[Pair]:
        return [(line.tail, line.head) for line in self.lines if not line.is_jump]

    @cached_property
    def leaving(self) -> list[list[SceneLine]]:
        """For every item, the lines that leave it."""
        lines: list[list[SceneLine]] = [[] for _ in self.items]
        for line in self.lines:
            lines[line.tail].append(line)
        return lines


def make_scene(graph: Graph, states: States | None = None, *, title: str) -> Scene:
    """A picture of a graph, with what a run did in it if there is one."""
    places = {node_id: place for place, node_id in enumerate(graph.nodes)}
    items = [_item(graph, node, states) for node in graph.nodes.values()]
    drawn = [edge for edge in graph.edges if edge.source in places and edge.target in places]
    lines = [_line(edge, (places[edge.source], places[edge.target]), states) for edge in drawn]
    for jump in states.jumps if states else ():
        lines.append(SceneLine(places[jump.source], places[jump.target], JUMP, "", jump.taken, is_jump=True))
    start = places.get(graph.start_id or "")
    return Scene(one_line(title), items, lines, start, _direction(graph), states is not None)


def _item(graph: Graph, node: Node, states: States | None) -> Item:
    kind = node.kind
    if not node.type:
        kind = "start" if node.id == graph.start_id else "exit" if node.id == graph.exit_id else kind
    return Item(
        id=node.id,
        label=node.label,
        kind=kind,
        shape=KIND_SHAPES.get(kind, node.shape),
        state=states.nodes[node.id] if states else None,
    )


def _line(edge: Edge, ends: Pair, states: States | None) -> SceneLine:
    taken = None if states is None else states.taken.get(edge.order, 0)
    return SceneLine(*ends, one_line(edge.label), one_line(edge.condition), taken)


def _direction(graph: Graph) -> Direction:
    """The value of `rankdir`; anything unknown means down, as in Graphviz."""
    wanted = graph.text("rankdir").strip().upper()
    return Direction(wanted) if wanted in set(Direction) else Direction.DOWN


def to_view(scene: Scene) -> SceneShown:
    """Nodes and edges with their states; without a run, the fields of a run are null."""
    edges = [line for line in scene.lines if not line.is_jump]
    return {
        "rankdir": scene.direction.value,
        "start": None if scene.start is None else scene.items[scene.start].id,
        "nodes": [_view_item(item) for item in scene.items],
        "edges": [
            _view_edge(scene, edge, loops_back=place in scene.loops_back) for place, edge in enumerate(edges)
        ],
        "jumps": [_view_jump(scene, line) for line in scene.lines if line.is_jump],
    }


def _view_item(item: Item) -> DrawnNode:
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


def _view_edge(scene: Scene, line: SceneLine, *, loops_back: bool) -> DrawnEdge:
    return {
        "source": scene.items[line.tail].id,
        "target": scene.items[line.head].id,
        "label": line.label,
        "condition": line.condition,
        "loops_back": loops_back,
        "taken": line.taken,
    }


def _view_jump(scene: Scene, line: SceneLine) -> DrawnJump:
    return {
        "source": scene.items[line.tail].id,
        "target": scene.items[line.head].id,
        "taken": line.taken,
    }


def from_view(view: Mapping[str, Any], *, title: str) -> Scene:
    """The picture that `to_view` gave the values of."""
    items = [_item_in_view(node) for node in view["nodes"]]
    places = {item.id: place for place, item in enumerate(items)}

    def line(drawn: Mapping[str, Any], label: str, condition: str, *, is_jump: bool) -> SceneLine:
        return SceneLine(
            places[drawn["source"]], places[drawn["target"]], label, condition, drawn["taken"], is_jump
        )

    edges = [line(edge, edge["label"], edge["condition"], is_jump=False) for edge in view["edges"]]
    jumps = [line(jump, JUMP, "", is_jump=True) for jump in view["jumps"]]
    start = None if view["start"] is None else places[view["start"]]
    has_run = any(item.state is not None for item in items)
    return Scene(one_line(title), items, [*edges, *jumps], start, Direction(view["rankdir"]), has_run)


def _item_in_view(node: Mapping[str, Any]) -> Item:
    state = None
    if node["state"] is not None:
        status = NodeStatus[node["state"].upper()]
        state = NodeState(status, node["visits"], node["retries"], node["next"], node["note"])
    return Item(node["id"], node["label"], node["kind"], node["shape"], state)
