"""Requests to a run: each becomes events, nothing (it is so already), or a refusal with advice.

Whoever asks holds the run's lock, so of two rival requests the second sees what the first did.

Claiming is the one way to hold a run, however it is started, resumed, answered or taken over. A run stops
because a person asked: paused, or cancelled with nothing left open.

What an answer decides, and what a deadline does, are functions of the stored question. Everything that they
need is in the gate, so a question means the same whoever answers it, even if the pipeline's file has
changed since.

Instructions for the agents of a run that is under way are given by anyone and taken by the next agent step.
A step that takes instructions keeps them until it has its outcome. An attempt that was cut off, and a
retry, get them again; a step that finished has used them up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from onward.errors import InvalidInput, Refused
from onward.machine import catalogue
from onward.machine.decide.calls import doubtful_step, interruption
from onward.machine.reasons import CHILD, CRASH, OPERATOR, USER
from onward.model import events as ev
from onward.model.context import plain_text
from onward.model.gate import Answer, Choice, GateDecided, GateWithdrawn, Verdict
from onward.model.ids import called, is_in_step
from onward.model.run import AttemptState, Gate, Run, RunStatus
from onward.model.values import rfc3339
from onward.pipeline.gate import APPROVING, DEFAULT, FREEFORM, NONE, REJECT, approving, meant, rejecting


class HolderView(msgspec.Struct, frozen=True):
    """The holder of a run as another process sees it: its label, whether it is alive; who asks, and when."""

    holder: str | None
    is_alive: bool
    asker: str
    now_us: int = 0


def decide_claim(
    run: Run, holder_view: HolderView, *, take_over: bool = False, answered: bool = False
) -> tuple[ev.Event, ...]:
    """Claim the run, unless a live process holds it. A wait for a provider ends with the claim.

    A waiting run is claimed together with the answer that it waits for (`answered`), or when the deadline of
    a gate has come: then with what that decides.
    """
    if holder_view.holder is not None and holder_view.is_alive and not take_over:
        raise occupied(run, holder_view)
    claim = claim_of(run, holder_view.asker)
    match run.status:
        case catalogue.QUEUED | catalogue.RUNNING:  # as for every run; RunStatus.QUEUED takes a search
            return (claim,)
        case RunStatus.WAITING:
            late = woken(run, holder_view.now_us)
            if not late and not answered:
                raise still_waits(run)
            return (*late, claim)
        case RunStatus.INTERRUPTED if run.wake_at_us is not None:
            return (ev.RunQueued(why=run.reason, wake_at_us=run.wake_at_us), claim)
        case _:
            raise wrong_state(
                run,
                "claimed",
                f"it has stopped; continue it with `onward resume {run.id}` if it can be resumed",
            )


def woken(run: Run, now_us: int) -> tuple[ev.Event, ...]:
    """What makes a waiting run continue by itself: a deadline of a gate, or the time of another branch."""
    late = overdue(run, now_us)
    if late or run.wake_at_us is None or run.wake_at_us > now_us:
        return late
    return (ev.RunQueued(why="a branch that does not wait for an answer is due", wake_at_us=run.wake_at_us),)


REPLAYED_US, REPLAYS = 15, 20
"""How long an event of a flow's history takes when it runs again, and how often that goes into its wait."""


def decide_awaited(run: Run, holder_view: HolderView, *, child: str) -> tuple[ev.Event, ...]:
    """Let a flow continue that waits for a run which has ended.

    A flow with a long history does not run again for each of ten thousand such runs: it waits for more.
    """
    stands = run.status is RunStatus.WAITING or (run.status is RunStatus.INTERRUPTED and run.reason == CHILD)
    waits = [opened for opened in run.open_steps.values() if child in opened.awaits] if stands else []
    if not waits or run.is_dismissed:
        return ()
    events = max(run.head - (opened.calls.since if opened.calls else run.head) for opened in waits)
    not_before_us = run.updated_at_us + REPLAYS * REPLAYED_US * events
    why = f"the run {called(child)} that it waits for has ended"
    return (ev.RunQueued(why=why, wake_at_us=max(holder_view.now_us, not_before_us)),)


def looks_at_runs(run: Run, now_us: int) -> tuple[ev.Event, ...]:
    """What lets a flow look at the runs that it waits for, because a person says so."""
    if not run.awaits:
        return ()
    return (ev.RunQueued(why="it looks at the runs that it waits for", wake_at_us=now_us),)


def occupied(run: Run, holder_view: HolderView) -> Refused:
    """The refusal that names the holder."""
    return Refused(
        "occupied",
        f"run {run.id} is held by {holder_view.holder}; "
        f"wait for it (--wait), or pause it with `onward pause {run.id}`.",
        details={"holder": holder_view.holder},
    )


