"""Ceilings of loops, and goal gates."""

from __future__ import annotations

import pytest

from onward.errors import Refused
from onward.machine.definition import AGENT_VISITS, MAX_VISITS
from onward.machine.plan.branch import visited_too_often
from onward.model.events import Event, GoalRedirected, RunInterrupted, StepStatus
from onward.model.result import Result
from onward.model.run import RunStatus
from tests.machine.play import NO_ONE, Play


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def test_a_node_is_visited_no_more_often_than_the_graph_allows() -> None:
    """C10, design §5: visits are part of the state, so a restart does not reset them."""
    play = Play('a [type=tool]; max_visits=3; start -> a; a -> a; a -> exit [condition="outcome=fail"]')
    play.succeed()
    play.claim()
    play.succeed()
    assert play.started.step == "a#3"
    play.succeed()
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "pipeline_error")
    assert "visited 3 times (max_visits)" in play.run.detail
    play.resume(NO_ONE)
    assert play.run.reason == "pipeline_error"


FAN, JOIN = "shape=component", "shape=tripleoctagon"
ENDLESS = 'a [prompt=x%s]; %s start -> a; a -> a; a -> exit [condition="outcome=fail"]'


def visited(play: Play) -> int:
    """Succeed at every visit until the run stops; returns how often the node was visited."""
    while play.run.status is RunStatus.RUNNING:
        play.succeed()
    return play.run.visits.get("a", 0)


def test_a_node_that_asks_a_model_is_visited_25_times_until_a_person_allows_more() -> None:
    """Design §14: a ceiling that every run has, counted through resumes."""
    play = Play(ENDLESS % ("", ""))
    assert visited(play) == AGENT_VISITS == 25
    assert (play.run.status, play.run.reason) == (RunStatus.INTERRUPTED, "limit")
    assert "node a was visited 25 times" in play.run.detail
    with pytest.raises(Refused, match=r"--raise run\.visits=50") as refused:
        play.resume(NO_ONE)
    assert refused.value.code == "limit_exceeded"
    play.resume(NO_ONE, raises=(("run", "visits", 30),))
    assert visited(play) == 30
    assert (play.run.reason, play.refolded()) == ("limit", play.run)
    play.resume(NO_ONE, from_node="exit")
    assert play.run.status is RunStatus.COMPLETED


@pytest.mark.parametrize(
    ("branch", "asks"),
    [
        ("f -> a -> j; a [prompt=x]", True),
        (f"f -> g; g -> a; a -> k; k -> j; g [{FAN}]; k [{JOIN}]; a [prompt=x]", True),
        ("f -> a -> j; a [prompt=x, max_visits=40]", False),
        ("f -> a -> j; a [type=tool]", False),
    ],
)
def test_a_fan_out_whose_branches_ask_a_model_may_be_visited_as_often_as_a_node_that_does(
    branch: str, asks: bool
) -> None:
    """What is in its branches is there for the first time at each of its visits."""
    nodes = f"f [{FAN}]; j [{JOIN}]; b [type=tool]; start -> f -> b -> j; j -> f; "
    play = Play(f'{nodes} {branch}; j -> exit [condition="outcome=fail"]')
    node = play.definition.graph.nodes["f"]
    assert visited_too_often(play.definition, play.run, node, AGENT_VISITS - 1) is None
    stop = visited_too_often(play.definition, play.run, node, AGENT_VISITS)
    assert isinstance(stop, RunInterrupted) is asks


@pytest.mark.parametrize(
    ("node", "graph", "times"),
    [(", max_visits=40", "", 40), ("", "max_visits=60;", 60), (", max_visits=3", "max_visits=9;", 3)],
)
def test_what_the_pipeline_says_of_visits_counts_instead(node: str, graph: str, times: int) -> None:
    play = Play(ENDLESS % (node, graph))
    assert visited(play) == times
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "pipeline_error")
    play.resume(NO_ONE, raises=(("run", "visits", times + 2),))
    assert visited(play) == times + 2


def test_a_tool_and_a_simulated_agent_have_no_such_ceiling() -> None:
    assert visited(Play(ENDLESS.replace("prompt=x", "type=tool") % ("", ""))) == MAX_VISITS
    assert visited(Play(ENDLESS % ("", ""), simulation={})) == MAX_VISITS


def test_a_ceiling_of_one_visit_allows_one() -> None:
    play = Play("a [type=tool]; max_visits=1; start -> a -> exit")
    play.succeed()
    assert play.run.status is RunStatus.COMPLETED


def test_a_run_finishes_no_more_steps_than_the_graph_allows() -> None:
    """C10: a ceiling for the whole run."""
    play = Play('a [type=tool]; max_steps=3; start -> a; a -> a; a -> exit [condition="outcome=fail"]')
    play.succeed()
    assert play.started.step == "a#2"
    play.succeed()
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "pipeline_error")
    assert "finished 3 steps (max_steps)" in play.run.detail


