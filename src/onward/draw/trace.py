"""What a run did in its graph: moves, visits and last outcomes, bounded by the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from onward.model.events import (
    Event,
    GoalRedirected,
    Outcome,
    ParallelStarted,
    StepFinished,
    StepRouted,
    StepStarted,
    Transition,
)
from onward.model.ids import branch_of, is_in_step, node_of, place_of
from onward.read.log.projection import Projection
from onward.read.log.step import Step

Move = tuple[str, str, int | None]
"""From a node, to a node, by the edge with this order in the graph; None for a jump."""


class Trace(msgspec.Struct):
    """The moves of a run; and by place, how often a node was visited and how its last visit ended."""

    moves: Counter[Move] = msgspec.field(default_factory=Counter)
    finished: Counter[str] = msgspec.field(default_factory=Counter)
    outcomes: dict[str, Outcome] = msgspec.field(default_factory=dict)
    visits: dict[str, int] = msgspec.field(default_factory=dict)
    attempts: Counter[str] = msgspec.field(default_factory=Counter)
    """An attempt that starts again after a crash counts once."""
    _last: str = ""
    _log: Projection = msgspec.field(default_factory=Projection)

    def add(self, events: Iterable[Event]) -> None:
        """Add the next events of the log."""
        for event in events:
            step = self._log.apply(event, at_us=0)
            self._follow(event)
            if step is not None:
                self._count(step, event)

    def _follow(self, event: Event) -> None:
        match event:
            case ParallelStarted(node=node, branches=branches):
                self.moves.update((node, branch.to, branch.edge) for branch in branches)
            case StepFinished(node=node, next=Transition() as onward):
                self.moves[node, onward.to, onward.edge] += 1
            case StepRouted(step=step, next=onward):
                self.moves[node_of(place_of(step)), onward.to, onward.edge] += 1
            case GoalRedirected(next=onward):
                self.moves[self._last, onward.to, onward.edge] += 1

    def _count(self, step: Step, event: Event) -> None:
        if is_in_step(step.step):
            return  # a question of a step is no visit
        place, _, visit = step.step.rpartition("#")
        self.visits[place] = max(self.visits.get(place, 0), int(visit))
        if isinstance(event, StepStarted):
            self.attempts[place] += step.tries[-1].number == 1
        if step.outcome is not None:
            self.finished[place] += 1
            self.outcomes[place] = step.outcome
            self._last = step.node if not branch_of(step.step) else self._last
            self._log.forget(step.step)