def claim_of(run: Run, owner: str) -> ev.RunClaimed:
    """The next claim of this run by `owner`; claiming a running run takes it from a holder that lost it."""
    return ev.RunClaimed(token=run.token + 1, worker=owner, lost=run.status is catalogue.RUNNING)


def wrong_state(run: Run, verb: str, why: str) -> Refused:
    """That the run is not in a state for this."""
    says = f"run {run.id} is {run.status} and cannot be {verb}: {why}."
    return Refused("invalid_state", says, details=standing(run))


def standing(run: Run) -> dict[str, str | None]:
    """How the run stands, for whoever was refused: its status, and its first open gate."""
    gate = next((gate.gate for gate in run.gates.values() if gate.decided is None), None)
    return {"status": run.status.value, "gate": gate}


def still_waits(run: Run) -> Refused:
    """That the run waits: for an answer, and how to give one; or for a time, and what continues it then."""
    gates = ", ".join(gate.gate for gate in run.gates.values() if gate.decided is None)
    if not gates and run.wake_at_us is not None:
        return Refused(
            "invalid_state",
            f"run {run.id} waits until {rfc3339(run.wake_at_us)}; "
            f"a worker continues it then, or `onward resume {run.id}`.",
            details=standing(run),
        )
    return Refused(
        "invalid_state",
        f"run {run.id} waits for an answer at {gates}; answer with `onward answer {run.id}`.",
        details=standing(run),
    )


Decide = Callable[[Run, HolderView], Sequence[ev.Event]]
"""A request to a run, decided under its lock."""
DETAIL_CHARACTERS_MAX = 1_000
PAUSE_STRENGTH = {"step": 1, "call": 2, "now": 3}


def decide_pause(run: Run, holder_view: HolderView, *, after: str, by: str) -> tuple[ev.Event, ...]:
    """Stop at the next boundary if a live process holds the run, else at once."""
    if after not in PAUSE_STRENGTH:
        raise InvalidInput(f"--after {after!r} is not one of {', '.join(PAUSE_STRENGTH)}.")
    match run.status:
        case RunStatus.PAUSED:
            return ()
        case RunStatus.RUNNING if holder_view.is_alive:
            asked = PAUSE_STRENGTH.get(run.pending.pause_after or "", 0)
            return () if asked >= PAUSE_STRENGTH[after] else (ev.PauseRequested(after=after, by=by),)
        case RunStatus.RUNNING if run.pending.cancel_by is not None:
            return (claim_of(run, holder_view.asker), *requested_stop(run))
        case RunStatus.RUNNING:
            return (claim_of(run, holder_view.asker), pausing(by=by))
        case RunStatus.QUEUED | RunStatus.WAITING:
            return (pausing(by=by),)
        case _:
            raise wrong_state(run, "paused", "only queued, running and waiting runs can be paused")


def decide_cancel(
    run: Run, holder_view: HolderView, *, by: str, reason: str = USER, detail: str = ""
) -> tuple[ev.Event, ...]:
    """Cancel the run: through its holder if that is alive, else at once. `detail` is why, in free text."""
    detail = plain_text(detail, "the reason").strip()
    if len(detail) > DETAIL_CHARACTERS_MAX:
        raise InvalidInput(f"the reason has {len(detail)} characters; use at most {DETAIL_CHARACTERS_MAX}.")
    match run.status:
        case RunStatus.CANCELLED:
            return ()
        case RunStatus.COMPLETED:
            raise wrong_state(run, "cancelled", "it has finished")
        case RunStatus.RUNNING if holder_view.is_alive:
            asked = ev.CancelRequested(by=by, detail=detail, reason=reason)
            return () if run.pending.cancel_by is not None else (asked,)
        case RunStatus.RUNNING:
            return (claim_of(run, holder_view.asker), *cancelling(run, by=by, reason=reason, detail=detail))
        case _:
            return cancelling(run, by=by, reason=reason, detail=detail)


def decide_dismiss(run: Run, holder_view: HolderView, *, by: str) -> tuple[ev.Event, ...]:
    """Dismiss a run that has stopped; one whose holder died is stopped first."""
    dismissed = ev.RunDismissed(by=by)
    match run.status:
        case RunStatus.PAUSED | RunStatus.INTERRUPTED | RunStatus.FAILED:
            return () if run.is_dismissed else (dismissed,)
        case RunStatus.RUNNING if not holder_view.is_alive and run.pending.cancel_by is None:
            died = f"{holder_view.holder or 'its holder'} died"
            stop = interruption(doubtful_step(run), CRASH, died)
            return (claim_of(run, holder_view.asker), stop, dismissed)
        case RunStatus.COMPLETED | RunStatus.CANCELLED:
            raise wrong_state(run, "dismissed", "it has ended, so it is not suggested any more")
        case _:
            why = f"it has not stopped; `onward cancel {run.id}` ends it for good"
            raise wrong_state(run, "dismissed", why)


