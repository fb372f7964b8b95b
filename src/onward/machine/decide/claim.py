"""Claiming a run: the one way to own it, however it is started, resumed, answered or taken over."""

from __future__ import annotations

from dataclasses import dataclass

from onward.errors import Refused
from onward.machine.decide.answers import overdue
from onward.model.event import Event, RunClaimed, RunQueued
from onward.model.run import Run, RunStatus


@dataclass(frozen=True, slots=True)
class Standing:
    """Who holds the run (a name for people), whether that process is alive, who asks, and when."""

    holder: str | None
    is_alive: bool
    me: str
    now_us: int = 0


def decide_claim(
    run: Run, standing: Standing, *, take_over: bool = False, answered: bool = False
) -> tuple[Event, ...]:
    """Own the run, unless a live process does. A wait for a provider ends with the claim.

    A waiting run is claimed together with the answer that it waits for (`answered`), or when the deadline of
    a gate has come: then with what that decides.
    """
    if standing.holder is not None and standing.is_alive and not take_over:
        raise occupied(run, standing)
    claim = claim_of(run, standing.me)
    match run.status:
        case RunStatus.QUEUED | RunStatus.RUNNING:
            return (claim,)
        case RunStatus.WAITING:
            late = overdue(run, standing.now_us)
            if not late and not answered:
                raise still_waits(run)
            return (*late, claim)
        case RunStatus.INTERRUPTED if run.wake_at_us is not None:
            return (RunQueued(why=run.reason, wake_at_us=run.wake_at_us), claim)
        case _:
            raise wrong_state(
                run, "claimed", f"continue it with `onward resume {run.id}` if it can be resumed"
            )


def occupied(run: Run, standing: Standing) -> Refused:
    """The refusal that names the holder."""
    return Refused(
        "occupied",
        f"run {run.id} is held by {standing.holder}; "
        f"wait for it (--wait), or pause it with `onward pause {run.id}`.",
        details={"holder": standing.holder},
    )


def claim_of(run: Run, me: str) -> RunClaimed:
    """The next claim of this run; one of a run that is running takes it from an owner that lost it."""
    return RunClaimed(token=run.token + 1, worker=me, lost=run.status is RunStatus.RUNNING)


def wrong_state(run: Run, verb: str, why: str) -> Refused:
    """That the run is not in a state for this."""
    return Refused("invalid_state", f"run {run.id} is {run.status} and cannot be {verb}: {why}.")


def still_waits(run: Run) -> Refused:
    """That the run waits for an answer, and how to give one."""
    gates = ", ".join(gate.gate for gate in run.gates.values() if gate.decided is None)
    return Refused(
        "invalid_state",
        f"run {run.id} waits for an answer at {gates}; answer with `onward answer {run.id}`.",
    )
