"""What the result of an attempt means for its step."""

from __future__ import annotations

import pytest

from onward.machine.plan.action import Sleep
from onward.model.events import AttemptFailed, StepFinished, StepStatus
from onward.model.result import Result
from onward.model.run import AttemptState, RunStatus
from tests.machine.play import NO_ONE, Play

RETRIED = "a [type=tool, max_retries=2{}]; b [type=tool]; start -> a -> b -> exit"


def finished(play: Play, node: str = "a") -> StepFinished:
    return next(e for e in reversed(play.events) if isinstance(e, StepFinished) and e.node == node)


def try_until_it_ends(play: Play, result: Result) -> int:
    """Give the same result again and again; returns how many attempts were made."""
    attempts = 1
    while isinstance(play.result(result), Sleep):
        play.now_us += 120_000_000
        play.go()
        attempts += 1
    return attempts


@pytest.mark.parametrize("status", [StepStatus.SUCCESS, StepStatus.PARTIAL_SUCCESS])
def test_a_result_is_written_whole(status: StepStatus) -> None:
    """D23."""
    play = Play("a [type=tool]; start -> a -> exit", {"list": [1], "kept": True})
    play.result(
        Result(
            status=status,
            context_updates={"list": [1, 2], "kept": True, "new": None},
            preferred_label="Go",
            suggested_next_ids=("exit",),
            notes="done",
        )
    )
    event = finished(play)
    assert (event.outcome.status, event.outcome.preferred_label) == (status, "Go")
    assert (event.outcome.suggested_next_ids, event.outcome.notes) == (("exit",), "done")
    assert (event.context, event.grown) == ({"new": None}, {"list": [2]})
    assert play.run.context["list"] == [1, 2]


def test_a_step_without_changes_stores_none() -> None:
    play = Play("a [type=tool]; start -> a -> exit", {"x": 1})
    play.succeed(x=1)
    assert (finished(play).context, finished(play).grown) == ({}, {})


def test_nobody_outside_keeps_a_hand_on_the_context() -> None:
    """K22: what a handler does to its objects after returning them changes nothing."""
    shared = [1]
    play = Play("a [type=tool]; b [type=tool]; start -> a -> b -> exit")
    play.succeed(x=shared)
    shared.append(2)
    assert play.run.context["x"] == [1]


@pytest.mark.parametrize(
    ("label", "suggested", "reason"), [("", (), "weight"), ("go", (), "label"), ("", ("b",), "suggested")]
)
def test_the_reason_for_an_only_edge_is_recorded_as_for_any_other(
    label: str, suggested: tuple[str, ...], reason: str
) -> None:
    play = Play("a [type=tool]; b [type=tool]; start -> a; a -> b [label=Go]; b -> exit")
    play.succeed(label=label, suggest=suggested)
    onward = finished(play).next
    assert onward is not None
    assert (onward.to, onward.reason) == ("b", reason)


def test_a_skipped_step_goes_on_by_the_outcome_before_it() -> None:
    """C21: skipping records no outcome, and conditions see the one before."""
    play = Play(
        "a [type=tool]; b [type=tool]; x [type=tool]; start -> a -> b; "
        'b -> x [condition="outcome=partial_success"]; b -> exit; x -> exit'
    )
    play.result(Result(status=StepStatus.PARTIAL_SUCCESS))
    play.result(Result(status=StepStatus.SKIPPED, context_updates={"k": 1}))
    assert play.started.node == "x"
    assert (play.run.context["k"], "b" in play.run.outcomes) == (1, False)


# -- retries -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [Result.retry("busy"), Result.fail("broken")])
def test_a_node_is_tried_as_often_as_it_says(result: Result) -> None:
    """P9, D33, D34, C1: RETRY and FAIL alike, max_retries times more."""
    play = Play(RETRIED.format(""))
    assert try_until_it_ends(play, result) == 3
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "step_failed")


def test_a_retry_is_written_with_its_time_and_reason() -> None:
    play = Play(RETRIED.format(""))
    action = play.result(Result.retry("busy"), jitter=0.0)
    assert play.last == AttemptFailed(
        step="a#1", attempt=1, status=StepStatus.RETRY, reason="busy", retry_at_us=play.now_us + 100_000
    )
    assert action == Sleep(play.now_us + 100_000, "a#1")


def test_a_failure_that_cannot_go_away_is_not_tried_again() -> None:
    play = Play(RETRIED.format(""))
    assert try_until_it_ends(play, Result.fail("bad request", retryable=False)) == 1


