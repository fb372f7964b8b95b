"""Branches as plain values: what is begun beside what, what ends with what, and what a join makes of it."""

from __future__ import annotations

import pytest

from onward.machine.fold.changes import IllegalEvent
from onward.machine.plan.action import Sleep, Wait
from onward.machine.plan.results import finish
from onward.model.events import (
    AttemptInterrupted,
    BranchFinished,
    BranchPlan,
    Event,
    ParallelStarted,
    RunPaused,
    StepFinished,
    StepStarted,
)
from onward.model.gate import GateWithdrawn
from onward.model.result import Result
from onward.model.run import RunStatus
from tests.machine.events import finished, held, then
from tests.machine.play import ALIVE, Play, define

BROKEN = Result.fail("broken", retryable=False)
RACE = "join_policy=first_success"
NESTED = """inner [shape=component]; meet [shape=tripleoctagon]; ask [shape=hexagon]
  fan -> inner; inner -> a -> meet; inner -> b -> meet; meet -> join
  inner -> ask; ask -> meet [label=yes]; ask -> a [label=no]
  fan -> d -> join"""


def fan(edges: str, *, fan: str = "", join: str = "", **attrs: str) -> Play:
    """A fan-out, a join, and `edges` between them; single letters are tools."""
    letters = sorted({word for word in edges.replace(";", " ").split() if len(word) == 1} | {"z"})
    nodes = "; ".join(f"{name} [type=tool, {attrs.get(name, '')}]" for name in letters)
    pair = f"fan [shape=component, {fan}]; join [shape=tripleoctagon, {join}]"
    return Play(f"{pair}; {nodes}; start -> fan; {edges}; join -> z -> exit")


def land_of(play: Play, step: str, result: Result | None = None) -> list[Event]:
    came_to = result or Result.success()
    return finish(play.definition, play.run, step, came_to, now_us=play.now_us, jitter=0.5)


def land(play: Play, step: str, result: Result | None = None, *, stop_reason: str | None = None) -> None:
    """An effect beside others is done."""
    play.go(land_of(play, step, result), stop_reason=stop_reason)


def begun(play: Play) -> list[str]:
    assert isinstance(play.action, Wait), play.action
    return [start.step for start in play.action.starts]


def results(play: Play) -> dict[str, str]:
    return {result["id"]: result["status"] for result in play.run.context["parallel.results"]}


def test_as_many_effects_are_begun_as_there_is_room_for() -> None:
    play = fan("fan -> a -> join; fan -> b -> join; fan -> c -> join", fan="max_parallel=2")
    assert begun(play) == ["fan#1.a/a#1", "fan#1.b/b#1"]
    land(play, "fan#1.b/b#1")
    assert begun(play) == ["fan#1.c/c#1"]


def test_two_branches_to_one_node_keep_their_own_results_across_a_crash() -> None:
    """B0-7: what one has finished is not taken for the other's."""
    play = fan("fan -> a -> join; fan -> a")
    land(play, "fan#1.a.2/a#1", Result(context_updates={"said": "second"}))
    play.claim()
    assert begun(play) == ["fan#1.a/a#1"]
    land(play, "fan#1.a/a#1", Result(context_updates={"said": "first"}))
    said = {one["id"]: one["context"]["said"] for one in play.run.context["parallel.results"]}
    assert said == {"a": "first", "a.2": "second"}


def test_branches_of_branches_take_their_room_from_every_fan_out_around_them() -> None:
    play = fan(NESTED, fan="max_parallel=2")
    assert begun(play) == ["fan#1.d/d#1", "fan#1.inner/inner#1.a/a#1"]
    land(play, "fan#1.d/d#1")
    assert begun(play) == ["fan#1.inner/inner#1.b/b#1"]


def test_a_branch_may_not_open_its_own_fan_out_again() -> None:
    alone = 'start -> a [condition="context.alone=yes"]'
    play = fan(f'fan -> a -> join; a -> fan [condition="outcome=fail"]; fan -> b -> join; {alone}')
    land(play, "fan#1.a/a#1", BROKEN)
    assert begun(play) == [], "the other branch goes on"
    land(play, "fan#1.b/b#1")
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "pipeline_error")
    assert "a branch of fan leads back to it" in play.run.detail


def test_a_request_to_stop_waits_for_what_is_under_way_and_begins_nothing() -> None:
    play = fan("fan -> a -> c -> join; fan -> b -> join")
    land(play, "fan#1.a/a#1", stop_reason="signal")
    assert play.action == Wait()
    land(play, "fan#1.b/b#1", stop_reason="signal")
    assert play.last == RunPaused(reason="signal")


def test_a_pause_now_ends_what_is_under_way() -> None:
    play = fan("fan -> a -> join; fan -> b -> join")
    play.pause(after="now")
    assert play.go() == Wait(halt=("fan#1.a/a#1", "fan#1.b/b#1"))


