"""What a step says and keeps: its answer and its artifacts in the log, and which try of an attempt it is."""

from __future__ import annotations

from onward.model.events import Artifact, StepFinished
from onward.model.result import Result
from tests.machine.play import Play

BODY = "a [type=tool, max_retries=1]; b [type=tool]; start -> a -> b -> exit"


def artifact(name: str) -> Artifact:
    return Artifact(name=name, size=1, hash=name, stored_at_us=1, step="a#1")


def test_what_a_step_stored_and_removed_is_part_of_its_outcome() -> None:
    play = Play(BODY)
    play.result(Result(artifacts={"x": artifact("x"), "y": artifact("y")}, contents={"x": b"1", "y": b"2"}))
    assert play.run.artifacts.plain() == {"x": artifact("x"), "y": artifact("y")}
    play.result(Result(artifacts={"x": None, "never": None, "y": artifact("z")}, response="an answer"))
    assert play.run.artifacts.plain() == {"y": artifact("z")}
    first, second = (e for e in play.events if isinstance(e, StepFinished) and e.node in ("a", "b"))
    assert (first.contents, second.response) == ({"x": b"1", "y": b"2"}, "an answer")
    assert play.refolded() == play.run


def test_an_attempt_that_failed_keeps_nothing() -> None:
    play = Play(BODY)
    play.result(Result(status=Result.retry("").status, artifacts={"x": artifact("x")}))
    assert not play.run.artifacts


def test_an_attempt_that_is_begun_again_is_another_try_and_the_next_attempt_is_a_first_one() -> None:
    play = Play(BODY)
    assert play.run.open_steps["a#1"].tries == 1
    play.claim()
    play.claim()
    assert (play.run.open_steps["a#1"].attempt, play.run.open_steps["a#1"].tries) == (1, 3)
    play.result(Result.retry("not yet"))
    play.now_us += 120_000_000
    play.go()
    assert (play.run.open_steps["a#1"].attempt, play.run.open_steps["a#1"].tries) == (2, 1)