def decide_answer(
    run: Run,
    holder_view: HolderView,
    *,
    gate_id: str | None,
    answer: Answer,
    by: str,
    shown: str | None = None,
) -> tuple[ev.Event, ...]:
    """Decide a gate. The first decision is the decision; saying the same again is no contradiction.

    `shown` is the hash of what the person was shown who answers; an answer to another question is refused.
    Once the deadline has passed, its rule is the first, whether or not a process has applied it.
    """
    gate = _gate(run, gate_id)
    if shown is not None and shown != gate.content_hash:
        raise Refused(
            "gate_changed",
            f"gate {gate.gate} asks a different question than the one that was answered, so the answer was "
            f"not used; `onward show {run.id}` has the question.",
            details={"gate": gate.gate, "content_hash": gate.content_hash},
        )
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


def decide_woken(run: Run, holder_view: HolderView) -> tuple[ev.Event, ...]:
    """Wake a run that still waits, if a deadline of its gates has expired or another branch is due."""
    return woken(run, holder_view.now_us) if run.status is RunStatus.WAITING else ()


def decide_and_claim(run: Run, holder_view: HolderView, *, decide: Decide) -> tuple[ev.Event, ...]:
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
    if run.status is RunStatus.WAITING and run.awaits:
        raise Refused(
            "no_open_gate",
            f"run {run.id} has no open gate: it waits {run.detail}; answer that one with `onward answer "
            f"{called(run.awaits[0])}`.",
            details=standing(run),
        )
    raise Refused(
        "no_open_gate",
        f"run {run.id} is {run.status} and has no open gate; see `onward show {run.id}`.",
        details=standing(run),
    )


def requested_stop(run: Run) -> tuple[ev.Event, ...]:
    """What a pending request makes of any stop: a cancel first, then a pause, else nothing."""
    if run.pending.cancel_by is not None:
        asked = run.pending
        return cancelling(
            run, by=run.pending.cancel_by, reason=asked.cancel_reason, detail=asked.cancel_detail
        )
    if run.pending.pause_after is not None:
        return (pausing(by=run.pending.pause_by),)
    return ()


ASKED_BY = "asked by "
"""How the detail of a pause begins that a person asked for."""


def pausing(*, by: str | None) -> ev.RunPaused:
    """A pause that a person asked for."""
    return ev.RunPaused(reason=OPERATOR, detail=f"{ASKED_BY}{by}")


def cancelling(run: Run, *, by: str, reason: str = USER, detail: str = "") -> tuple[ev.Event, ...]:
    """Cancel a run: withdraw its gates, close its attempts, and say so, in one append."""
    return (*closing(run, why="cancelled"), ev.RunCancelled(reason=reason, by=by, detail=detail))


def closing(run: Run, *, why: str) -> tuple[ev.Event, ...]:
    """Withdraw every open gate and close every open attempt."""
    gates = tuple(GateWithdrawn(gate=name) for name, gate in run.gates.items() if gate.decided is None)
    attempts = tuple(
        ev.AttemptInterrupted(step=opened.step, attempt=opened.attempt, why=why)
        for opened in run.open_steps.values()
        if opened.state is AttemptState.OPEN
    )
    return (*gates, *attempts)


DEADLINE = "deadline"
OWN_WORDS = Choice(key="", label="", to="")
NO = Choice(key="", label="reject", to="")


def decision(gate: Gate, answer: Answer, *, by: str) -> GateDecided:
    """What an answer decides. An answer that the gate does not offer is refused with what it does."""
    if answer.skipped:
        raise InvalidInput(f"a skipped question has no answer; {gate.gate} stays open.")
    match answer.verdict:
        case Verdict.APPROVE:
            return _decided(gate, _approved(gate), by, answer.text)
        case Verdict.REJECT:
            return _decided(gate, rejecting(gate.type, gate.choices) or NO, by, answer.text)
    if gate.type == FREEFORM and not (answer.choice and answer.text):
        return _in_words(gate, answer.choice or answer.text, by)
    choice = meant(gate.type, gate.choices, answer.choice)
    if choice is None:
        raise InvalidInput(f"gate {gate.gate} has no choice {answer.choice!r}; {_choose(gate)}.")
    return _decided(gate, choice, by, answer.text)


