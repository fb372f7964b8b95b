"""What is written about the calls inside steps, and which calls and steps are in doubt.

What the holder writes is judged by the run as it is then.

Open calls are closed, and their gates withdrawn, in the same append as whatever ends them
(`with_lost_calls`). A call is open only while its run is running under the token that began it. Every event
that ends an attempt, stops or releases the run, or claims it, comes through there, whoever writes it: so no
call is left to be closed later. A gate stays open while an attempt is held for its answer.

After a limit has changed, attempts that it held try again (`decide_lift`). Steps that may or may not have
run are in doubt: only a person can decide about them.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from onward.errors import Refused
from onward.machine.fold.calls import LIMIT, told_of
from onward.machine.lifecycle import ended_gates, ends_calls, open_calls
from onward.machine.reasons import IN_DOUBT, is_at_limit
from onward.model.call import (
    TOOL_USE,
    AttemptHeld,
    CallFinished,
    CallLost,
    CallStarted,
    HoldsLifted,
    LimitHit,
)
from onward.model.events import Event, RunClaimed, RunForked, RunInterrupted
from onward.model.gate import GateDecided, GateOpened, GateWithdrawn
from onward.model.ids import idempotency_key, place
from onward.model.limits import VISITS
from onward.model.run import AttemptState, OpenStep, Run, RunStatus


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
        f"this attempt of {idempotency_key(run_id, step)} has ended and cannot start anything more; return "
        "from the function.",
    )


def start_call(run: Run, started: CallStarted, told: Sequence[str] = ()) -> tuple[Event, ...]:
    """Begin a call. One that the same attempt began and dropped is lost first.

    `told` are the waiting instructions that are in its conversation: another agent may have taken them.
    """
    opened = open_attempt(run, started.step, started.attempt)
    if tuple(told) != run.steering[: len(told)]:
        raise Refused(
            "steering_taken", f"another step has received the instructions that {started.step} read."
        )
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
        f"step {step} asks a different question under {call!r} than before; build it only from values that "
        "are the same whenever the step runs, such as results of calls. A retry of the step asks the new "
        "question.",
        details={"step": step, "call": call},
    )


def call_in_doubt(step: str, call: str) -> Refused:
    """The refusal to begin a call again that may have been made, and must not be repeated."""
    return Refused(
        "call_in_doubt",
        f"call {call!r} of step {step} was started and has no result, and must not be repeated blindly; the "
        "step is in doubt, and a person decides.",
        details={"step": step, "call": call},
    )


def with_lost_calls(run: Run | None, events: Sequence[Event]) -> Sequence[Event]:
    """These events, which follow on `run`, each after the loss of the calls and gates that it ends."""
    if run is None or not (run.open_calls or run.gates):  # nearly always
        return events
    closed: set[tuple[str, str]] = set()
    answered: set[str] = set()
    written: list[Event] = []
    for event in events:
        match event:
            case CallFinished() | CallLost():
                closed.add((event.step, event.call))
            case GateDecided() | GateWithdrawn():
                answered.add(event.gate)
            case RunForked():  # the gates of the other run stay its own
                answered.update(run.gates)
        for gate in ended_gates(run, event):
            if gate not in answered:
                answered.add(gate)
                written.append(GateWithdrawn(gate=gate))
        of = ends_calls(event)
        for step, call, begun in open_calls(run, of) if of is not None else ():
            if (step, call) not in closed:
                closed.add((step, call))
                written.append(CallLost(step=step, call=call, number=begun.number, why=_why(event)))
        written.append(event)
    return written


def _why(event: Event) -> str:
    """What ended the call, in a few words."""
    if isinstance(event, RunClaimed):
        return "its holder died" if event.lost else "its run was taken over"
    said = getattr(event, "why", "") or getattr(event, "reason", "")
    return str(said) or "its attempt ended"


def is_held_by_limit(run: Run) -> bool:
    """Whether a limit holds an attempt of the run."""
    return any(
        opened.state is AttemptState.HELD and opened.held == LIMIT for opened in run.open_steps.values()
    )


def limits_hit(run: Run) -> tuple[LimitHit, ...]:
    """The limits that hold attempts of the run."""
    return tuple(
        opened.limit
        for opened in run.open_steps.values()
        if opened.state is AttemptState.HELD and opened.held == LIMIT and opened.limit is not None
    )


class VisitsStop(NamedTuple):
    """A run stopped before a node that it visited as often as it may."""

    scope: str
    node: str
    visits: int

    @property
    def argument(self) -> str:
        """What `--raise` takes to let the run visit its nodes twice as often."""
        return f"run.{VISITS}={2 * self.visits}"


def visits_stop(run: Run) -> VisitsStop | None:
    """Where a run that a limit stopped has visited a node too often; None if calls met the limit."""
    if not is_at_limit(run.reason) or any(opened.limit for opened in run.open_steps.values()):
        return None
    stands = [
        (run.visits.get(place(branch.next_node, branch_id), 0), branch.next_node)
        for branch_id, branch in run.branches.items()
        if branch.next_node and not branch.ended
    ]
    visits, node = max(stands, default=(0, ""))
    return VisitsStop(f"run/{run.id}", node, visits) if visits else None


def decide_lift(run: Run, *, why: str, by: str) -> Sequence[Event]:
    """Lift the holds of a run that is running; one that has stopped is resumed instead."""
    if run.status is not RunStatus.RUNNING or not is_held_by_limit(run):
        return ()
    return (HoldsLifted(why=why, by=by),)


def is_in_doubt(opened: OpenStep) -> bool:
    """Whether it started, did not finish, and is not to be repeated without a person's decision."""
    if opened.calls is not None and calls_in_doubt(opened):
        return True
    return not opened.repeatable and opened.state in (AttemptState.OPEN, AttemptState.INTERRUPTED)


