"""Steps that a resume needs: which of them a run has yet to finish."""

from __future__ import annotations

import pytest

from onward.machine.definition import QUEUE, STEER
from onward.machine.plan.route import unfinished_required
from onward.model.result import Result
from tests.machine.play import Play, define

BODY = """
    research [prompt=p, required_for_resume="intent=build"]; design [prompt=p]; fan [shape=component]
    a [prompt=p, required_for_resume=true]; b [prompt=p]; join [shape=tripleoctagon]; review [prompt=p]
    start -> research [condition="intent=build"]; start -> design; research -> design -> fan
    fan -> a; fan -> b; a -> join; b -> join; join -> review -> exit
    review -> research [condition="context.again=yes"]
"""


def missing(play: Play) -> tuple[str, ...]:
    return unfinished_required(play.definition, play.run)


def test_a_required_step_is_missing_until_it_has_finished() -> None:
    """While research is under way, a build has nothing to resume from."""
    play = Play(BODY, {"intent": "build"})
    assert (play.started.node, missing(play)) == ("research", ("research", "a"))
    play.succeed()
    assert missing(play) == ("a",)
    play.succeed()
    assert missing(play) == ("a",)
    play.end("fan#1.a/a#1", Result())
    assert missing(play) == ()


def test_a_step_that_failed_has_not_finished() -> None:
    play = Play(BODY, {"intent": "build"})
    play.fail("no network")
    assert missing(play) == ("research", "a")


def test_a_condition_that_does_not_hold_requires_nothing() -> None:
    play = Play(BODY, {"intent": "fix"})
    assert (play.started.node, missing(play)) == ("design", ("a",))


def test_a_step_that_the_way_of_a_run_has_passed_by_is_not_required_any_more() -> None:
    body = """one [prompt=p, required_for_resume=true]; two [prompt=p]; last [prompt=p]
        start -> two [condition="has_files=yes"]; start -> one -> two -> last -> exit"""
    assert missing(Play(body, {"has_files": "yes"})) == ()
    assert missing(Play(body, {"has_files": "no"})) == ("one",)


def test_a_step_that_may_come_once_more_stays_finished() -> None:
    play = Play(BODY, {"intent": "build"})
    play.succeed()
    play.succeed()
    play.end("fan#1.a/a#1", Result())
    play.end("fan#1.b/b#1", Result())
    assert (play.started.node, missing(play)) == ("review", ())


def test_a_node_that_the_pipeline_no_longer_has_asks_for_nothing() -> None:
    play = Play(BODY, {"intent": "build"})
    without = define("x [prompt=p, required_for_resume=true]; start -> x -> exit")
    assert unfinished_required(without, play.run) == ()


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [("", ("", QUEUE)), ("on_message=ask; while_running=steer", ("ask", STEER))],
)
def test_a_pipeline_says_what_messages_do(attributes: str, expected: tuple[str, str]) -> None:
    definition = define(f"{attributes}; a [prompt=p]; start -> a -> exit")
    assert (definition.on_message, definition.while_running) == expected
