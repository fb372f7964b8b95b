"""What a log says about the way a run took, beyond what its fold remembers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from onward.model.event import (
    Event,
    GateOpened,
    GoalRedirected,
    Outcome,
    ParallelStarted,
    StepFinished,
    StepRouted,
    StepStarted,
    Transition,
)
from onward.model.ids import branch_of

Move = tuple[str, str, int | None]
"""From a node, to a node, by the edge with this place in the graph; None for a jump."""


@dataclass(slots=True)
class Trail:
    """The moves of a run and how the last visits of its nodes ended; bounded by the graph, not by the log.

    A place is a node, in a branch `branch/node`: a step without its visit.
    """

    moves: Counter[Move] = field(default_factory=Counter)
    finished: Counter[str] = field(default_factory=Counter)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    visits: dict[str, int] = field(default_factory=dict)
    attempts: Counter[str] = field(default_factory=Counter)
    _begun: dict[str, tuple[str, int]] = field(default_factory=dict)
    _last: dict[str, str] = field(default_factory=dict)

    def take(self, events: Iterable[Event]) -> None:
        """Take in the next events of the log."""
        for event in events:
            match event:
                case StepStarted():
                    self._begin(event)
                case GateOpened(gate=gate):
                    self._visit(gate)
                case StepFinished():
                    self._finish(event)
                case ParallelStarted(step=step, node=node, branches=branches):
                    self._visit(step)
                    self.moves.update((node, branch.to, branch.edge) for branch in branches)
                case StepRouted(step=step, next=onward):
                    self._move(node_of(place_of(step)), onward)
                case GoalRedirected(next=onward):
                    self._move(self._last.get("", ""), onward)

    def _visit(self, step: str) -> None:
        place, _, visit = step.rpartition("#")
        self.visits[place] = max(self.visits.get(place, 0), int(visit))

    def _begin(self, event: StepStarted) -> None:
        place = place_of(event.step)
        self._visit(event.step)
        if self._begun.get(place) != (event.step, event.attempt):  # an attempt that is made again is one
            self.attempts[place] += 1
        self._begun[place] = event.step, event.attempt

    def _finish(self, event: StepFinished) -> None:
        place = place_of(event.step)
        self._visit(event.step)
        self.finished[place] += 1
        self._last[branch_of(event.step)] = event.node
        self.outcomes[place] = event.outcome
        if event.next is not None:
            self._move(event.node, event.next)

    def _move(self, node: str, onward: Transition) -> None:
        self.moves[node, onward.to, onward.edge] += 1


def place_of(step: str) -> str:
    """Where a step is made: its branch and node, without the visit."""
    return step.rpartition("#")[0]


def node_of(place: str) -> str:
    """The node of a place."""
    return place.rpartition("/")[2]
