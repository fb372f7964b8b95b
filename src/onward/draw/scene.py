"""The boxes, lines and words of one picture, before the layout, and the state of each in a run.

Also as plain values, for programs that draw it themselves; and back again. States are a pure function
of a run's fold and its trace: what it did in its graph (moves, visits, last outcomes), bounded by the
graph.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from onward.draw.geometry import Direction, one_line
from onward.draw.layers import Pair, loops_back, reading_order
from onward.machine.reasons import ContinuesAt, reason_of
from onward.model import events as ev
from onward.model.ids import branch_of, is_in_step, node_of, place_of, step_of_gate
from onward.model.run import AttemptState, Gate, OpenStep, Run, RunStatus
from onward.pipeline.graph import SHAPE_KINDS, Edge, Graph, Node
from onward.read.log import Projection, Step

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


Move = tuple[str, str, int | None]
"""From a node, to a node, by the edge with this order in the graph; None for a jump."""


class Trace(msgspec.Struct):
    """The moves of a run; and by place, how often a node was visited and how its last visit ended."""

    moves: Counter[Move] = msgspec.field(default_factory=Counter)
    finished: Counter[str] = msgspec.field(default_factory=Counter)
    outcomes: dict[str, ev.Outcome] = msgspec.field(default_factory=dict)
    visits: dict[str, int] = msgspec.field(default_factory=dict)
    attempts: Counter[str] = msgspec.field(default_factory=Counter)
    """An attempt that starts again after a crash counts once."""
    _last: str = ""
    _log: Projection = msgspec.field(default_factory=Projection)

    def add(self, events: Iterable[ev.Event]) -> None:
        """Add the next events of the log."""
        for event in events:
            step = self._log.apply(event, at_us=0)
            self._follow(event)
            if step is not None:
                self._count(step, event)

    def _follow(self, event: ev.Event) -> None:
        match event:
            case ev.ParallelStarted(node=node, branches=branches):
                self.moves.update((node, branch.to, branch.edge) for branch in branches)
            case ev.StepFinished(node=node, next=ev.Transition() as onward):
                self.moves[node, onward.to, onward.edge] += 1
            case ev.StepRouted(step=step, next=onward):
                self.moves[node_of(place_of(step)), onward.to, onward.edge] += 1
            case ev.GoalRedirected(next=onward):
                self.moves[self._last, onward.to, onward.edge] += 1

    def _count(self, step: Step, event: ev.Event) -> None:
        if is_in_step(step.step):
            return  # a question of a step is no visit
        place, _, visit = step.step.rpartition("#")
        self.visits[place] = max(self.visits.get(place, 0), int(visit))
        if isinstance(event, ev.StepStarted):
            self.attempts[place] += step.tries[-1].number == 1
        if step.outcome is not None:
            self.finished[place] += 1
            self.outcomes[place] = step.outcome
            self._last = step.node if not branch_of(step.step) else self._last
            self._log.forget(step.step)


FAN_OUT = "parallel"


class NodeStatus(StrEnum):
    """What a picture shows of a node, most urgent first: if branches differ, the most urgent counts."""

    RUNNING = "running"
    WAITING = "waiting"
    RETRYING = "retrying"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    PARTIAL = "partial"
    SKIPPED = "skipped"
    SUCCEEDED = "succeeded"
    NOT_REACHED = "not reached"


_URGENCY = {status: place for place, status in enumerate(NodeStatus)}
_OF_OUTCOME: Mapping[ev.StepStatus, NodeStatus] = {
    ev.StepStatus.SUCCESS: NodeStatus.SUCCEEDED,
    ev.StepStatus.PARTIAL_SUCCESS: NodeStatus.PARTIAL,
    ev.StepStatus.SKIPPED: NodeStatus.SKIPPED,
    ev.StepStatus.RETRY: NodeStatus.FAILED,
    ev.StepStatus.FAIL: NodeStatus.FAILED,
}
_OF_ATTEMPT: Mapping[AttemptState, NodeStatus] = {
    AttemptState.RETRYING: NodeStatus.RETRYING,
    AttemptState.FAILED: NodeStatus.FAILED,
    AttemptState.INTERRUPTED: NodeStatus.INTERRUPTED,
    AttemptState.HELD: NodeStatus.INTERRUPTED,
}


class NodeState(msgspec.Struct, frozen=True):
    """The state of a node; `is_next` if the run continues there, `note` says why if there is a reason."""

    status: NodeStatus = NodeStatus.NOT_REACHED
    visits: int = 0
    retries: int = 0
    is_next: bool = False
    note: str = ""

    @property
    def words(self) -> str:
        """The state in words: never by colour alone."""
        parts: list[str] = [self.status.value]
        if self.visits > 1:
            parts.append(f"{self.visits} visits")
        if self.retries:
            parts.append("1 retry" if self.retries == 1 else f"{self.retries} retries")
        if self.is_next:
            parts.append("next")
        return ", ".join(parts)


class Jump(msgspec.Struct, frozen=True):
    """A move that follows no edge of the graph: to a retry target, or back to an unmet goal gate."""

    source: str
    target: str
    taken: int


class States(msgspec.Struct, frozen=True):
    """A run in its graph: nodes by id, how often each edge (by its order) was taken, and the jumps."""

    nodes: Mapping[str, NodeState]
    taken: Mapping[int, int]
    jumps: tuple[Jump, ...]


def last_visits(trace: Trace) -> Mapping[str, str]:
    """The last step of each node that the run has come to."""
    return {node_of(place): f"{place}#{visit}" for place, visit in trace.visits.items()}


def states_of(graph: Graph, run: Run, trace: Trace, *, is_at_work: bool) -> States:
    """The states of a graph in a run; `is_at_work`: whether a living process holds the run."""
    taken, jumps = _taken(graph, trace)
    return States(_nodes(graph, run, trace, is_at_work), taken, jumps)


# -- nodes ---------------------------------------------------------------------------------------------


def _nodes(graph: Graph, run: Run, trace: Trace, is_at_work: bool) -> dict[str, NodeState]:
    opened = {place_of(step): one for step, one in run.open_steps.items()}
    gates = {place_of(step_of_gate(gate)): one for gate, one in run.gates.items()}
    fans = {place_of(step) for step in run.parallels}
    ahead = {branch.next_node for branch in run.branches.values() if not (run.is_final or branch.ended)}
    held = is_at_work and run.status is RunStatus.RUNNING
    places: dict[str, list[str]] = {node_id: [] for node_id in graph.nodes}
    for place in dict.fromkeys((*trace.visits, *opened, *gates)):
        if node_of(place) in places:
            places[node_of(place)].append(place)
    states: dict[str, NodeState] = {}
    for node_id, found in places.items():
        found_in = [
            _fanned_out(run, held)
            if place in fans
            else _status_of(run, trace, place, opened.get(place), gates.get(place), held)
            for place in _latest(found)
        ]
        status, note = min(found_in, key=lambda one: _URGENCY[one[0]], default=(NodeStatus.NOT_REACHED, ""))
        visits = sum(trace.visits.get(place, 0) for place in found)
        made = sum(trace.attempts[place] for place in found)
        is_open = any(place in opened or place in gates or place in fans for place in found)
        states[node_id] = NodeState(
            status, visits, max(made - visits, 0), node_id in ahead and not is_open, note
        )
    return states


def _status_of(
    run: Run, trace: Trace, place: str, opened: OpenStep | None, gate: Gate | None, held: bool
) -> tuple[NodeStatus, str]:
    if opened is not None:
        if opened.held and gate is not None and gate.decided is None:
            return NodeStatus.WAITING, gate.text
        if opened.state is not AttemptState.OPEN:
            return _OF_ATTEMPT[opened.state], opened.reason
        # If no living process runs the attempt, it was cut off, whether the log says so yet or not.
        is_running = held and opened.token == run.token
        return (NodeStatus.RUNNING, "") if is_running else (NodeStatus.INTERRUPTED, opened.reason)
    if gate is not None:
        answered = f"answered: {gate.decided.label or gate.decided.key}" if gate.decided else ""
        return NodeStatus.WAITING, answered or gate.text
    if trace.finished[place] < trace.visits.get(place, 0):
        return NodeStatus.INTERRUPTED, "started and never finished"
    outcome = trace.outcomes[place]
    leads_nowhere = reason_of(run.reason).continues_at is ContinuesAt.EDGES
    is_stuck = leads_nowhere and place == place_of(run.stopped_step)
    return _OF_OUTCOME[outcome.status], run.detail if is_stuck else outcome.failure_reason


def _fanned_out(run: Run, held: bool) -> tuple[NodeStatus, str]:
    """The status of a fan-out whose branches have not ended."""
    if run.status is RunStatus.WAITING:
        return NodeStatus.WAITING, "its branches wait"
    return (NodeStatus.RUNNING, "") if held else (NodeStatus.INTERRUPTED, "its branches are under way")


_VISIT = re.compile(r"#(\d+)")


def _latest(places: Iterable[str]) -> list[str]:
    """Of a branch that ran several times, the last time."""
    newest: dict[str, tuple[list[int], str]] = {}
    for place in places:
        times = [int(number) for number in _VISIT.findall(place)]
        lane = _VISIT.sub("", place)
        if lane not in newest or newest[lane][0] < times:
            newest[lane] = times, place
    return [place for _, place in newest.values()]


# -- edges ---------------------------------------------------------------------------------------------


def _taken(graph: Graph, trace: Trace) -> tuple[dict[int, int], tuple[Jump, ...]]:
    taken, jumps = Counter[int](), Counter[tuple[str, str]]()
    for (source, target, order), times in trace.moves.items():
        edge = _edge(graph, source, target, order)
        if edge is not None:
            taken[edge] += times
        elif source in graph.nodes and target in graph.nodes and graph.nodes[source].kind != FAN_OUT:
            jumps[source, target] += times
    return dict(taken), tuple(Jump(*ends, times) for ends, times in jumps.items())


def _edge(graph: Graph, source: str, target: str, order: int | None) -> int | None:
    """The order of the edge that a move took.

    A run that continued under a changed pipeline has moves with the old order: then the ends decide, if only
    one edge has them.
    """
    between = [edge.order for edge in graph.outgoing(source) if edge.target == target]
    if order in between:
        return order
    return between[0] if len(between) == 1 and order is not None else None
