"""What the holder writes about the calls inside its steps. Each is judged by the run as it is then."""

from __future__ import annotations

from collections.abc import Sequence, Set

from onward.errors import Refused
from onward.model.call import AttemptHeld, CallFinished, CallLost, CallStarted
from onward.model.events.event import Event
from onward.model.events.gates import GateOpened
from onward.model.ids import idempotency_key
from onward.model.run import AttemptState, OpenStep, Run


def open_attempt(run: Run, step: str, attempt: int) -> OpenStep:
    """The attempt that makes calls; refuses once it is over, whatever ended it."""
    opened = run.open_steps.get(step)
    is_open = opened is not None and opened.state is AttemptState.OPEN and opened.token == run.token
    if opened is None or not is_open or opened.attempt != attempt:
        raise attempt_over(run.id, step)
    return opened


def attempt_over(run_id: str, step: str) -> Refused:
    """The refusal of a call of an attempt that has ended."""
    return Refused(
        "attempt_over",
        f"this attempt of {idempotency_key(run_id, step)} has ended and can start nothing more; "
        "return from the function.",
    )


def start_call(run: Run, started: CallStarted, told: Sequence[str] = ()) -> tuple[Event, ...]:
    """Begin a call. One that the same attempt began and dropped is lost first.

    `told` are the waiting instructions that are in its conversation: another agent may have taken them.
    """
    opened = open_attempt(run, started.step, started.attempt)
    if tuple(told) != run.steering[: len(told)]:
        raise Refused("steering_taken", f"another step has taken the instructions that {started.step} read.")
    dropped = opened.calls.open.get(started.call) if opened.calls is not None else None
    if dropped is None:
        return (started,)
    if not dropped.repeatable:
        raise call_in_doubt(started.step, started.call)
    lost = CallLost(step=started.step, call=started.call, number=dropped.number, why="it was cancelled")
    return (lost, started)


def finish_call(run: Run, finished: CallFinished) -> tuple[Event, ...]:
    """Record how a call ended."""
    open_attempt(run, finished.step, finished.attempt)
    return (finished,)


def lose_call(run: Run, lost: CallLost, attempt: int) -> tuple[Event, ...]:
    """Record that a call will not be answered, and the attempt continues without it."""
    opened = open_attempt(run, lost.step, attempt)
    is_open = opened.calls is not None and lost.call in opened.calls.open
    return (lost,) if is_open else ()


def hold_attempt(
    run: Run, held: AttemptHeld, leaves: Set[str], asked: Sequence[GateOpened] = ()
) -> tuple[Event, ...]:
    """Stop the attempt between two calls; nothing while one of `leaves`, the calls under way, is not done.

    A call that is open in the log and not under way was dropped by its handler: it is lost. `asked` are the
    questions that it waits for; those that are asked already stay as they are.
    """
    open_attempt(run, held.step, held.attempt)
    return () if leaves else (*(gate for gate in asked if gate.gate not in run.gates), held)


def question_changed(step: str, call: str) -> Refused:
    """The refusal to ask another question under a key whose question was asked before."""
    return Refused(
        "question_changed",
        f"step {step} asks another question under {call!r} than the one that was put to people; "
        "make it only of values that are the same whenever the step runs, such as answers of calls. "
        "A retry of the step asks the new question.",
        details={"step": step, "call": call},
    )


def call_in_doubt(step: str, call: str) -> Refused:
    """The refusal to begin a call again that may have been made, and must not be repeated."""
    return Refused(
        "call_in_doubt",
        f"call {call!r} of step {step} was begun and has no answer, and must not be repeated blindly; "
        "the step is in doubt, and a person decides.",
        details={"step": step, "call": call},
    )
