"""How a run ends: at the exit, where its graph ends, or stopped because no edge can be taken."""

from __future__ import annotations

import pytest

from onward.errors import Refused
from onward.machine.fold.changes import IllegalEvent
from onward.machine.plan.route import DETAIL_MAX
from onward.model.events import RunCompleted, RunFailed, StepRouted, Transition
from onward.model.result import Result
from onward.model.run import RunStatus
from tests.machine.play import NO_ONE, Play, define
from tests.machine.test_branches import BROKEN, land

A = "a [type=tool]; b [type=tool]; start -> a; b -> exit; "
STUCK = A + 'a -> b [condition="context.flag=on"]; a -> exit [condition="outcome=fail"]'
MENDED = A + 'a -> b [condition="context.flag=on"]; a -> exit [condition="outcome=success"]'
BRANCHES = "fan [shape=component]; join [shape=tripleoctagon]; start -> fan; join -> exit; "


def stuck(body: str = STUCK) -> Play:
    """A run whose first step finished, and none of its edges can be taken."""
    play = Play(body)
    play.succeed()
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "no_way_on")
    return play


# -- stopped -------------------------------------------------------------------------------------------


def test_a_step_whose_edges_are_all_closed_fails_the_run() -> None:
    """I38: it used to end as completed."""
    play = stuck()
    assert isinstance(play.last, RunFailed)
    assert play.last.step == "a#1"
    assert play.path == ["start", "a"], "the step that finished stays finished"


def test_every_edge_its_condition_and_what_it_saw_are_told() -> None:
    """I38."""
    assert stuck().run.detail == (
        "step a#1 finished as success, and none of its 2 edges can be taken: "
        "a -> b needs context.flag=on; a -> exit needs outcome=fail. "
        'It found context.flag (not set); outcome="success".'
    )


def test_what_is_told_is_short_however_many_edges_there_are() -> None:
    many = " ".join(f'a -> n{i} [condition="context.key_{i}={"v" * 80}"];' for i in range(50))
    nodes = " ".join(f"n{i} [type=tool]; n{i} -> exit;" for i in range(50))
    play = Play(f"a [type=tool]; start -> a; {nodes} {many}")
    play.succeed(key_0="x" * 10_000)
    assert play.run.reason == "no_way_on"
    assert len(play.run.detail) <= DETAIL_MAX
    assert "none of its 50 edges" in play.run.detail
    assert "x" * 100 not in play.run.detail


def test_an_unmet_goal_gate_does_not_hide_that_there_is_no_way_on() -> None:
    """The gate is judged where a run would be completed; this one is not there yet."""
    play = Play(
        "a [type=tool, goal_gate=true, retry_target=a]; b [type=tool]; start -> a; "
        'a -> b [condition="outcome=fail"]; b -> exit [condition="context.flag=on"]'
    )
    play.fail()
    play.succeed()
    assert play.run.reason == "no_way_on"


@pytest.mark.parametrize("came", ["success", "fail"])
def test_a_conditional_without_an_edge_for_what_comes_in_fails_the_run(came: str) -> None:
    """I38."""
    other = {"success": "fail", "fail": "success"}[came]
    body = f'a [type=tool]; c [shape=diamond]; start -> a -> c; c -> exit [condition="outcome={other}"]'
    play = Play(body)
    play.result(Result() if came == "success" else Result.fail("broken", retryable=False))
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "no_way_on")
    assert f"c -> exit needs outcome={other}" in play.run.detail


def test_words_at_a_gate_that_no_edge_takes_fail_the_run() -> None:
    play = Play(
        "g [shape=hexagon, human.type=freeform]; b [type=tool]; start -> g; b -> exit; "
        'g -> b [condition="context.human.gate.text=go"]; g -> exit [condition="context.human.gate.text=end"]'
    )
    play.answer("neither")
    play.claim()
    assert play.run.reason == "no_way_on"
    play.resume(NO_ONE, action="retry")
    assert list(play.run.gates) == ["g#2"], "the question is asked again"


def test_a_start_whose_edges_are_all_closed_fails_the_run() -> None:
    play = Play('start -> exit [condition="context.flag=on"]')
    assert play.run.reason == "no_way_on"


def test_a_fan_out_whose_edges_are_all_closed_fails_the_run() -> None:
    play = Play(BRANCHES + 'a [type=tool]; fan -> a [condition="context.k=1"]; a -> join')
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "no_way_on")
    assert "fan -> a needs context.k=1" in play.run.detail


def test_a_branch_whose_edges_are_all_closed_has_failed() -> None:
    """I38."""
    play = Play(
        BRANCHES + "a [type=tool]; b [type=tool]; fan -> a; fan -> b -> join; "
        'a -> join [condition="context.flag=on"]'
    )
    land(play, "fan#1.a/a#1")
    land(play, "fan#1.b/b#1")
    results = {one["id"]: one for one in play.run.context["parallel.results"]}
    assert {name: one["status"] for name, one in results.items()} == {"a": "fail", "b": "success"}
    assert "a -> join needs context.flag=on" in results["a"]["failure_reason"]
    assert play.run.status is RunStatus.COMPLETED


# -- going on ------------------------------------------------------------------------------------------


def test_a_mended_pipeline_continues_after_the_finished_step() -> None:
    """Finished work is never repeated."""
    play = stuck()
    play.definition = define(MENDED)
    play.resume(NO_ONE)
    assert [event.next.to for event in play.events if isinstance(event, StepRouted)] == ["exit"]
    assert play.run.status is RunStatus.COMPLETED
    assert play.path == ["start", "a", "exit"]


