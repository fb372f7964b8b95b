"""Requests to a run: each becomes events, nothing (it is so already), or a refusal that says what to do.

Whoever asks holds the run's lock, so of two rival requests the second sees what the first did.
"""

from __future__ import annotations

from dataclasses import dataclass

from onward.errors import InvalidInput, Refused
from onward.machine.decide.answers import decision, has_expired, overdue, told
from onward.machine.decide.closing import cancelling
from onward.model.answer import Answer
from onward.model.event import (
    CancelRequested,
    Event,
    PauseRequested,
    RunClaimed,
    RunPaused,
    RunQueued,
)
from onward.model.run import Gate, Run, RunStatus

PAUSE_STRENGTH = {"step": 1, "call": 2, "now": 3}


@dataclass(frozen=True, slots=True)
class Standing:
    """Who holds the run, as a name for people; whether that process still can; who asks, and when."""

    holder: str | None
    is_alive: bool
    me: str
    now_us: int = 0


def decide_claim(
    run: Run, standing: Standing, *, take_over: bool = False, answered: bool = False
) -> tuple[Event, ...]:
    """Own the run, unless somebody who is alive does. A wait for a provider ends with the claim.

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
            raise wrong_state(run, "claimed", f"start it with `onward resume {run.id}` if it can go on")


def occupied(run: Run, standing: Standing) -> Refused:
    """The refusal that names the holder."""
    return Refused(
        "occupied",
        f"run {run.id} is held by {standing.holder}; "
        f"wait for it (--wait), or pause it with `onward pause {run.id}`.",
        details={"holder": standing.holder},
    )


def claim_of(run: Run, me: str) -> RunClaimed:
    return RunClaimed(token=run.token + 1, worker=me, lost=run.status is RunStatus.RUNNING)


def decide_pause(run: Run, standing: Standing, *, after: str, by: str) -> tuple[Event, ...]:
    """Stop at the next boundary if somebody is at work, else at once."""
    if after not in PAUSE_STRENGTH:
        raise InvalidInput(f"--after {after!r} is not one of {', '.join(PAUSE_STRENGTH)}.")
    match run.status:
        case RunStatus.PAUSED:
            return ()
        case RunStatus.RUNNING if standing.is_alive:
            asked = PAUSE_STRENGTH.get(run.pending.pause_after or "", 0)
            return () if asked >= PAUSE_STRENGTH[after] else (PauseRequested(after=after, by=by),)
        case RunStatus.RUNNING if run.pending.cancel_by is not None:
            return (claim_of(run, standing.me), *cancelling(run, by=run.pending.cancel_by))
        case RunStatus.RUNNING:
            return (claim_of(run, standing.me), RunPaused(reason="operator", detail=f"asked by {by}"))
        case RunStatus.QUEUED | RunStatus.WAITING:
            return (RunPaused(reason="operator", detail=f"asked by {by}"),)
        case _:
            raise wrong_state(run, "paused", "only a queued, running or waiting run can be")


def decide_cancel(run: Run, standing: Standing, *, by: str, reason: str = "user") -> tuple[Event, ...]:
    """Give the run up: through its holder if somebody is at work, else at once."""
    match run.status:
        case RunStatus.CANCELLED:
            return ()
        case RunStatus.COMPLETED:
            raise wrong_state(run, "cancelled", "it has finished")
        case RunStatus.RUNNING if standing.is_alive:
            return () if run.pending.cancel_by is not None else (CancelRequested(by=by),)
        case RunStatus.RUNNING:
            return (claim_of(run, standing.me), *cancelling(run, by=by, reason=reason))
        case _:
            return cancelling(run, by=by, reason=reason)


def decide_answer(
    run: Run, *, gate_id: str | None, answer: Answer, by: str, now_us: int
) -> tuple[Event, ...]:
    """Decide a gate. The first decision is the decision; saying the same again is no contradiction.

    When the deadline has come, its rule is the first, whether or not somebody was there to apply it.
    """
    gate = _gate(run, gate_id)
    decided = decision(gate, answer, by=by)
    if (gate.decided, gate.answer, gate.rejected) == (decided.choice, decided.text, decided.rejected):
        return ()
    if has_expired(open_gate(run, gate_id), now_us):
        raise Refused(
            "gate_expired",
            f"gate {gate.gate} could be answered until its deadline, which has come; "
            f"`onward resume {run.id}` goes on as the gate says ({told(gate)}).",
            details={"gate": gate.gate, "on_timeout": gate.on_timeout},
        )
    return (decided,)


def open_gate(run: Run, gate_id: str | None) -> Gate:
    """The gate that still wants an answer: the one that is named, or the only one."""
    gate = _gate(run, gate_id)
    if gate.decided is not None:
        raise Refused(
            "gate_decided",
            f"gate {gate.gate} was decided already: {gate.decided.label!r} by {gate.by}.",
            details={"choice": gate.decided.key, "by": gate.by},
        )
    return gate


def _gate(run: Run, gate_id: str | None) -> Gate:
    undecided = [gate for gate in run.gates.values() if gate.decided is None]
    if gate_id is not None:
        found = run.gates.get(gate_id)
        if found is None:
            names = ", ".join(gate.gate for gate in undecided) or "none"
            raise Refused("no_open_gate", f"run {run.id} has no gate {gate_id!r}; open gates: {names}.")
        return found
    if len(undecided) == 1:
        return undecided[0]
    if undecided:
        names = ", ".join(gate.gate for gate in undecided)
        raise InvalidInput(f"run {run.id} has several open gates ({names}); say which with --gate.")
    decided = list(run.gates.values())
    if decided:
        return decided[-1]
    raise Refused(
        "no_open_gate", f"run {run.id} is {run.status} and asks nothing; see `onward show {run.id}`."
    )


def wrong_state(run: Run, verb: str, why: str) -> Refused:
    """That the run is not in a state for this."""
    return Refused("invalid_state", f"run {run.id} is {run.status} and cannot be {verb}: {why}.")


def still_waits(run: Run) -> Refused:
    """That the run waits for an answer, and how to give one."""
    gates = ", ".join(gate.gate for gate in run.gates.values() if gate.decided is None)
    return Refused(
        "invalid_state",
        f"run {run.id} waits for an answer at {gates}; give it with `onward answer {run.id}`.",
    )
