"""Instructions: given by anyone, taken by the next agent step, used up when that has finished."""

from __future__ import annotations

import pytest

from onward.errors import InvalidInput, Refused
from onward.machine.decide.requests import STEERING_CHARACTERS_MAX, STEERING_PENDING_MAX, decide_steer
from onward.machine.fold.changes import IllegalEvent
from onward.machine.fold.snapshot import decode_run, encode_run
from onward.machine.lifecycle import apply
from onward.model.events import RunCompleted, SteeringGiven, StepStarted
from onward.model.run import Run
from tests.machine.play import NO_ONE, Play, created

LINE = "t [type=tool]; a [prompt=p, max_retries=1]; b [prompt=p]; start -> t -> a -> b -> exit"


def told(play: Play) -> tuple[str, ...]:
    """What the attempt under way is told."""
    return play.run.open_steps[play.started.step].steering


def steer(play: Play, *texts: str) -> None:
    for text in texts:
        play.write(*decide_steer(play.run, NO_ONE, text=text, by="ann"))


def test_the_next_agent_step_takes_all_that_waits_and_a_tool_takes_nothing() -> None:
    play = Play(LINE)
    steer(play, "be brief", "in French")
    assert (play.started.node, told(play)) == ("t", ())
    play.succeed()
    assert (play.started.steering, told(play)) == (2, ("be brief", "in French"))
    assert play.run.steering == ()
    play.succeed()
    assert (play.started.node, told(play)) == ("b", ())
    assert play.refolded() == play.run == decode_run(encode_run(play.run))


def test_an_attempt_that_was_cut_off_is_told_again_and_what_came_since_as_well() -> None:
    play = Play(LINE)
    play.succeed()
    steer(play, "too late for this attempt")
    assert told(play) == ()
    play.claim()
    assert told(play) == ("too late for this attempt",)
    steer(play, "more")
    play.claim("third")
    assert (play.started.steering, told(play)) == (1, ("too late for this attempt", "more"))
    assert play.refolded() == play.run


def test_a_retry_is_told_again() -> None:
    play = Play(LINE)
    steer(play, "be brief")
    play.succeed()
    play.fail(retryable=True)
    play.now_us += 60_000_000
    play.go()
    assert (play.started.attempt, play.started.steering, told(play)) == (2, 0, ("be brief",))


def test_a_resume_from_elsewhere_gives_back_what_the_left_step_had_taken() -> None:
    play = Play(LINE)
    steer(play, "first")
    play.succeed()
    steer(play, "second")
    play.resume(from_node="b")
    assert (play.started.node, told(play)) == ("b", ("first", "second"))


def test_a_step_cannot_take_more_than_there_is() -> None:
    play = Play(LINE)
    play.succeed()
    with pytest.raises(IllegalEvent, match="takes 2 instructions, and 0 are waiting"):
        play.write(StepStarted(step="x#1", node="x", attempt=1, steering=2))


@pytest.mark.parametrize(
    ("text", "says"),
    [("  ", "is empty"), ("x" * (STEERING_CHARACTERS_MAX + 1), "at most"), (7, "use a string")],
)
def test_what_is_no_instruction_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        decide_steer(created(), NO_ONE, text=text, by="ann")


def test_instructions_that_nobody_takes_do_not_pile_up() -> None:
    play = Play(LINE)
    steer(play, *(f"say {number}" for number in range(STEERING_PENDING_MAX)))
    with pytest.raises(Refused, match="no agent step has received"):
        steer(play, "one more")


def test_a_run_that_is_over_takes_no_instruction() -> None:
    run: Run = Play("start -> exit").run
    with pytest.raises(Refused, match="no agent step left"):
        decide_steer(run, NO_ONE, text="be brief", by="ann")
    assert run.status == "completed"
    with pytest.raises(IllegalEvent):
        apply(run, SteeringGiven(text="x", by="ann"), run_id="r", at_us=1, token=run.token)
    assert isinstance(Play("start -> exit").last, RunCompleted)
