"""What happens to a run, as lines for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onward.cli.print.conflicts import Conflicts
from onward.cli.print.text import one_line, span
from onward.model.event import (
    AttemptFailed,
    AttemptInterrupted,
    BranchFinished,
    Event,
    GateDecided,
    GateOpened,
    GoalRedirected,
    ParallelStarted,
    RunCompleted,
    RunCreated,
    StepFinished,
    StepRouted,
    StepStarted,
)
from onward.model.ids import display_id
from onward.model.run import Run


class Narrator:
    """Tells events worth telling. `opening` is said once, before the first of them.

    A brief one leaves out what a terminal shows anyway: the step under way, and the question at a gate.
    """

    def __init__(self, *, is_brief: bool = False) -> None:
        self.opening = ""
        self._is_brief = is_brief
        self._started: dict[tuple[str, str], int] = {}
        self._conflicts = Conflicts()

    def lines(self, run: Run, events: Sequence[Event]) -> Iterator[str]:
        """The lines for events that were just written; `run` is the state after them."""
        if self.opening and events:
            yield self.opening
            self.opening = ""
        # A run that is looked after by another is told of between that one's lines.
        whose = f"  [{display_id(run.id)}]" if run.managed_by else ""
        self._conflicts.note(run, events)
        for event in events:
            yield from (f"{line}{whose}" for line in self._lines(run, event))

    def _lines(self, run: Run, event: Event) -> Iterator[str]:
        match event:
            case RunCreated():
                yield f"run {display_id(run.id)}: {one_line(run.pipeline)} (id {run.id})"
            case StepStarted():
                self._started.setdefault((run.id, event.step), run.updated_at_us)
                if not self._is_brief:
                    yield _told(
                        "started", event.step, f"attempt {event.attempt}" if event.attempt > 1 else ""
                    )
                if event.degraded_from:
                    why = f"the session is gone: {event.fidelity} instead of {event.degraded_from}"
                    yield _told("degraded", event.step, why)
            case StepFinished():
                yield _told("finished", event.step, *self._ending(run, event))
                for conflict in self._conflicts.told(run, event):
                    yield _told("conflict", event.step, conflict)
            case AttemptFailed(retry_at_us=None):
                yield _told("failed", event.step, f"attempt {event.attempt}: {one_line(event.reason)}")
            case AttemptFailed(retry_at_us=int() as retry_at_us):
                delay = span((retry_at_us - run.updated_at_us) / 1_000_000)
                reason = one_line(event.reason)
                yield _told(
                    "retrying", event.step, f"attempt {event.attempt} failed: {reason}; again in {delay}"
                )
            case AttemptInterrupted():
                yield _told("stopped", event.step, f"attempt {event.attempt}: {one_line(event.why)}")
            case GateOpened() if not self._is_brief or run.managed_by:
                yield _told("asks", event.gate, one_line(event.text))
            case GateDecided(expired=True):
                what = "rejected" if event.rejected else one_line(event.choice.label)
                yield _told("expired", event.gate, f"{what} (nobody answered in time)")
            case GateDecided():
                what = one_line(event.choice.label or event.text)
                verb = "rejected" if event.rejected else "answered"
                yield _told(verb, event.gate, f"{what} (by {one_line(event.by)})")
            case ParallelStarted():
                yield _told("branches", event.step, ", ".join(plan.to for plan in event.branches))
            case BranchFinished(status="cancelled" | "fail"):
                yield _told("branch", event.branch, event.status, one_line(event.reason))
            case RunCompleted(restarted_as=str(successor)) if successor:
                yield _told("restarts", f"run {display_id(run.id)}", f"as run {display_id(successor)}")
            case StepRouted():
                yield _told("routed", event.step, f"to {event.next.to}: an edge can be taken now")
            case GoalRedirected():
                yield _told("back to", event.next.to, f"goal gate {event.gate} is unmet")

    def _ending(self, run: Run, event: StepFinished) -> Iterator[str]:
        yield event.outcome.status.value
        started_us = self._started.pop((run.id, event.step), None)
        if started_us is not None:
            yield span((run.updated_at_us - started_us) / 1_000_000)
        if event.attempt > 1:
            yield f"attempt {event.attempt}"
        if event.outcome.failure_reason:
            yield one_line(event.outcome.failure_reason)


def _told(verb: str, what: str, *rest: str) -> str:
    return "  ".join(filter(None, (f"  {verb:<8}", one_line(what), *rest))).rstrip()
