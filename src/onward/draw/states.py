"""How every node and edge of a graph stands in a run: a pure function of its fold and its way."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from onward.draw.way import Way
from onward.model.event import StepStatus
from onward.model.ids import node_of, place_of
from onward.model.run import AttemptState, Gate, OpenStep, Run, RunStatus
from onward.pipeline.graph import Graph

FAN_OUT = "parallel"


class Standing(StrEnum):
    """How a node stands, the one that matters most first: where branches differ, the first of them counts."""

    RUNNING = "running"
    WAITING = "waiting"
    RETRYING = "retrying"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    PARTIAL = "partial"
    SKIPPED = "skipped"
    SUCCEEDED = "succeeded"
    NOT_REACHED = "not reached"


_URGENCY = {standing: place for place, standing in enumerate(Standing)}
_OF_OUTCOME: Mapping[StepStatus, Standing] = {
    StepStatus.SUCCESS: Standing.SUCCEEDED,
    StepStatus.PARTIAL_SUCCESS: Standing.PARTIAL,
    StepStatus.SKIPPED: Standing.SKIPPED,
    StepStatus.RETRY: Standing.FAILED,
    StepStatus.FAIL: Standing.FAILED,
}
_OF_ATTEMPT: Mapping[AttemptState, Standing] = {
    AttemptState.RETRYING: Standing.RETRYING,
    AttemptState.FAILED: Standing.FAILED,
    AttemptState.INTERRUPTED: Standing.INTERRUPTED,
}


@dataclass(frozen=True, slots=True)
class NodeState:
    """How a node stands; `is_next` if the run goes on there, `note` says why where there is a why."""

    standing: Standing = Standing.NOT_REACHED
    visits: int = 0
    retries: int = 0
    is_next: bool = False
    note: str = ""

    @property
    def words(self) -> str:
        """The state for a person: never by colour alone."""
        parts: list[str] = [self.standing.value]
        if self.visits > 1:
            parts.append(f"{self.visits} visits")
        if self.retries:
            parts.append("1 retry" if self.retries == 1 else f"{self.retries} retries")
        if self.is_next:
            parts.append("next")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Jump:
    """A move that no edge of the graph stands for: a retry target, or a goal gate sending the run back."""

    source: str
    target: str
    taken: int


@dataclass(frozen=True, slots=True)
class States:
    """A run in its graph: every node by id, how often each edge was taken by its place, and the jumps."""

    nodes: Mapping[str, NodeState]
    taken: Mapping[int, int]
    jumps: tuple[Jump, ...]


def states_of(graph: Graph, run: Run, way: Way, *, is_at_work: bool) -> States:
    """How a graph stands in a run; `is_at_work`: whether somebody alive holds the run."""
    taken, jumps = _taken(graph, way)
    return States(_nodes(graph, run, way, is_at_work), taken, jumps)


# -- nodes ---------------------------------------------------------------------------------------------


def _nodes(graph: Graph, run: Run, way: Way, is_at_work: bool) -> dict[str, NodeState]:
    opened = {place_of(step): one for step, one in run.open_steps.items()}
    gates = {place_of(gate): one for gate, one in run.gates.items()}
    fans = {place_of(step) for step in run.parallels}
    ahead = {branch.next_node for branch in run.branches.values() if not (run.is_final or branch.ended)}
    held = is_at_work and run.status is RunStatus.RUNNING
    places: dict[str, list[str]] = {node_id: [] for node_id in graph.nodes}
    for place in dict.fromkeys((*way.visits, *opened, *gates)):
        if node_of(place) in places:
            places[node_of(place)].append(place)
    states: dict[str, NodeState] = {}
    for node_id, found in places.items():
        stands = [
            _fanned_out(run, held)
            if place in fans
            else _stand(run, way, place, opened.get(place), gates.get(place), held)
            for place in _latest(found)
        ]
        standing, note = min(stands, key=lambda one: _URGENCY[one[0]], default=(Standing.NOT_REACHED, ""))
        visits = sum(way.visits.get(place, 0) for place in found)
        made = sum(way.attempts[place] for place in found)
        is_open = any(place in opened or place in gates or place in fans for place in found)
        states[node_id] = NodeState(
            standing, visits, max(made - visits, 0), node_id in ahead and not is_open, note
        )
    return states


def _stand(
    run: Run, way: Way, place: str, opened: OpenStep | None, gate: Gate | None, held: bool
) -> tuple[Standing, str]:
    if opened is not None:
        if opened.state is not AttemptState.OPEN:
            return _OF_ATTEMPT[opened.state], opened.reason
        # An attempt that nobody alive is making was cut off, whether anybody has written that down or not.
        is_made = held and opened.token == run.token
        return (Standing.RUNNING, "") if is_made else (Standing.INTERRUPTED, opened.reason)
    if gate is not None:
        answered = f"answered: {gate.decided.label or gate.decided.key}" if gate.decided else ""
        return Standing.WAITING, answered or gate.text
    if way.finished[place] < way.visits.get(place, 0):
        return Standing.INTERRUPTED, "begun and left unfinished"
    outcome = way.outcomes[place]
    is_stuck = run.reason == "no_way_on" and place == place_of(run.stopped_step)
    return _OF_OUTCOME[outcome.status], run.detail if is_stuck else outcome.failure_reason


def _fanned_out(run: Run, held: bool) -> tuple[Standing, str]:
    """A fan-out stands as its branches let it."""
    if run.status is RunStatus.WAITING:
        return Standing.WAITING, "its branches wait"
    return (Standing.RUNNING, "") if held else (Standing.INTERRUPTED, "its branches are under way")


_VISIT = re.compile(r"#(\d+)")


def _latest(places: Iterable[str]) -> list[str]:
    """Of a branch that was run through several times, the last time."""
    newest: dict[str, tuple[list[int], str]] = {}
    for place in places:
        times = [int(number) for number in _VISIT.findall(place)]
        lane = _VISIT.sub("", place)
        if lane not in newest or newest[lane][0] < times:
            newest[lane] = times, place
    return [place for _, place in newest.values()]


# -- edges ---------------------------------------------------------------------------------------------


def _taken(graph: Graph, way: Way) -> tuple[dict[int, int], tuple[Jump, ...]]:
    taken, jumps = Counter[int](), Counter[tuple[str, str]]()
    for (source, target, order), times in way.moves.items():
        edge = _edge(graph, source, target, order)
        if edge is not None:
            taken[edge] += times
        elif source in graph.nodes and target in graph.nodes and graph.nodes[source].kind != FAN_OUT:
            jumps[source, target] += times
    return dict(taken), tuple(Jump(*ends, times) for ends, times in jumps.items())


def _edge(graph: Graph, source: str, target: str, order: int | None) -> int | None:
    """The place of the edge that a move went by.

    A run that went on under a changed pipeline has moves by places of the old one: then the ends decide,
    if only one edge has them.
    """
    between = [edge.order for edge in graph.outgoing(source) if edge.target == target]
    if order in between:
        return order
    return between[0] if len(between) == 1 and order is not None else None