def test_a_cancel_ends_what_is_under_way_before_the_run_is_let_go_of() -> None:
    """Whoever may work in its place begins when nothing of it is at work any more. H11."""
    play = fan("fan -> a -> join; fan -> b -> join")
    play.cancel(ALIVE)
    assert play.go() == Wait(halt=("fan#1.a/a#1", "fan#1.b/b#1"))
    for step in ("fan#1.a/a#1", "fan#1.b/b#1"):
        assert play.run.status is RunStatus.RUNNING
        play.go([AttemptInterrupted(step=step, attempt=1, why="cancelled by kim")])
    assert (play.run.status, play.run.open_steps) == (RunStatus.CANCELLED, {})


def test_a_retry_of_one_branch_is_waited_for_beside_the_others_and_then_alone() -> None:
    play = fan("fan -> a -> join; fan -> b -> join", a="max_retries=1")
    land(play, "fan#1.a/a#1", Result.retry("busy"))
    due = play.run.open_steps["fan#1.a/a#1"].retry_at_us
    assert isinstance(play.action, Wait)
    assert play.action.until_us == due
    assert play.go(land_of(play, "fan#1.b/b#1")) == Sleep(due or 0, "fan#1.a/a#1")


def test_what_cannot_be_routed_ends_its_branch_and_not_the_run() -> None:
    play = fan(
        'fan -> a -> pick; pick [shape=diamond]; pick -> join [condition="outcome=success"]; fan -> b -> join'
    )
    land(play, "fan#1.a/a#1", BROKEN)
    land(play, "fan#1.b/b#1")
    assert results(play) == {"a": "fail", "b": "success"}
    why = play.run.context["parallel.results"][0]["failure_reason"]
    assert "pick#1 finished as fail, and its only edge cannot be taken" in why


def test_the_first_success_ends_everything_inside_the_losers_from_within() -> None:
    """Attempts under way first, then branches of branches with their questions, then the branch itself."""
    play = fan(NESTED, fan=RACE)
    land(play, "fan#1.d/d#1")
    inside = ("fan#1.inner/inner#1.a/a#1", "fan#1.inner/inner#1.b/b#1")
    assert play.action == Wait(halt=inside)
    play.go([AttemptInterrupted(step=step, attempt=1, why="told to") for step in inside])
    assert results(play) == {"inner": "skipped", "d": "success"}
    assert GateWithdrawn(gate="fan#1.inner/inner#1.ask/ask#1") in play.events
    ends = [event.branch for event in play.events if isinstance(event, BranchFinished)]
    assert ends == [
        "fan#1.d",
        *(f"fan#1.inner/inner#1.{name}" for name in ("a", "b", "ask")),
        "fan#1.inner",
    ]
    assert (list(play.run.open_steps), play.run.gates) == (["z#1"], {})


def test_a_loser_that_an_earlier_owner_left_open_is_closed_with_the_race() -> None:
    play = fan("fan -> a -> join; fan -> b -> join", fan=f"{RACE}, max_parallel=1", a="repeatable=false")
    play.claim()
    assert begun(play) == ["fan#1.b/b#1"], "what is in doubt waits for a person while another can go on"
    land(play, "fan#1.b/b#1")
    assert AttemptInterrupted(step="fan#1.a/a#1", attempt=1, why="another branch won") in play.events
    assert results(play) == {"a": "skipped", "b": "success"}


@pytest.mark.parametrize(("join", "status"), [("", RunStatus.FAILED), ("retry_target=z", RunStatus.RUNNING)])
def test_if_every_branch_failed_so_has_the_fan_in(join: str, status: RunStatus) -> None:
    play = fan("fan -> a -> join; fan -> b -> join", fan=RACE, join=join)
    land(play, "fan#1.a/a#1", BROKEN)
    land(play, "fan#1.b/b#1", BROKEN)
    assert (play.run.outcomes["fan"], play.run.status) == ("fail", status)


def test_a_failed_race_goes_where_failures_of_the_fan_out_lead() -> None:
    play = fan("fan -> a -> join; fan -> b -> join", fan=f"{RACE}, retry_target=z")
    land(play, "fan#1.a/a#1", BROKEN)
    land(play, "fan#1.b/b#1", BROKEN)
    assert (play.started.step, "join" in play.run.outcomes) == ("z#1", False)


def test_a_failed_race_whose_fan_out_is_gone_from_the_pipeline_goes_on_at_the_join() -> None:
    play = fan("fan -> a -> join; fan -> b -> join", fan=RACE)
    play.definition = define(
        "a [type=tool]; b [type=tool]; z [type=tool]; join [shape=tripleoctagon, retry_target=z];"
        "start -> a -> b -> join -> z -> exit"
    )
    land(play, "fan#1.a/a#1", Result.success())
    assert begun(play) == ["fan#1.a/b#1"]
    land(play, "fan#1.b/b#1", BROKEN)
    land(play, "fan#1.a/b#1", BROKEN)
    assert (play.started.step, play.run.outcomes["join"]) == ("z#1", "fail")


