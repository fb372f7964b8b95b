"""Claiming a run: the one way to hold it, however it is started, resumed, answered or taken over."""

from __future__ import annotations

import msgspec

from onward.errors import Refused
from onward.machine import lifecycle
from onward.machine.decide.answers import overdue
from onward.model.events.event import Event
from onward.model.events.runs import RunClaimed, RunQueued
from onward.model.run import Run, RunStatus


class HolderView(msgspec.Struct, frozen=True):
    """The holder of a run as another process sees it: its label, whether it is alive; who asks, and when."""

    holder: str | None
    is_alive: bool
    asker: str
    now_us: int = 0


def decide_claim(
    run: Run, holder_view: HolderView, *, take_over: bool = False, answered: bool = False
) -> tuple[Event, ...]:
    """Claim the run, unless a live process holds it. A wait for a provider ends with the claim.

    A waiting run is claimed together with the answer that it waits for (`answered`), or when the deadline of
    a gate has come: then with what that decides.
    """
    if holder_view.holder is not None and holder_view.is_alive and not take_over:
        raise occupied(run, holder_view)
    claim = claim_of(run, holder_view.asker)
    match run.status:
        case lifecycle.QUEUED | lifecycle.RUNNING:  # as for every run; RunStatus.QUEUED takes a search
            return (claim,)
        case RunStatus.WAITING:
            late = woken(run, holder_view.now_us)
            if not late and not answered:
                raise still_waits(run)
            return (*late, claim)
        case RunStatus.INTERRUPTED if run.wake_at_us is not None:
            return (RunQueued(why=run.reason, wake_at_us=run.wake_at_us), claim)
        case _:
            raise wrong_state(
                run, "claimed", f"continue it with `onward resume {run.id}` if it can be resumed"
            )


def woken(run: Run, now_us: int) -> tuple[Event, ...]:
    """What makes a waiting run continue by itself: a deadline of a gate, or the time of another branch."""
    late = overdue(run, now_us)
    if late or run.wake_at_us is None or run.wake_at_us > now_us:
        return late
    return (RunQueued(why="a branch that does not wait for an answer is due", wake_at_us=run.wake_at_us),)


def occupied(run: Run, holder_view: HolderView) -> Refused:
    """The refusal that names the holder."""
    return Refused(
        "occupied",
        f"run {run.id} is held by {holder_view.holder}; "
        f"wait for it (--wait), or pause it with `onward pause {run.id}`.",
        details={"holder": holder_view.holder},
    )


def claim_of(run: Run, owner: str) -> RunClaimed:
    """The next claim of this run by `owner`; claiming a running run takes it from a holder that lost it."""
    return RunClaimed(token=run.token + 1, worker=owner, lost=run.status is lifecycle.RUNNING)


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