def test_a_graph_can_say_that_failures_are_final() -> None:
    """C1: the switch between the two readings of the dialect."""
    play = Play("retry_on_fail=false; " + RETRIED.format(""))
    assert try_until_it_ends(play, Result.fail("broken")) == 1
    play = Play("retry_on_fail=false; " + RETRIED.format(""))
    assert try_until_it_ends(play, Result.retry("busy")) == 3


def test_a_success_after_retries_goes_on() -> None:
    play = Play(RETRIED.format(""))
    play.result(Result.retry("busy"))
    assert play.run.retries.plain() == {"a": 1}
    play.now_us += 1_000_000
    play.go()
    play.succeed()
    assert (play.started.node, play.run.retries.plain()) == ("b", {})


def test_retries_spent_survive_a_crash() -> None:
    """O1, C16: the counter is in the log, so a restart does not give the node new tries."""
    play = Play(RETRIED.format(""))
    play.result(Result.retry("busy"))
    play.now_us += 1_000_000
    play.claim()
    assert (play.started.attempt, play.run.open_steps["a#1"].retries_spent) == (2, 1)
    assert try_until_it_ends(play, Result.retry("busy")) == 2


def test_every_visit_has_retries_of_its_own() -> None:
    play = Play('a [type=tool, max_retries=1]; start -> a; a -> a; a -> exit [condition="context.done=1"]')
    play.result(Result.retry("busy"))
    play.now_us += 1_000_000
    play.go()
    play.succeed()
    assert isinstance(play.result(Result.retry("busy")), Sleep)


# -- exhaustion ----------------------------------------------------------------------------------------


def test_exhausted_retries_can_count_as_partly_done() -> None:
    play = Play(RETRIED.format(", allow_partial=true"))
    assert try_until_it_ends(play, Result.retry("busy")) == 3
    outcome = finished(play).outcome
    assert (outcome.status, outcome.failure_reason) == (StepStatus.PARTIAL_SUCCESS, "")
    assert play.started.node == "b"


def test_a_failure_never_counts_as_partly_done() -> None:
    play = Play(RETRIED.format(", allow_partial=true"))
    try_until_it_ends(play, Result.fail("broken"))
    assert play.run.status is RunStatus.FAILED


def test_exhausted_retries_route_as_a_failure() -> None:
    """D37: after the last try the outcome chooses the way."""
    play = Play(
        "a [type=tool, max_retries=1]; b [type=tool]; start -> a -> exit; "
        'a -> b [condition="outcome=fail"]; b -> exit'
    )
    try_until_it_ends(play, Result.retry("busy"))
    assert play.started.node == "b"
    assert finished(play).outcome.failure_reason == "max retries exceeded: busy"


def test_a_failure_with_a_way_on_is_a_finished_step() -> None:
    play = Play(
        "a [type=tool]; b [type=tool]; start -> a -> exit; "
        'a -> b [condition="outcome=fail && context.why=disk"]; b -> exit'
    )
    play.result(
        Result(
            status=StepStatus.FAIL,
            failure_reason="no disk",
            context_updates={"why": "disk"},
            retryable=False,
        )
    )
    assert play.started.node == "b"
    assert (finished(play).outcome.failure_reason, play.run.context["outcome"]) == ("no disk", "fail")


def test_a_failure_without_a_way_on_stops_the_run_with_the_step_open() -> None:
    """O4: a failed run can be resumed, and the step that failed is tried again as another attempt."""
    play = Play(RETRIED.format(""))
    play.fail("no disk")
    assert (play.run.reason, play.run.detail, play.run.stopped_step) == (
        "step_failed",
        "step a#1: no disk",
        "a#1",
    )
    assert play.run.open_steps["a#1"].state is AttemptState.FAILED
    play.resume(NO_ONE)
    assert (play.started.step, play.started.attempt) == ("a#1", 2)
    assert try_until_it_ends(play, Result.retry("busy")) == 3


@pytest.mark.parametrize(
    ("result", "detail"),
    [
        (Result.retry("busy"), "step a#1: max retries exceeded: busy"),
        (Result.fail("", retryable=False), "step a#1: the step failed without giving a reason"),
    ],
)
def test_a_stopped_run_says_what_happened_to_the_step(result: Result, detail: str) -> None:
    play = Play("a [type=tool]; start -> a -> exit")
    play.result(result)
    assert play.run.detail == detail
