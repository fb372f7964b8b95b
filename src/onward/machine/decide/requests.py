"""Requests to a run: each becomes events, nothing (it is so already), or a refusal that says what to do.

Whoever asks holds the run's lock, so of two rival requests the second sees what the first did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onward.errors import InvalidInput, Refused
from onward.machine.decide.answers import deadline_rule, decision, has_expired
from onward.machine.decide.claim import HolderView, claim_of, decide_claim, woken, wrong_state
from onward.machine.decide.closing import cancelling, pausing, requested_stop
from onward.machine.decide.doubt import doubtful_step, interruption
from onward.model.answer import Answer
from onward.model.events.event import Event
from onward.model.events.runs import CancelRequested, PauseRequested, RunDismissed
from onward.model.run import Gate, Run, RunStatus
from onward.model.values.value import plain_text

Decide = Callable[[Run, HolderView], Sequence[Event]]
"""A request to a run, decided under its lock."""
DETAIL_CHARACTERS_MAX = 1_000
PAUSE_STRENGTH = {"step": 1, "call": 2, "now": 3}


def decide_pause(run: Run, holder_view: HolderView, *, after: str, by: str) -> tuple[Event, ...]:
    """Stop at the next boundary if a live process holds the run, else at once."""
    if after not in PAUSE_STRENGTH:
        raise InvalidInput(f"--after {after!r} is not one of {', '.join(PAUSE_STRENGTH)}.")
    match run.status:
        case RunStatus.PAUSED:
            return ()
        case RunStatus.RUNNING if holder_view.is_alive:
            asked = PAUSE_STRENGTH.get(run.pending.pause_after or "", 0)
            return () if asked >= PAUSE_STRENGTH[after] else (PauseRequested(after=after, by=by),)
        case RunStatus.RUNNING if run.pending.cancel_by is not None:
            return (claim_of(run, holder_view.asker), *requested_stop(run))
        case RunStatus.RUNNING:
            return (claim_of(run, holder_view.asker), pausing(by=by))
        case RunStatus.QUEUED | RunStatus.WAITING:
            return (pausing(by=by),)
        case _:
            raise wrong_state(run, "paused", "only queued, running and waiting runs can be paused")


def decide_cancel(
    run: Run, holder_view: HolderView, *, by: str, reason: str = "user", detail: str = ""
) -> tuple[Event, ...]:
    """Cancel the run: through its holder if that is alive, else at once. `detail` is why, in free text."""
    detail = plain_text(detail, "the reason").strip()
    if len(detail) > DETAIL_CHARACTERS_MAX:
        raise InvalidInput(
            f"the reason has {len(detail)} characters; say it in at most {DETAIL_CHARACTERS_MAX}."
        )
    match run.status:
        case RunStatus.CANCELLED:
            return ()
        case RunStatus.COMPLETED:
            raise wrong_state(run, "cancelled", "it has finished")
        case RunStatus.RUNNING if holder_view.is_alive:
            asked = CancelRequested(by=by, detail=detail, reason=reason)
            return () if run.pending.cancel_by is not None else (asked,)
        case RunStatus.RUNNING:
            return (claim_of(run, holder_view.asker), *cancelling(run, by=by, reason=reason, detail=detail))
        case _:
            return cancelling(run, by=by, reason=reason, detail=detail)


def decide_dismiss(run: Run, holder_view: HolderView, *, by: str) -> tuple[Event, ...]:
    """Dismiss a run that has stopped; one whose holder died is stopped first."""
    dismissed = RunDismissed(by=by)
    match run.status:
        case RunStatus.PAUSED | RunStatus.INTERRUPTED | RunStatus.FAILED:
            return () if run.is_dismissed else (dismissed,)
        case RunStatus.RUNNING if not holder_view.is_alive and run.pending.cancel_by is None:
            died = f"{holder_view.holder or 'its holder'} died"
            stop = interruption(doubtful_step(run), "crash", died)
            return (claim_of(run, holder_view.asker), stop, dismissed)
        case RunStatus.COMPLETED | RunStatus.CANCELLED:
            raise wrong_state(run, "dismissed", "it has ended, so nothing offers to continue it")
        case _:
            why = f"it has not stopped; `onward cancel {run.id}` ends it for good"
            raise wrong_state(run, "dismissed", why)


def decide_answer(
    run: Run, holder_view: HolderView, *, gate_id: str | None, answer: Answer, by: str
) -> tuple[Event, ...]:
    """Decide a gate. The first decision is the decision; saying the same again is no contradiction.

    Once the deadline has passed, its rule is the first, whether or not a process has applied it.
    """
    gate = _gate(run, gate_id)
    decided = decision(gate, answer, by=by)
    if (gate.decided, gate.answer, gate.rejected) == (decided.choice, decided.text, decided.rejected):
        return ()
    if has_expired(open_gate(run, gate_id), holder_view.now_us):
        raise Refused(
            "gate_expired",
            f"gate {gate.gate} was open until its deadline, which has passed; "
            f"`onward resume {run.id}` continues as the gate says ({deadline_rule(gate)}).",
            details={"gate": gate.gate, "on_timeout": gate.on_timeout},
        )
    return (decided,)


def decide_woken(run: Run, holder_view: HolderView) -> tuple[Event, ...]:
    """Wake a run that still waits, if a deadline of its gates has expired or another branch is due."""
    return woken(run, holder_view.now_us) if run.status is RunStatus.WAITING else ()


def decide_and_claim(run: Run, holder_view: HolderView, *, decide: Decide) -> tuple[Event, ...]:
    """Decide a gate and claim the run that waited for it, in one append; no decision, no claim."""
    decided = tuple(decide(run, holder_view))
    if not decided or run.status is not RunStatus.WAITING:
        return decided
    claim = decide_claim(run, holder_view, answered=True)
    return (*decided, *(event for event in claim if event not in decided))


def open_gate(run: Run, gate_id: str | None) -> Gate:
    """The gate that still wants an answer: the one that is named, or the only one."""
    gate = _gate(run, gate_id)
    if gate.decided is not None:
        raise Refused(
            "gate_decided",
            f"gate {gate.gate} is already decided: {gate.decided.label!r} by {gate.by}.",
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
        raise InvalidInput(f"run {run.id} has several open gates ({names}); name one with --gate.")
    decided = list(run.gates.values())
    if decided:
        return decided[-1]
    raise Refused(
        "no_open_gate", f"run {run.id} is {run.status} and has no open gate; see `onward show {run.id}`."
    )