def test_a_mended_edge_is_chosen_by_the_recorded_label_and_suggestion() -> None:
    play = Play(A + 'a -> b [condition="context.flag=on"]')
    play.succeed(suggest=["b"])
    play.definition = define(A + "a -> b; a -> exit [weight=9]")
    play.resume(NO_ONE)
    assert play.started.step == "b#1"


def test_a_mended_edge_that_restarts_the_run_restarts_it() -> None:
    play = stuck()
    play.definition = define(A + "a -> b [loop_restart=true]")
    play.resume(NO_ONE)
    assert type(play.action).__name__ == "Restart"


def test_a_resume_that_would_stop_there_again_is_refused_with_the_ways_out() -> None:
    play = stuck()
    before = len(play.events)
    with pytest.raises(Refused, match=r"--accept-changes.*--retry.*--from") as refused:
        play.resume(NO_ONE)
    assert refused.value.code == "no_way_on"
    assert len(play.events) == before


def test_a_retry_executes_the_finished_step_again_as_its_next_visit() -> None:
    play = stuck()
    play.resume(NO_ONE, action="retry")
    assert play.started.step == "a#2"
    play.succeed(flag="on")
    assert play.started.step == "b#1"


def test_a_retry_of_another_step_is_refused() -> None:
    with pytest.raises(Refused, match="b"):
        stuck().resume(NO_ONE, action="retry", step="b")


@pytest.mark.parametrize("action", ["skip", "continue"])
def test_a_finished_step_can_be_neither_skipped_nor_continued(action: str) -> None:
    with pytest.raises(Refused, match=rf"a#1 has finished, so there is nothing to {action}.*--from"):
        stuck().resume(NO_ONE, action=action)


def test_a_node_that_only_routes_is_not_retried() -> None:
    play = Play('c [shape=diamond]; start -> c; c -> exit [condition="context.flag=on"]')
    with pytest.raises(Refused, match=r"c only routes.*--from"):
        play.resume(NO_ONE, action="retry")


def test_a_person_may_continue_elsewhere_or_give_the_run_up() -> None:
    play = stuck()
    play.resume(NO_ONE, from_node="b")
    assert play.started.step == "b#1"
    play = stuck()
    play.resume(NO_ONE, action="abort")
    assert play.run.status is RunStatus.CANCELLED


def test_a_skipped_step_without_a_way_on_stops_the_run_there() -> None:
    play = Play(STUCK.replace("outcome=fail", "outcome=never"))
    play.fail()
    play.resume(NO_ONE, action="skip")
    assert play.run.reason == "no_way_on"
    assert play.run.stopped_step == "a#1"


def test_a_pause_is_honoured_before_no_way_on() -> None:
    play = Play(STUCK)
    play.pause()
    play.succeed()
    assert play.run.status is RunStatus.PAUSED
    play.resume(NO_ONE)
    assert play.run.reason == "no_way_on"


def test_the_fold_of_a_mended_run_is_the_same_for_every_reader() -> None:
    play = stuck()
    play.definition = define(MENDED)
    play.resume(NO_ONE)
    assert play.refolded() == play.run


# -- dead ends -----------------------------------------------------------------------------------------


def test_a_run_that_ends_where_its_graph_ends_is_completed_and_says_where() -> None:
    """I38: no edge leads away from the node at all, so nothing was left undone."""
    play = Play('a [type=tool]; b [type=tool]; start -> a -> b; a -> exit [condition="outcome=fail"]')
    play.succeed()
    play.succeed()
    assert play.last == RunCompleted(ended_at="b")
    assert (play.run.status, play.run.ended_at_node) == (RunStatus.COMPLETED, "b")


def test_a_run_that_reached_the_exit_says_nothing_of_a_dead_end() -> None:
    play = Play("a [type=tool]; start -> a -> exit")
    play.succeed()
    assert play.last == RunCompleted()
    assert (play.run.reason, play.run.ended_at_node) == ("", None)


def test_goal_gates_are_judged_at_a_dead_end() -> None:
    play = Play(
        "a [type=tool, goal_gate=true, retry_target=a]; b [type=tool]; start -> a; "
        'a -> b [condition="outcome=fail"]; a -> exit [condition="outcome=success"]'
    )
    play.fail()
    play.succeed()
    assert play.started.step == "a#2", "back to the gate that is unmet"


def test_a_failure_does_not_become_a_success_at_a_dead_end() -> None:
    play = Play('a [type=tool]; c [shape=diamond]; start -> a -> c; start -> exit [condition="outcome=fail"]')
    play.fail()
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "step_failed")


def test_branches_of_which_none_succeeds_and_that_meet_nowhere_fail_the_run() -> None:
    play = Play(
        "fan [shape=component, join_policy=first_success]; a [type=tool]; b [type=tool]; start -> fan; "
        'fan -> a; fan -> b; start -> exit [condition="outcome=fail"]'
    )
    land(play, "fan#1.a/a#1", BROKEN)
    land(play, "fan#1.b/b#1", BROKEN)
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "step_failed")
    assert play.run.detail == "step fan#1: no branch succeeded"


def test_branches_that_meet_nowhere_end_the_run_at_their_fan_out() -> None:
    play = Play(
        "fan [shape=component]; a [type=tool]; b [type=tool]; start -> fan; "
        'fan -> a; fan -> b; start -> exit [condition="outcome=fail"]'
    )
    land(play, "fan#1.a/a#1")
    land(play, "fan#1.b/b#1")
    assert play.last == RunCompleted(ended_at="fan")


def test_a_step_is_routed_by_nobody_but_the_end_of_its_line() -> None:
    """The event is refused where a line has somewhere to go."""
    play = Play("a [type=tool]; b [type=tool]; start -> a -> b -> exit")
    play.succeed()
    with pytest.raises(IllegalEvent, match="a#1"):
        play.write(StepRouted(step="a#1", next=Transition(to="exit", reason="weight")))
