"""What a holder does next: the path, and whose step it is."""

from __future__ import annotations

import pytest

from onward.machine.definition import Definition
from onward.machine.plan.action import Append, Execute, Sleep, Stop
from onward.machine.plan.planner import NO_MORE, plan
from onward.model.events import (
    AttemptInterrupted,
    Event,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunInterrupted,
    StepFinished,
    StepStarted,
)
from onward.model.result import Result
from onward.model.run import AttemptState, RunStatus
from onward.pipeline.build import build
from tests.machine.play import ALIVE, DEAD, NO_ONE, Play, define

TWO = "a [type=tool]; b [type=tool]; start -> a -> b -> exit"
ONCE = "a [type=tool, repeatable=false]; start -> a -> exit"


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def test_a_line_of_steps_is_walked_to_the_exit() -> None:
    """P7, D21, D26, D27: begin at the start, one step after the other, stop at the exit."""
    play = Play(TWO)
    assert play.started.step == "a#1"
    play.succeed()
    assert play.started.step == "b#1"
    assert play.succeed() == Stop((RunCompleted(),))
    assert play.path == ["start", "a", "b", "exit"]
    assert play.run.status is RunStatus.COMPLETED


def test_a_finished_step_and_the_next_start_are_one_append() -> None:
    """Design §2: the end of a step, the chosen edge and the next start are written together."""
    play = Play(TWO)
    before = len(play.log)
    play.succeed()
    assert kinds(play.events[before:]) == ["StepFinished", "StepStarted"]
    finished = play.events[before]
    assert isinstance(finished, StepFinished)
    assert finished.next is not None
    assert finished.next.to == "b"


def test_the_final_checkpoint_is_the_exits() -> None:
    """C6: the last checkpoint names the exit, and the run ends in the same append. D27, D39."""
    play = Play(TWO)
    play.succeed()
    before = len(play.log)
    play.succeed()
    assert kinds(play.events[before:]) == ["StepFinished", "StepFinished", "RunCompleted"]
    last = play.events[-2]
    assert isinstance(last, StepFinished)
    assert (last.node, last.attempt, last.next) == ("exit", 1, None)


def test_a_resumed_run_goes_on_behind_the_last_finished_step() -> None:
    """C5: what is stored is where to go on, so a finished step is never run again."""
    play = Play(TWO)
    play.succeed()
    play.claim()
    assert play.started.step == "b#1"
    assert play.path == ["start", "a"]


def test_a_run_that_died_before_its_first_step_begins_at_the_start() -> None:
    """O4: creation alone is enough to go on from."""
    play = Play(TWO, claim=False)
    play.claim()
    assert play.started.step == "a#1"


def test_a_node_that_the_pipeline_lost_stops_the_run() -> None:
    play = Play(TWO)
    play.definition = define("b [type=tool]; start -> b -> exit")
    stop = play.claim()
    assert isinstance(stop, Stop)
    [failed] = stop.events
    assert isinstance(failed, RunFailed)
    assert failed.reason == "pipeline_error"
    assert "'a'" in failed.detail


def test_a_plan_for_a_stopped_run_is_nothing() -> None:
    play = Play(TWO)
    play.pause(DEAD)
    assert play.go() is NO_MORE


def test_start_routes_on_its_own_outcome() -> None:
    """D25: edges are chosen with the context as it is after the step, the engine's keys included. D38."""
    play = Play(
        'a [type=tool]; b [type=tool]; start -> a [condition="context.outcome=success"]; start -> b; '
        "a -> exit; b -> exit"
    )
    assert play.started.node == "a"


def test_a_step_open_under_my_token_is_mine_and_not_to_be_planned() -> None:
    """Design §5: with my token it is under way here; to start it again would be to do it twice. H14."""
    play = Play(TWO)
    with pytest.raises(AssertionError, match="a#1 is being executed under token 1"):
        plan(play.definition, play.run, now_us=play.now_us)


