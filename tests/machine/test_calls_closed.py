"""A call is open only while its run is running under the token that began it; what ends that closes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from onward.errors import Refused
from onward.machine.decide.calls import (
    doubtful_step,
    finish_call,
    hold_attempt,
    lose_call,
    start_call,
    with_lost_calls,
)
from onward.machine.fold.changes import IllegalEvent
from onward.machine.fold.rows import call_rows
from onward.model.call import AttemptHeld, CallFinished, CallLost, CallStarted, CallStatus, Reserved, Streamed
from onward.model.events import (
    AttemptFailed,
    AttemptInterrupted,
    BranchFinished,
    BranchPlan,
    Event,
    ParallelStarted,
    RunCancelled,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunForked,
    RunInterrupted,
    RunPaused,
    RunQueued,
    RunWaiting,
    StepStarted,
    StepStatus,
)
from onward.model.gate import GateWithdrawn
from onward.model.row import CallClosed, MessageState
from onward.model.run import Run
from tests.machine.events import ASKED, finished, held, started, then
from tests.machine.test_branches import BEGUN_IN_A, TWO

STREAMED = Streamed(chat="c", message="m")
BEGUN = CallStarted(
    step="a#1",
    attempt=1,
    call="m1",
    number=1,
    repeatable=False,
    reserved=Reserved(scopes=("run/r",), tokens=7),
    streamed=STREAMED,
)
ENDS: list[Event] = [
    finished(),
    AttemptFailed(step="a#1", attempt=1, status=StepStatus.RETRY, reason="busy"),
    AttemptInterrupted(step="a#1", attempt=1, why="too late"),
    AttemptHeld(step="a#1", attempt=1, reason="pause"),
    RunClaimed(token=2, worker="w2", lost=True),
    RunQueued(why="drained", wake_at_us=60),
    RunWaiting(),
    RunPaused(reason="operator"),
    RunInterrupted(reason="crash"),
    RunFailed(reason="step_failed"),
    RunCompleted(),
    RunCancelled(reason="user", by="ann"),
    RunForked(parent="r", parent_seq=4, parent_hash="00", by="ann"),
]


def calling() -> Run:
    """A run with a call that is open."""
    return then(held(), started(), BEGUN)


@pytest.mark.parametrize("event", ENDS, ids=lambda event: event.kind)
def test_whatever_ends_an_attempt_or_a_run_closes_its_calls_in_the_same_append(event: Event) -> None:
    """I33: the call is lost first, its reservation is settled and its message ends; nothing comes later."""
    run = calling()
    written = with_lost_calls(run, (event,))
    assert [type(one) for one in written] == [CallLost, type(event)]
    (closed,) = call_rows(run, written)
    assert isinstance(closed, CallClosed)
    assert (closed.is_reserved, closed.is_unknown, closed.state) == (True, True, MessageState.INTERRUPTED)
    assert then(run, written[0]).open_calls == 0


@pytest.mark.parametrize("event", ENDS, ids=lambda event: event.kind)
def test_an_end_that_leaves_a_call_open_does_not_fold(event: Event) -> None:
    """I33: also if somebody writes it by another way."""
    with pytest.raises(IllegalEvent, match="leaves calls open: m1"):
        then(calling(), event)


@pytest.mark.parametrize(
    "late",
    [
        CallStarted(step="a#1", attempt=1, call="m2", number=1),
        CallFinished(step="a#1", attempt=1, call="m1", number=1, status=CallStatus.OK),
    ],
    ids=lambda event: event.kind,
)
def test_a_call_of_an_attempt_that_is_over_is_neither_begun_nor_answered(late: Event) -> None:
    """I33"""
    lost = CallLost(step="a#1", call="m1", number=1)
    run = then(calling(), lost, AttemptHeld(step="a#1", attempt=1, reason="pause"))
    with pytest.raises(IllegalEvent, match="is over"):
        then(run, late)


INNER = ParallelStarted(
    step="fan#1.a/inner#1",
    node="inner",
    branches=(BranchPlan(path="fan#1.a/inner#1.c", to="c", edge=3),),
    join="meet",
    policy="wait_all",
    max_parallel=1,
)
BEGUN_INSIDE = StepStarted(step="fan#1.a/inner#1.c/c#1", node="c", attempt=1)
OVER = BranchFinished(branch="fan#1.a", status="cancelled")


@pytest.mark.parametrize(
    "began", [(BEGUN_IN_A,), (INNER, BEGUN_INSIDE)], ids=["in the branch", "in a branch of the branch"]
)
def test_the_end_of_a_branch_closes_the_calls_in_it_and_no_others(began: tuple[Event, ...]) -> None:
    """I33: also those of branches inside it. The other branch goes on with its own."""
    step = began[-1].step  # type: ignore[attr-defined]
    other = StepStarted(step="fan#1.b/b#1", node="b", attempt=1)
    begun = (replace(BEGUN, step=step), replace(BEGUN, step=other.step))
    run = then(held(), TWO, *began, other, *begun)
    lost, over = with_lost_calls(run, (OVER,))
    assert isinstance(lost, CallLost)
    assert (lost.step, lost.call, over) == (step, "m1", OVER)
    assert then(run, lost).open_calls == 1
    with pytest.raises(IllegalEvent, match="leaves calls open: m1"):
        then(run, OVER)


def test_an_answer_to_another_try_does_not_count() -> None:
    """I30: a try never comes back, so an old answer is not taken for a new one."""
    again = CallStarted(step="a#1", attempt=1, call="m1", number=2)
    run = then(held(), started(), again)
    with pytest.raises(IllegalEvent, match="try 1 of call m1 is not open"):
        then(run, CallFinished(step="a#1", attempt=1, call="m1", number=1, status=CallStatus.OK))


def test_only_a_lost_call_that_must_not_be_repeated_is_in_doubt() -> None:
    """I31: doubt is per call; model requests may be repeated."""
    model = CallStarted(step="a#1", attempt=1, call="m2", number=1)
    lost = (CallLost(step="a#1", call="m1", number=1), CallLost(step="a#1", call="m2", number=1))
    calls = then(calling(), model, *lost).open_steps["a#1"].calls
    assert calls is not None
    assert dict(calls.lost) == {"m1": 1}


def test_a_hold_is_not_written_while_a_call_is_under_way() -> None:
    """A call may have begun since the hold was asked for: its own decision looks once more."""
    run, hold = then(held(), started()), AttemptHeld(step="a#1", attempt=1, reason="pause")
    assert hold_attempt(run, hold, {"m1"}) == ()
    assert hold_attempt(run, hold, set()) == (hold,)


@pytest.mark.parametrize(
    "decide",
    [
        lambda run: start_call(run, CallStarted(step="a#1", attempt=1, call="m2", number=1)),
        lambda run: finish_call(
            run, CallFinished(step="a#1", attempt=1, call="m1", number=1, status=CallStatus.OK)
        ),
        lambda run: lose_call(run, CallLost(step="a#1", call="m1", number=1), 1),
        lambda run: hold_attempt(run, AttemptHeld(step="a#1", attempt=1, reason="pause"), set()),
    ],
    ids=["start", "finish", "lose", "hold"],
)
@pytest.mark.parametrize(
    "end",
    [
        (AttemptHeld(step="a#1", attempt=1, reason="limit"),),
        (finished(),),
        (RunClaimed(token=2, worker="w2", lost=True),),
        (AttemptInterrupted(step="a#1", attempt=1, why="late"), started(attempt=2)),
    ],
    ids=["held", "finished", "taken over", "tried anew"],
)
def test_nothing_is_decided_about_the_calls_of_an_attempt_that_is_over(
    decide: Callable[[Run], Sequence[Event]], end: Sequence[Event]
) -> None:
    """I33: judged by the run as it is when it would be written, so before anything is sent."""
    before = calling()
    with pytest.raises(Refused) as refused:
        decide(then(before, *with_lost_calls(before, end)))
    assert refused.value.code == "attempt_over"


def test_a_fork_is_in_doubt_about_the_open_call_of_a_branch_that_must_not_be_repeated() -> None:
    """I31: it may have been made. Whoever forks the run has not decided to make it again."""
    begun = replace(BEGUN, step="fan#1.a/a#1")
    run = then(held(), TWO, BEGUN_IN_A, begun)
    forked = RunForked(parent="r", parent_seq=4, parent_hash="00", by="ann")
    child = then(run, *with_lost_calls(run, (forked,)))
    calls = child.open_steps["fan#1.a/a#1"].calls
    assert calls is not None
    assert dict(calls.lost) == {"m1": 1}
    assert (child.open_calls, doubtful_step(child)) == (0, "fan#1.a/a#1")


def test_a_fork_leaves_the_open_questions_of_its_parent_to_it() -> None:
    """The gate is the parent's: the fork withdraws nothing, and folds although the attempt was not held."""
    asked = replace(ASKED, gate="fan#1.a/a#1:approve")
    run = then(held(), TWO, BEGUN_IN_A, asked)
    forked = RunForked(parent="r", parent_seq=4, parent_hash="00", by="ann")
    assert [*with_lost_calls(run, (forked,))] == [forked]
    assert then(run, forked).gates == {}
    claimed = RunClaimed(token=2, worker="w2", lost=True)
    assert [type(event) for event in with_lost_calls(run, (claimed,))] == [GateWithdrawn, RunClaimed]
