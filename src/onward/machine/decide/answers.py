"""What an answer decides, and what a deadline does: pure functions of the stored question.

Everything that they need is in the gate, so a question means the same whoever answers it, even if the
pipeline's file has changed since.
"""

from __future__ import annotations

from onward.errors import InvalidInput
from onward.model.answer import Answer, Verdict
from onward.model.events.gates import Choice, GateDecided
from onward.model.ids import is_in_step
from onward.model.run import Gate, Run
from onward.pipeline.gate.answers import approving, meant, rejecting
from onward.pipeline.gate.words import APPROVING, DEFAULT, FREEFORM, NONE, REJECT

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
