"""From a log to receipts: which events leave one, and its content.

Only the log and the definition are read, so a receipt that is written before its event is committed and one
that is made from the log years later are the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from onward.machine.definition import Definition
from onward.model.call import AttemptHeld
from onward.model.events import (
    AttemptFailed,
    AttemptInterrupted,
    Event,
    PipelineChanged,
    RunCreated,
    StepFinished,
    WorkdirChanged,
)
from onward.model.gate import GateDecided, GateWithdrawn
from onward.model.ids import branch_of, is_in_step
from onward.model.run import Simulation, simulation_of
from onward.read.log import Projection
from onward.receipts.filling import Ending, Leaving, Setting, decision, leaving, status_of


class Trail(msgspec.Struct):
    """A run's open steps as far as its log was taken in."""

    run_id: str
    flow: str
    pipeline_hash: str = ""
    workdir: str | None = None
    simulation: Simulation | None = None
    _log: Projection = msgspec.field(default_factory=Projection)
    _last: Mapping[str, str] = msgspec.field(default_factory=dict)
    _commits: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The last known commit of the workspace, by branch."""

    @property
    def head(self) -> int:
        """The number of the last event."""
        return self._log.head

    def copy(self) -> Trail:
        """The same, to take in events that may never be committed."""
        return replace(self, _log=self._log.copy())

    def learn(self, event: Event) -> None:
        """What the event says of the run as a whole; before `take`, which needs the run's definition."""
        if isinstance(event, RunCreated):
            self.workdir, self.simulation = event.workdir, simulation_of(event)
            if event.workspace is not None:
                self._commits = {"": event.workspace.start.commit}
        if isinstance(event, WorkdirChanged):
            self.workdir = event.workdir
        if isinstance(event, RunCreated | PipelineChanged):
            self.pipeline_hash = event.pipeline_hash

    def take(
        self, event: Event, definition: Definition, *, at_us: int, recorded_in: str = ""
    ) -> Leaving | None:
        """Take in the event after `head`. `definition` is the one that the run had then."""
        step, ending = self._log.apply(event, at_us=at_us), _ending(event)
        if step is None or ending is None:
            return None
        line = branch_of(step.step)
        setting = Setting(
            run_id=self.run_id,
            flow=self.flow,
            workdir=self.workdir,
            simulation=self.simulation,
            sequence=self.head,
            at_us=at_us,
            previous=self._last.get(line),
            recorded_in=recorded_in or self.run_id,
            commit=self._commits.get(line) or self._commits.get("", ""),
        )
        left = leaving(setting, step, ending, definition)
        if ending.finished is not None:
            inside = f"{step.step}."
            before = {at: last for at, last in self._last.items() if not at.startswith(inside)}
            self._last = {**before, line: step.step}
            self._log.forget(step.step)
            if (tree := ending.finished.workspace) is not None:
                self._commits = {**self._commits, line: tree.commit}
        return left


def _ending(event: Event) -> Ending | None:
    """How a step ended at this event; None if it continues, or the event is not about a step."""
    match event:
        case GateDecided(gate=gate) | GateWithdrawn(gate=gate) if is_in_step(gate):
            return None  # the receipt of its step has what came of it
        case GateDecided(rejected=True):
            return Ending("failed", f"rejected: {decision(event)}")
        case GateWithdrawn():
            return Ending("interrupted", "the question was withdrawn")
        case AttemptHeld(reason="pause" | "limit", detail=why) | AttemptInterrupted(why=why):
            return Ending("interrupted", why)
        case AttemptFailed(reason=reason, retry_at_us=None):
            return Ending(status_of(event.status, reason), reason, event.log)
        case StepFinished(outcome=outcome):
            why = outcome.failure_reason
            return Ending(status_of(outcome.status, why), why, event.log, event)
    return None
