"""The steps of a run as `onward show` prints them: plain values, from the projection of its log."""

from __future__ import annotations

from typing import Any

from onward.machine.decide.calls import is_in_doubt
from onward.model.events import LastOutput
from onward.model.run import AttemptState, Run, RunStatus
from onward.read.log.projection import Projection
from onward.read.log.step import LEFT, Step, Try
from onward.read.view import instant
from onward.store.owner import owner_label


def view_steps(log: Projection, run: Run, *, is_held: bool) -> list[dict[str, Any]]:
    """Every step in the order in which they started; `is_held`: a living process holds the run."""
    return [view_step(step, state_of(step, run, is_held=is_held)) for step in log.steps.values()]


def state_of(step: Step, run: Run, *, is_held: bool) -> str:
    """The state of a step. The log alone cannot say that the process of an attempt died."""
    if step.ended_at_us is not None:
        return step.state
    if step.step in run.parallels:
        return "waiting" if run.status is RunStatus.WAITING else "running" if is_held else "interrupted"
    if step.step in run.gates:
        return step.state if run.gates[step.step].decided else "waiting"
    opened = run.open_steps.get(step.step)
    if opened is None:
        return step.state
    if is_held and opened.state is AttemptState.OPEN and opened.token == run.token:
        return "running"
    if is_in_doubt(opened):
        return "in_doubt"
    return "interrupted" if opened.state is AttemptState.OPEN else step.state


def view_step(step: Step, state: str) -> dict[str, Any]:
    """A step in this state, with its tries."""
    decided = step.decisions[-1] if step.decisions else None
    return {
        "step": step.step,
        "node": step.node,
        "status": state,
        "attempts": step.attempts,
        "started_at": instant(step.started_at_us),
        "finished_at": instant(step.ended_at_us),
        "duration_s": step.duration_s,
        "elapsed_s": step.elapsed_s,
        "reason": "" if step.state == LEFT != state else step.reason,
        "log": list(step.log),
        "tries": [_try(one) for one in step.tries],
        **({} if step.child is None else {"child": step.child}),
        **({} if decided is None else {"answer": decided.choice.label or decided.text, "by": decided.by}),
    }


def view_output(output: LastOutput | None) -> dict[str, Any] | None:
    """The end of what a try printed, and where its handler raised an error."""
    if output is None:
        return None
    lines = [{"stream": line.stream, "text": line.text} for line in output.lines]
    return {"lines": lines, "error": output.error, "traceback": output.traceback}


def _try(one: Try) -> dict[str, Any]:
    return {
        "attempt": one.attempt,
        "number": one.number,
        "worker": owner_label(one.claim.worker) if one.claim.worker else None,
        "started_at": instant(one.started_at_us),
        "ended_at": instant(one.ended_at_us),
        "duration_s": one.duration_s,
        "outcome": one.outcome or None,
        "reason": one.reason,
        "output": view_output(one.output),
    }