def test_a_step_open_under_an_older_token_is_abandoned_and_made_again_with_its_number() -> None:
    """Design §5, K2: an older token means nobody works on it; a crash keeps the attempt's number. H14."""
    play = Play("a [type=tool, max_retries=1]; start -> a -> exit")
    play.result(Result.retry("busy"))
    play.now_us += 10_000_000
    play.go()
    assert play.started.attempt == 2
    play.claim()
    assert (play.started.step, play.started.attempt) == ("a#1", 2)


def test_a_crash_does_not_spend_retries() -> None:
    """Design §5: max_retries counts results, not deaths of owners. H15."""
    play = Play("a [type=tool, max_retries=1]; start -> a -> exit")
    play.claim()
    play.claim("third")
    assert play.run.open_steps["a#1"].retries_spent == 0
    assert isinstance(play.result(Result.retry("busy")), Sleep)


def test_an_interrupted_attempt_is_made_again() -> None:
    play = Play(TWO)
    play.go([AttemptInterrupted(step="a#1", attempt=1, why="stopped")], stop_reason="signal")
    play.resume(NO_ONE)
    assert (play.started.step, play.started.attempt) == ("a#1", 1)


def test_a_step_that_must_not_be_repeated_is_in_doubt_when_its_owner_dies() -> None:
    """I11: begun, not finished, not repeatable: a person decides, whatever happens."""
    play = Play(ONCE)
    assert play.started.repeatable is False
    stop = play.claim()
    assert isinstance(stop, Stop)
    [interrupted] = stop.events
    assert isinstance(interrupted, RunInterrupted)
    assert interrupted.reason == "in_doubt"
    assert "a#1" in interrupted.detail
    assert (play.run.status, play.run.open_steps["a#1"].state) == (RunStatus.INTERRUPTED, AttemptState.OPEN)


def test_whether_a_step_may_be_repeated_is_what_was_recorded_when_it_began() -> None:
    play = Play(ONCE)
    play.definition = define("a [type=tool]; start -> a -> exit")
    play.claim()
    assert play.run.reason == "in_doubt"


def test_a_retry_waits_for_its_time() -> None:
    play = Play("a [type=tool, max_retries=2]; start -> a -> exit")
    action = play.result(Result.retry("busy"))
    assert action == Sleep(play.now_us + 200_000, "a#1")
    play.now_us += 199_999
    assert play.go() == Sleep(play.now_us + 1, "a#1")
    play.now_us += 1
    play.go()
    assert (play.started.step, play.started.attempt) == ("a#1", 2)


def test_a_plan_depends_on_nothing_but_what_it_is_given() -> None:
    play = Play(TWO, claim=False)
    play.write(RunClaimed(token=1, worker="w"))
    first = plan(play.definition, play.run, now_us=5)
    assert first == plan(play.definition, play.run, now_us=5)
    assert isinstance(first, Append)
    [passed] = first.events
    assert isinstance(passed, StepFinished)
    assert (passed.step, passed.node) == ("start#1", "start")


def test_an_effect_is_written_down_before_it_is_done() -> None:
    """Design §2: an attempt is on disk before its work begins."""
    play = Play(TWO)
    assert play.action == Execute(StepStarted(step="a#1", node="a", attempt=1))
    assert play.last == play.started


def test_a_run_whose_start_is_known_only_by_its_name_begins_there() -> None:
    source = "digraph g { start; a [prompt=p]; end; start -> a -> end }"
    play = Play(Definition(build(source, file="<test>").graph))
    play.succeed()
    assert (play.path, play.run.status) == (["start", "a", "end"], RunStatus.COMPLETED)


def test_a_pending_cancel_wins_over_arrival() -> None:
    play = Play(TWO)
    play.succeed()
    play.cancel(ALIVE)
    play.succeed()
    assert play.run.status is RunStatus.CANCELLED
