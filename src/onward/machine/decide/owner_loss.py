"""What happens to a run whose holder died or stopped executing it: its own policy decides.

Either is a loss: a claim with the stop event after it. The claim fences a holder that was only frozen, and
counts: a run that is lost again and again without a new checkpoint waits longer each time, and then fails.

`orphaned` names the runs that a step managed, and that no step manages any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from onward.machine import reasons
from onward.machine.decide.calls import doubtful_step, interruption
from onward.machine.decide.requests import HolderView, claim_of, requested_stop
from onward.model import events as ev
from onward.model.run import Run, RunStatus

LOSSES_MAX = 5
REQUEUE = "requeue"
RESTARTED = "Server restarted while workflow was running"
ARRIVED = "it was running in the database that it was exported from"
GIVEN_UP = "the process that held it stopped running it"
BACK_OFF_S_FIRST, BACK_OFF_S_MAX = 1.0, 60.0


def decide_loss(run: Run, holder_view: HolderView, *, is_restart: bool = False) -> tuple[ev.Event, ...]:
    """Take over a run whose holder is dead and stop it as its policy says; nothing if it is alive.

    `is_restart`: the holder was a server, and this is the first look of the next one.
    """
    if run.status is not RunStatus.RUNNING or holder_view.is_alive:
        return ()
    died = f"{holder_view.holder or 'its holder'} died"
    reason, detail = (reasons.RESTART, RESTARTED) if is_restart else (reasons.CRASH, died)
    stop = interruption(doubtful_step(run), reason, detail)
    return _taken(run, holder_view.asker, holder_view.now_us, died, stop)


def decide_release(
    run: Run, *, owner: str, token: int, now_us: int, error: str = "", is_unbegun: bool = False
) -> tuple[ev.Event, ...]:
    """Release a run that its holder does not execute any more; nothing if it is not held by this lease.

    `error` is what ended the execution, if an error did. `is_unbegun`: the run was taken from the queue, and
    nothing of it was executed, so it returns there; no process died, and its policy is not asked.
    """
    if run.status is not RunStatus.RUNNING or (run.worker, run.token) != (owner, token):
        return ()
    why = f"{GIVEN_UP}: {error}" if error else GIVEN_UP
    if is_unbegun:
        return requested_stop(run) or (ev.RunQueued(why=why, wake_at_us=now_us),)
    return _taken(run, owner, now_us, why, interruption(doubtful_step(run), reasons.CRASH, why))


def decide_arrival(run: Run, owner: str, *, now_us: int) -> tuple[ev.Event, ...]:
    """Stop or requeue an imported run that was running where it came from: no process holds it here."""
    if run.status is not RunStatus.RUNNING:
        return ()
    return _taken(run, owner, now_us, ARRIVED, interruption(doubtful_step(run), reasons.RESTART, ARRIVED))


def decide_held_back(run: Run, *, why: str) -> tuple[ev.Event, ...]:
    """Pause a run that a worker could claim, so that only a person continues it."""
    pause = ev.RunPaused(reason=reasons.OPERATOR, detail=why)
    match run.status:
        case RunStatus.QUEUED | RunStatus.WAITING:
            return (pause,)
        case RunStatus.INTERRUPTED if run.wake_at_us is not None:  # it would continue by itself
            return (ev.RunQueued(why=run.detail, wake_at_us=run.wake_at_us), pause)
        case _:
            return ()


def _taken(run: Run, owner: str, now_us: int, why: str, stop: ev.RunInterrupted) -> tuple[ev.Event, ...]:
    return (claim_of(run, owner), *(requested_stop(run) or (_lost(run, now_us, why, stop),)))


def _lost(run: Run, now_us: int, why: str, stop: ev.RunInterrupted) -> ev.Event:
    losses = run.losses + 1
    if losses >= LOSSES_MAX:
        return crash_loop(losses, why)
    if run.on_owner_loss == REQUEUE:
        return ev.RunQueued(why=why, wake_at_us=now_us + _back_off_us(losses))
    return stop


def crash_loop(losses: int, why: str = "") -> ev.RunFailed:
    """The end of a run that was lost too often; `why` is what happened the last time."""
    detail = f"{losses} processes in a row died or released the run without finishing a step"
    return ev.RunFailed(
        reason=reasons.CRASH_LOOP, detail=f"{detail}; the last time: {why}" if why else detail
    )


def _back_off_us(losses: int) -> int:
    """The first time none: most often a worker was simply replaced."""
    if losses <= 1:
        return 0
    return int(min(BACK_OFF_S_FIRST * 2.0 ** (losses - 2), BACK_OFF_S_MAX) * 1_000_000)


def orphaned(before: Run, after: Run, events: Sequence[ev.Event]) -> list[str]:
    """The children of managing steps that `events` closed without an outcome of their own.

    As when the run was cancelled, the step skipped, another branch finished first, or a resume went
    elsewhere.
    """
    gone = {
        name: opened.children
        for name, opened in before.open_steps.items()
        if opened.children and name not in after.open_steps
    }
    for event in events if gone else ():
        if isinstance(event, ev.StepFinished) and event.outcome.status is not ev.StepStatus.SKIPPED:
            gone.pop(event.step, None)
    return [child for children in gone.values() for child in children]
