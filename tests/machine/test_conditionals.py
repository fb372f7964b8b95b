"""Conditional nodes: where the outcomes of others are routed."""

from __future__ import annotations

from typing import Any

import pytest

from onward.model.events import StepStatus
from onward.model.result import Result
from onward.model.run import RunStatus
from tests.machine.play import Play

BRANCH = (
    "a [type=tool]; c [shape=diamond]; good [type=tool]; bad [type=tool]; start -> a -> c; "
    'c -> good [condition="outcome=success"]; c -> bad [condition="outcome=fail"]; good -> exit; bad -> exit'
)


@pytest.mark.parametrize(("is_good", "node"), [(True, "good"), (False, "bad")])
def test_a_conditional_routes_the_outcome_that_came_in(is_good: bool, node: str) -> None:
    """P8, D42: a failure may go to a conditional, whose edges look at it."""
    play = Play(BRANCH)
    play.succeed() if is_good else play.fail()
    assert play.started.node == node
    assert play.run.outcomes["c"] == ("success" if is_good else "fail")


def test_a_conditional_hands_the_label_of_the_step_before_it_on() -> None:
    body = (
        "a [type=tool]; c [shape=diamond]; d [shape=diamond]; x [type=tool]; y [type=tool]; "
        "start -> a -> c -> d; d -> x [label=left]; d -> y [label=right]; x -> exit; y -> exit"
    )
    play = Play(body)
    play.succeed(label="Right")
    assert play.started.node == "y"


def test_a_conditional_does_not_route_by_a_label_of_long_ago() -> None:
    body = (
        "a [type=tool]; b [type=tool]; c [shape=diamond]; x [type=tool]; y [type=tool]; "
        "start -> a -> b -> c; c -> x [label=left]; c -> y [label=right]; x -> exit; y -> exit"
    )
    play = Play(body)
    play.succeed(label="right")
    play.succeed()
    assert play.started.node == "x"


@pytest.mark.parametrize("outcome", ["nonsense", "skipped", 1, ["fail"]])
def test_an_outcome_that_is_none_stops_the_run_at_a_conditional(outcome: Any) -> None:
    """A context that a person or a skipped step changed must not bring the planner down."""
    play = Play("a [type=tool]; c [shape=diamond]; start -> a -> c -> exit")
    play.result(Result(status=StepStatus.SKIPPED, context_updates={"outcome": outcome}))
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "pipeline_error")
    assert f"outcome={outcome!r}" in play.run.detail
