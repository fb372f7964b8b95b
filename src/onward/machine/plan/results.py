"""The result of an action, as a value: recorded against the run as it is when it is written."""

from __future__ import annotations

from collections.abc import Sequence

from onward.machine.definition import Definition
from onward.machine.fold.apply import apply
from onward.machine.fold.calls import RATE_LIMIT
from onward.machine.plan.finish import finish
from onward.machine.plan.join import joined
from onward.machine.plan.stops import stop_with
from onward.model.attempt.output import LastOutput
from onward.model.events.event import Event
from onward.model.events.runs import RunCompleted, RunFailed, RunInterrupted, RunQueued, RunWaiting
from onward.model.events.steps import AttemptFailed, AttemptInterrupted, StepStatus
from onward.model.result import Result
from onward.model.run import NOTHING_PENDING, AttemptState, Frozen, Run
from onward.model.workspace import Merged, Tree


class AttemptEnded(Frozen, frozen=True):
    """An attempt has a result. `jitter` spreads retries; `tree` is the work tree after it, if changed."""

    step: str
    result: Result
    jitter: float
    tree: Tree | None = None


class AttemptCut(Frozen, frozen=True):
    """An attempt was ended from outside. `in_doubt`: something of it still runs."""

    step: str
    attempt: int
    why: str
    in_doubt: bool = False
    output: LastOutput | None = None


class AttemptLeft(Frozen, frozen=True):
    """An attempt is over, and the log says how already: it was held between two calls."""

    step: str


class BranchesMerged(Frozen, frozen=True):
    """The work of a fan-out's branches is in the run's work tree."""

    step: str
    merged: Merged


class WorkspaceUnusable(Frozen, frozen=True):
    """The work tree is not what it should be. `has_begun`: attempts of this holder may have run."""

    why: str
    has_begun: bool


class SuccessorCreated(Frozen, frozen=True):
    """The run that a restart continues as exists."""

    run_id: str


class WaitTooLong(Frozen, frozen=True):
    """There is nothing to do before `until_us`, and holding the run until then is not worth it."""

    until_us: int


ActionResult = (
    AttemptEnded
    | AttemptCut
    | AttemptLeft
    | BranchesMerged
    | WorkspaceUnusable
    | SuccessorCreated
    | WaitTooLong
)


def events_of(
    definition: Definition, run: Run, results: Sequence[ActionResult], *, now_us: int
) -> Sequence[Event]:
    """The events that record these results, each judged by the run as the one before it left it."""
    if len(results) == 1:
        return _events_of(definition, run, results[0], now_us)
    events: list[Event] = []
    for result in results:
        for event in _events_of(definition, run, result, now_us):
            run = apply(run, event, run_id=run.id, at_us=now_us, token=run.token)
            events.append(event)
    return events


def _events_of(definition: Definition, run: Run, result: ActionResult, now_us: int) -> Sequence[Event]:
    match result:
        case AttemptEnded():  # nothing is unpacked here: every step comes this way
            return finish(
                definition,
                run,
                result.step,
                result.result,
                now_us=now_us,
                jitter=result.jitter,
                tree=result.tree,
            )
        case AttemptCut(step, attempt, why, in_doubt, output):
            cut = AttemptInterrupted(step=step, attempt=attempt, why=why, in_doubt=in_doubt, output=output)
            return (cut,)
        case AttemptLeft():
            return ()
        case BranchesMerged(step, merged):
            return joined(definition, run, step, merged)
        case WorkspaceUnusable(why, has_begun):
            return _without_workspace(run, why, has_begun)
        case SuccessorCreated(run_id):
            return _unless_asked(run, RunCompleted(restarted_as=run_id))
        case WaitTooLong(until_us):
            return _unless_asked(run, _waits(run, until_us))


def _waits(run: Run, until_us: int) -> Event:
    """Release the run until then: a provider asked for it, or the next attempt is not due yet.

    If a question is open, its answer must not have to wait that long.
    """
    if any(gate.decided is None for gate in run.gates.values()):
        return RunWaiting(wake_at_us=until_us)
    for opened in run.open_steps.values():
        if opened.state is AttemptState.HELD and opened.held == RATE_LIMIT:
            return RunInterrupted(reason=RATE_LIMIT, detail=opened.reason, wake_at_us=until_us)
    return RunQueued(why="waits for its next attempt", wake_at_us=until_us)


def _unless_asked(run: Run, stop: Event) -> Sequence[Event]:
    """A stop that was planned before it is written: a request that came first is left to the next plan."""
    return () if run.pending != NOTHING_PENDING else (stop,)


def _without_workspace(run: Run, why: str, has_begun: bool) -> Sequence[Event]:
    """Stop the run: nothing is executed on a wrong work tree."""
    if run.pending.cancel_by is not None:
        return ()  # the plan cancels it
    never = () if has_begun else [s for s in run.open_steps.values() if s.state is AttemptState.OPEN]
    attempts = [
        AttemptFailed(
            step=step.step,
            attempt=step.attempt,
            status=StepStatus.FAIL,
            reason="it was not started, because its workspace cannot be used",
        )
        for step in never
        if step.token == run.token
    ]
    stop = stop_with(run, RunFailed(reason="pipeline_error", detail=f"workspace: {why}"))
    return (*attempts, *stop.events)
