"""What a final status leaves behind: nothing open."""

from __future__ import annotations

from onward.model.event import AttemptInterrupted, Event, GateWithdrawn, RunCancelled
from onward.model.run import AttemptState, Run


def cancelling(run: Run, *, by: str, reason: str = "user") -> tuple[Event, ...]:
    """Give a run up: withdraw its gates, close its attempts, and say so, in one append."""
    return (*closing(run, why="cancelled"), RunCancelled(reason=reason, by=by))


def closing(run: Run, *, why: str) -> tuple[Event, ...]:
    """Withdraw every open gate and close every open attempt."""
    gates = tuple(GateWithdrawn(gate=name) for name, gate in run.gates.items() if gate.decided is None)
    attempts = tuple(
        AttemptInterrupted(step=opened.step, attempt=opened.attempt, why=why)
        for opened in run.open_steps.values()
        if opened.state is AttemptState.OPEN
    )
    return (*gates, *attempts)