def calls_in_doubt(opened: OpenStep) -> dict[str, int]:
    """The calls that were begun, must not be repeated, and have no answer, each with its try.

    Those that are open count: they are lost when the run's holder is.
    """
    calls = opened.calls
    if calls is None:
        return {}
    begun = {name: call.number for name, call in calls.open.items() if not call.repeatable}
    return {**calls.lost, **begun}


def is_use_in_doubt(opened: OpenStep) -> bool:
    """Whether what is in doubt are uses of tools by an agent, and nothing else."""
    in_doubt = calls_in_doubt(opened)
    return bool(in_doubt) and all(TOOL_USE.fullmatch(call) for call in in_doubt)


def told_in_doubt(opened: OpenStep) -> list[str]:
    """The calls in doubt, each with what it was called with, if that is known."""
    calls = opened.calls
    if calls is None:
        return []
    told = {**calls.told, **{name: told_of(call) for name, call in calls.open.items() if call.about}}
    return [f"{name}: {told[name]}" if name in told else name for name in calls_in_doubt(opened)]


def doubtful_step(run: Run) -> str | None:
    """The first open step that is in doubt if no process holds the run; a run that is final has none."""
    for opened in run.open_steps.values():
        # Asked for every step, and nearly all of them may be repeated and have no calls.
        if (not opened.repeatable or opened.calls is not None) and is_in_doubt(opened) and not run.is_final:
            return opened.step
    return None


def interruption(doubtful: str | None, reason: str, detail: str) -> RunInterrupted:
    """Why a run stops whose holder is gone: a step in doubt comes first, since a person must decide."""
    if doubtful is None:
        return RunInterrupted(reason=reason, detail=detail)
    return RunInterrupted(reason=IN_DOUBT, detail=with_doubt(detail, doubtful))


def with_doubt(detail: str, doubtful: str) -> str:
    """Why a run has stopped, and that a person must decide about this step of it."""
    return f"{detail}; step {doubtful} was cut off and must not be repeated blindly"