def test_a_loop_of_conditionals_alone_comes_to_an_end() -> None:
    play = Play(
        "c [shape=diamond]; d [shape=diamond]; max_visits=5; start -> c -> d; d -> c; "
        'd -> exit [condition="outcome=fail"]'
    )
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "pipeline_error")
    assert play.path == ["start", *["c", "d"] * 5]


def test_a_revisited_node_has_a_step_of_its_own_and_the_newest_way_on() -> None:
    """K10: a loop's second pass is decided by what the second pass found."""
    play = Play(
        'a [type=tool]; b [type=tool]; start -> a; a -> b [condition="context.n=1"]; '
        'a -> exit [condition="context.n=2"]; b -> a'
    )
    play.succeed(n=1)
    assert play.started.step == "b#1"
    play.succeed()
    assert play.started.step == "a#2"
    play.claim()
    play.succeed(n=2)
    assert play.path == ["start", "a", "b", "a", "exit"]


GOAL = (
    "a [type=tool]; g [type=tool, goal_gate=true{}]; start -> a -> g -> exit; "
    'g -> exit [condition="outcome=fail"]'
)


@pytest.mark.parametrize("status", [StepStatus.SUCCESS, StepStatus.PARTIAL_SUCCESS])
def test_a_met_gate_lets_the_run_finish(status: StepStatus) -> None:
    """P11, D28: success and partial success both meet a gate."""
    play = Play(GOAL.format(""))
    play.succeed()
    play.result(Result(status=status))
    assert play.run.status is RunStatus.COMPLETED


def test_an_unmet_gate_without_a_target_fails_the_run_before_the_exit() -> None:
    """P10, D30, D32: gates are judged before the exit counts as reached."""
    play = Play(GOAL.format(""))
    play.succeed()
    play.fail()
    assert (play.run.status, play.run.reason, play.run.stopped_step) == (RunStatus.FAILED, "goal_unmet", "g")
    assert "goal gate g ended as fail" in play.run.detail
    assert play.path == ["start", "a", "g"]


def test_an_unmet_gate_sends_the_run_back_to_its_target() -> None:
    """D31, O20: the redirect is written down at once, with its count."""
    play = Play(GOAL.format(', retry_target="a"'))
    play.succeed()
    before = len(play.log)
    play.fail()
    assert kinds(play.events[before:]) == ["StepFinished", "GoalRedirected", "StepStarted"]
    redirect = play.events[before + 1]
    assert isinstance(redirect, GoalRedirected)
    assert (redirect.gate, redirect.next.to, redirect.next.reason) == ("g", "a", "goal_gate")
    assert (play.started.step, play.run.reroutes, play.run.root.edge) == ("a#2", 1, None)
    play.succeed()
    play.succeed()
    assert play.run.status is RunStatus.COMPLETED


def test_gates_are_judged_where_the_graph_ends() -> None:
    play = Play(
        'g [type=tool, goal_gate=true]; a [type=tool]; start -> g; g -> a [condition="outcome=fail"]; '
        'g -> exit [condition="outcome=success"]'
    )
    play.fail()
    play.succeed()
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "goal_unmet")


def test_the_number_of_redirects_survives_crashes_and_has_a_ceiling() -> None:
    """K11, C10: the budget is in the state, and resuming does not refill it."""
    play = Play("max_reroutes=2; " + GOAL.format(', retry_target="a"'))
    for _ in range(2):
        play.succeed()
        play.fail()
        play.claim()
    assert play.run.reroutes == 2
    play.succeed()
    play.fail()
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "goal_unmet")
    assert "after 2 redirects (max_reroutes)" in play.run.detail
    play.resume(NO_ONE)
    assert (play.started.node, play.run.reroutes) == ("g", 2)


def test_a_gate_that_is_never_run_again_stays_unmet() -> None:
    """A redirect that goes round the gate does not meet it."""
    play = Play(
        "max_reroutes=1; a [type=tool]; start -> g; g [type=tool, goal_gate=true, retry_target=a]; "
        'g -> a [condition="outcome=fail"]; g -> exit; a -> exit'
    )
    play.fail()
    play.succeed()
    assert play.started.step == "a#2"
    play.succeed()
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "goal_unmet")


def test_a_gate_that_was_met_before_a_crash_stays_met() -> None:
    """K9, D29: outcomes of all visited nodes are in the state."""
    play = Play("g [type=tool, goal_gate=true]; a [type=tool]; start -> g -> a -> exit")
    play.succeed()
    play.claim()
    play.succeed()
    assert play.run.status is RunStatus.COMPLETED


def test_a_gate_that_was_never_visited_does_not_block() -> None:
    """D29."""
    play = Play(
        "a [type=tool]; g [type=tool, goal_gate=true]; start -> a -> exit; "
        'a -> g [condition="outcome=fail"]; g -> exit'
    )
    play.succeed()
    assert play.run.status is RunStatus.COMPLETED


def test_resuming_an_unmet_goal_goes_back_to_the_gate() -> None:
    play = Play(GOAL.format(""))
    play.succeed()
    play.fail()
    play.resume(NO_ONE)
    assert play.started.step == "g#2"
    play.succeed()
    assert play.run.status is RunStatus.COMPLETED