def _approved(gate: Gate) -> Choice:
    """A yes goes by the edge that says so, or by the only one, or where words go."""
    found = approving(gate.type, gate.choices)
    if found is not None:
        return found
    if gate.type == FREEFORM:
        return OWN_WORDS
    if len(gate.choices) == 1 and rejecting(gate.type, gate.choices) is None:
        return gate.choices[0]
    words = ", ".join(APPROVING)
    raise InvalidInput(f"gate {gate.gate} has no choice that approves (labelled {words}); {_choose(gate)}.")


def _in_words(gate: Gate, words: str, by: str) -> GateDecided:
    """Any text is an answer; it takes the only edge, or edges are chosen as usual."""
    if not words.strip():
        raise InvalidInput(f"gate {gate.gate} asks for text; write some.")
    only = gate.choices[0] if len(gate.choices) == 1 else OWN_WORDS
    return GateDecided(gate=gate.gate, choice=only, by=by, text=words)


def _choose(gate: Gate) -> str:
    return "choose one of: " + ", ".join(f"{choice.key} ({choice.label})" for choice in gate.choices)


def _decided(gate: Gate, choice: Choice, by: str, text: str = "", *, expired: bool = False) -> GateDecided:
    if is_in_step(gate.gate):  # no choice leads anywhere: what it means decides
        is_no = choice in (NO, rejecting(gate.type, gate.choices))
    else:
        is_no = not choice.to and choice != OWN_WORDS
    return GateDecided(gate=gate.gate, choice=choice, by=by, text=text, rejected=is_no, expired=expired)


# -- deadlines ---------------------------------------------------------------------------------------


def has_expired(gate: Gate, now_us: int) -> bool:
    """Whether it is too late to answer: the deadline has come, and there is a rule for that."""
    return (
        gate.decided is None
        and gate.on_timeout != NONE
        and gate.deadline_us is not None
        and gate.deadline_us <= now_us
    )


def expiry(gate: Gate) -> GateDecided:
    """What the rule for a gate's deadline decides."""
    if gate.on_timeout == DEFAULT:
        default = next(choice for choice in gate.choices if choice.key == gate.default)
        return _decided(gate, default, DEADLINE, expired=True)
    assert gate.on_timeout == REJECT
    return _decided(gate, rejecting(gate.type, gate.choices) or NO, DEADLINE, expired=True)


def deadline_rule(gate: Gate) -> str:
    """What the rule for a gate's deadline does, as part of a sentence."""
    late = expiry(gate)
    return "it is rejected" if late.rejected else f"it takes {late.choice.label!r}"


def overdue(run: Run, now_us: int) -> tuple[GateDecided, ...]:
    """The decisions of expired deadlines."""
    return tuple(expiry(gate) for gate in run.gates.values() if has_expired(gate, now_us))


def next_deadline(run: Run) -> int | None:
    """The first deadline of an open gate that has a rule."""
    deadlines = [
        gate.deadline_us
        for gate in run.gates.values()
        if gate.decided is None and gate.on_timeout != NONE and gate.deadline_us is not None
    ]
    return min(deadlines, default=None)


def next_reminder(gate: Gate, now_us: int) -> int | None:
    """When an open gate is to be announced again, counted from when it was opened."""
    if gate.remind_us is None or gate.decided is not None:
        return None
    passed = max(0, now_us - gate.opened_at_us) // gate.remind_us
    return gate.opened_at_us + (passed + 1) * gate.remind_us


STEERING_CHARACTERS_MAX = 10_000
STEERING_PENDING_MAX = 20


def decide_steer(run: Run, holder_view: HolderView, *, text: str, by: str) -> tuple[ev.Event, ...]:
    """Give an instruction, as long as there will be a step to take it."""
    text = plain_text(text, "an instruction").strip()
    if not text:
        raise InvalidInput("the instruction is empty; write what the run's agents should do.")
    if len(text) > STEERING_CHARACTERS_MAX:
        raise InvalidInput(
            f"the instruction has {len(text)} characters; use at most {STEERING_CHARACTERS_MAX}, "
            "or put the rest in a file that the agents can read."
        )
    if run.is_final:
        raise Refused(
            "invalid_state",
            f"run {run.id} is {run.status}; it has no agent step left to receive an instruction.",
            details=standing(run),
        )
    if len(run.steering) >= STEERING_PENDING_MAX:
        raise Refused(
            "too_much_steering",
            f"run {run.id} has {STEERING_PENDING_MAX} instructions that no agent step has received yet; see "
            f"`onward show {called(run.id)}` for what it waits for.",
        )
    return (ev.SteeringGiven(text=text, by=by),)