def test_the_last_outcome_in_branches_counts_for_the_line_they_came_off() -> None:
    """Where two branches visited one node, the one that missed a goal counts; their counters go."""
    play = fan("fan -> a -> c -> join; fan -> b -> c", c="continue_on_fail=true")
    land(play, "fan#1.a/a#1")
    land(play, "fan#1.b/b#1")
    land(play, "fan#1.a/c#1", BROKEN)
    land(play, "fan#1.b/c#1")
    assert {at: play.run.outcomes[at] for at in "abc"} == {"a": "success", "b": "success", "c": "fail"}
    assert set(play.run.visits) == {"start", "fan", "join", "z"}
    assert set(play.run.executions) == {"z"}
    assert play.run == play.refolded()


def test_a_score_and_what_it_changed_are_part_of_what_a_branch_came_to() -> None:
    play = fan("fan -> a -> join; fan -> b -> join")
    land(play, "fan#1.a/a#1", Result.success(score=1))
    land(play, "fan#1.b/b#1", Result.success(score=2, seen=True))
    assert play.run.context["parallel.results"][1] == {
        "id": "b",
        "status": "success",
        "last_node": "b",
        "context": {"score": 2, "seen": True},
        "score": 2,
    }
    assert play.run.context["parallel.fan_in.best_id"] == "b"


@pytest.mark.parametrize(
    ("answer", "best"),
    [
        (Result(preferred_label="b"), "b"),
        (Result(suggested_next_ids=("nowhere", "b")), "b"),
        (Result(context_updates={"last_response": "b it is"}), "b"),
        (Result(context_updates={"last_response": "a or b"}), "a"),
    ],
)
def test_a_model_that_chooses_names_its_choice_or_the_rule_decides(answer: Result, best: str) -> None:
    play = fan("fan -> a -> join; fan -> b -> join", join='prompt="Which?"')
    land(play, "fan#1.a/a#1")
    land(play, "fan#1.b/b#1")
    play.result(answer)
    assert play.run.context["parallel.fan_in.best_id"] == best


def test_a_choice_without_candidates_or_that_failed_is_only_what_it_says() -> None:
    play = fan("fan -> a -> join; start -> join", join='prompt="Which?", continue_on_fail=true')
    land(play, "fan#1.a/a#1")
    play.fail()
    assert "parallel.fan_in.best_id" not in play.run.context


@pytest.mark.parametrize("results", [None, [], "none", [{"id": "a"}]])
def test_a_fan_in_without_results_has_nothing_to_choose_from(results: object) -> None:
    context = {} if results is None else {"parallel.results": results}
    play = Play("join [shape=tripleoctagon]; start -> join -> exit", context)
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "step_failed")
    assert "the context has no parallel.results" in play.run.detail


# -- what no log can say -------------------------------------------------------------------------------

TWO = ParallelStarted(
    step="fan#1",
    node="fan",
    branches=(BranchPlan(path="fan#1.a", to="a", edge=1), BranchPlan(path="fan#1.b", to="b", edge=2)),
    join="join",
    policy="wait_all",
    max_parallel=4,
)
BEGUN_IN_A = StepStarted(step="fan#1.a/a#1", node="a", attempt=1)


@pytest.mark.parametrize(
    ("before", "event"),
    [
        ([TWO], TWO),
        (
            [],
            ParallelStarted(
                step="x#1.y/fan#1", node="fan", branches=(), join=None, policy="", max_parallel=1
            ),
        ),
        ([], BranchFinished(branch="fan#1.a", status="success")),
        ([TWO], BranchFinished(branch="", status="success")),
        (
            [TWO, BranchFinished(branch="fan#1.a", status="fail")],
            BranchFinished(branch="fan#1.a", status="fail"),
        ),
        ([TWO], finished("fan#1")),
        ([TWO, BEGUN_IN_A], BranchFinished(branch="fan#1.a", status="success")),
        ([], StepStarted(step="nowhere#1.a/a#1", node="a", attempt=1)),
    ],
)
def test_a_log_that_contradicts_itself_about_branches_is_refused(before: list[Event], event: Event) -> None:
    run = then(held(), *before)
    with pytest.raises(IllegalEvent):
        then(run, event)


def test_a_join_says_where_the_run_goes_on() -> None:
    play = fan("fan -> a -> join; fan -> b -> join")
    land(play, "fan#1.a/a#1")
    land(play, "fan#1.b/b#1")
    joined = next(e for e in play.events if isinstance(e, StepFinished) and e.node == "fan")
    assert joined.next is not None
    assert (joined.next.to, joined.next.reason) == ("join", "join")
