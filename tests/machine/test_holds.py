"""Attempts that are held, waits that are too long, merges and restarts: what the plan makes of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from onward.machine.decide.calls import decide_lift, is_held_by_limit, limits_hit
from onward.machine.decide.requests import HolderView, decide_and_claim, decide_woken
from onward.machine.definition import Definition, is_simulated
from onward.machine.fold.changes import IllegalEvent
from onward.machine.fold.rows import notifications, tells
from onward.machine.fold.snapshot import encode_run
from onward.machine.plan.action import Execute, Merge, Restart, Sleep, Stop
from onward.machine.plan.branch import HOLDS_MAX, restarted
from onward.machine.plan.results import (
    ActionResult,
    AttemptCut,
    AttemptLeft,
    BranchesMerged,
    SuccessorCreated,
    WaitTooLong,
    events_of,
)
from onward.model.call import AttemptHeld, CallFinished, CallStarted, CallStatus, HoldsLifted, LimitHit
from onward.model.context import FrozenMap
from onward.model.events import (
    AttemptInterrupted,
    Conflict,
    Event,
    Merged,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunForked,
    RunInterrupted,
    RunPaused,
    RunQueued,
    RunResumed,
    RunWaiting,
    StepStatus,
    Tree,
    Workspace,
)
from onward.model.gate import Choice, GateDecided, GateOpened
from onward.model.result import Result
from onward.model.run import Run, Simulation
from onward.pipeline.build import build
from tests.machine.events import ASKED, YES, held, started, then
from tests.machine.play import NO_ONE, Play, define
from tests.machine.test_branches import fan, land, results

AGENT = "a [prompt=p]; b [type=tool]; start -> a -> b -> exit"
HIT = LimitHit(scope="run/r", measure="tokens", limit=100, spent=90, reserved=0, wanted=50)
ASKS = GateOpened(gate="a#1:ok?", node="a", text="May I?", choices=(YES, Choice(key="N", label="No", to="")))
TREE = Tree(commit="c1", head="h")


def hold(reason: str, **fields: object) -> AttemptHeld:
    return AttemptHeld(step="a#1", attempt=1, reason=reason, detail="too much", **fields)  # type: ignore[arg-type]


def on_hold(reason: str, *before: Event, **fields: object) -> Play:
    """An agent whose attempt stopped between two calls."""
    play = Play(AGENT)
    play.go((*before, hold(reason, **fields)))
    return play


def came_of(play: Play, *results: ActionResult) -> Sequence[Event]:
    return events_of(play.definition, play.run, results, now_us=play.now_us)


def test_an_attempt_that_a_provider_holds_sleeps_until_its_time_and_then_continues() -> None:
    play = on_hold("rate_limit", until_us=9_000_000)
    assert play.action == Sleep(9_000_000, "a#1")
    play.now_us = 9_000_000
    play.go()
    assert isinstance(play.action, Execute)
    assert play.started.attempt == 1


def test_a_provider_that_names_no_time_or_holds_too_often_stops_the_run() -> None:
    stopped = on_hold("rate_limit").last
    assert isinstance(stopped, RunInterrupted)
    assert (stopped.reason, stopped.detail) == ("rate_limit", "too much")
    often = on_hold("rate_limit", until_us=9_000_000)
    opened = replace(often.run.open_steps["a#1"], holds=HOLDS_MAX + 1)
    often.run = replace(often.run, open_steps={"a#1": opened})
    assert isinstance(often.go(), Stop)


def test_an_attempt_is_held_only_for_what_the_plan_knows_the_end_of() -> None:
    """Another reason would start the attempt again at once, and again."""
    with pytest.raises(IllegalEvent, match="no attempt is held for 'moon'"):
        on_hold("moon")


def test_a_limit_stops_the_run_until_it_is_lifted() -> None:
    play = on_hold("limit", limit=HIT)
    assert isinstance(stopped := play.last, RunInterrupted)
    assert (stopped.reason, stopped.detail) == ("limit", "step a#1: too much")
    assert (is_held_by_limit(play.run), limits_hit(play.run)) == (True, (HIT,))
    assert decide_lift(play.run, why="raised", by="ann") == ()
    running = then(held(), started(), hold("limit", limit=HIT))
    lift = HoldsLifted(why="raised", by="ann")
    assert decide_lift(running, why="raised", by="ann") == (lift,)
    assert decide_lift(then(running, lift), why="raised", by="ann") == ()
    assert limits_hit(then(running, lift)) == ()


def test_a_limit_that_stopped_a_run_is_told_with_the_flag_that_raises_it() -> None:
    play = on_hold("limit", limit=HIT)
    telling = notifications([play.last], play.run, after=play.run.head - 1, at_us=play.now_us)
    assert telling is not None
    (told,) = telling()
    assert '"next":"onward resume r --raise run.tokens=200"' in told.body
    assert (tells([play.last]), tells([play.events[0]])) == (True, False)


def test_an_attempt_that_asks_waits_until_one_of_its_questions_is_answered() -> None:
    play = on_hold("gate", ASKS, gates=(ASKS.gate,))
    assert isinstance(play.last, RunWaiting)
    play.answer("Y")
    play.claim()
    assert isinstance(play.action, Execute)


def test_an_answer_inside_a_step_is_a_no_if_it_means_that() -> None:
    """No choice leads anywhere there."""
    for answer, rejected in (("Y", False), ("N", True)):
        play = on_hold(
            "gate", replace(ASKS, choices=(YES, Choice(key="N", label="No", to=""))), gates=(ASKS.gate,)
        )
        (decided, *_) = play.answer(answer)
        assert isinstance(decided, GateDecided)
        assert decided.rejected is rejected


def test_a_step_that_was_cut_off_says_why_it_is_in_doubt() -> None:
    play = Play("a [type=tool, repeatable=false]; start -> a -> exit")
    play.go(came_of(play, AttemptCut("a#1", 1, "too late", in_doubt=True)))
    assert isinstance(stopped := play.last, RunInterrupted)
    assert stopped.detail == "step a#1 was cut off and must not be repeated blindly: too late"


def test_an_attempt_that_the_log_knows_about_adds_nothing() -> None:
    play = Play(AGENT)
    assert came_of(play, AttemptLeft("a#1")) == ()
    (cut,) = came_of(play, AttemptCut("a#1", 1, "too late"))
    assert isinstance(cut, AttemptInterrupted)


def test_a_failure_that_stops_the_run_is_not_retried() -> None:
    play = Play("a [type=tool, max_retries=3]; start -> a -> exit")
    play.result(Result(status=StepStatus.FAIL, failure_reason="no key", stop="provider_auth"))
    assert isinstance(stopped := play.last, RunFailed)
    assert stopped.reason == "provider_auth"


def test_a_wait_that_is_too_long_releases_the_run() -> None:
    """With a question open it waits for the answer too; a provider's wait is told as such."""
    too_long = WaitTooLong(9_000_000)
    assert came_of(on_hold("rate_limit", until_us=9_000_000), too_long) == (
        RunInterrupted(reason="rate_limit", detail="too much", wake_at_us=9_000_000),
    )
    assert came_of(Play(AGENT), too_long) == (
        RunQueued(why="waits for its next attempt", wake_at_us=9_000_000),
    )
    asking = Play(AGENT)
    asking.write(ASKS)
    assert came_of(asking, too_long) == (RunWaiting(wake_at_us=9_000_000),)


def test_a_request_that_came_before_a_planned_stop_is_left_to_the_next_plan() -> None:
    play = Play(AGENT)
    assert came_of(play, SuccessorCreated("next")) == (RunCompleted(restarted_as="next"),)
    play.pause()
    assert came_of(play, SuccessorCreated("next")) == ()


def test_a_worker_that_stops_requeues_the_run_and_a_process_in_front_pauses_it() -> None:
    for reason, kind in (("drain", RunQueued), ("signal", RunPaused)):
        play = Play(AGENT)
        play.result(Result.success(), stop_reason=reason)
        assert isinstance(play.last, kind)


def merging() -> Play:
    """A fan-out in a workspace, whose branches have ended."""
    play = fan("fan -> a -> join; fan -> b -> join")
    play.run = replace(play.run, workspace=Workspace(repository="/repo", start=TREE))
    for step in ("fan#1.a/a#1", "fan#1.b/b#1"):
        land(play, step)
    return play


def test_the_work_of_branches_is_merged_before_they_are_joined() -> None:
    play = merging()
    assert play.action == Merge("fan#1")
    (joined,) = came_of(play, BranchesMerged("fan#1", Merged(tree=Tree(commit="c2", head="h"))))
    play.go([joined])
    assert play.run.outcomes["fan"] == StepStatus.SUCCESS.value
    assert came_of(play, BranchesMerged("fan#1", Merged())) == ()


def test_branches_whose_work_conflicts_succeeded_in_part() -> None:
    play = merging()
    conflict = Conflict(branch="b", files=("x.py",))
    play.go(came_of(play, BranchesMerged("fan#1", Merged(conflicts=(conflict,)))))
    assert play.run.outcomes["fan"] == StepStatus.PARTIAL_SUCCESS.value
    assert play.run.context["workspace.conflicts"] == [{"branch": "b", "files": ["x.py"]}]


LOOP = """a [type=tool]; b [type=tool]; start -> a -> b; b -> exit [condition="context.again!=yes"]
  b -> a [condition="context.again=yes", loop_restart=true{}]"""


def looping(more: str = "") -> Play:
    play = Play(LOOP.format(more), {"kept": 1, "other": 2, "graph.goal": "g"})
    play.succeed()
    play.succeed(again="yes")
    return play


def test_a_restart_continues_as_another_run_with_the_values_of_this_one() -> None:
    play = looping()
    assert isinstance(play.action, Restart)
    assert play.action.to == "a"
    begun = restarted(play.definition, play.run, "a", "1.0")
    assert (begun.restart_of, begun.restarts, begun.charged_to, begun.start_node) == ("r", 1, "r", "a")
    assert begun.context == {"kept": 1, "other": 2, "again": "yes", "graph.goal": "g"}


def test_an_edge_may_name_what_a_restart_keeps() -> None:
    play = looping(', loop_restart_keep="kept, again"')
    begun = restarted(play.definition, play.run, "a", "1.0")
    assert begun.context == {"kept": 1, "again": "yes", "graph.goal": "g"}


def test_restarts_have_an_end() -> None:
    play = Play(LOOP.format(""))
    play.succeed()
    play.run = replace(play.run, restarts=play.definition.max_restarts)
    play.succeed(again="yes")
    assert isinstance(stopped := play.last, RunFailed)
    assert stopped.detail == "loop_restart started 100 runs in a row (max_restarts)"


def test_what_is_simulated_is_all_or_the_agents() -> None:
    every, agents = Simulation(script={}), Simulation(script={}, real_tools=True)
    assert [is_simulated(every, kind) for kind in ("codergen", "tool", "stack.manager_loop", "exit")] == [
        *(True, True),
        *(False, False),
    ]
    assert [is_simulated(agents, kind) for kind in ("codergen", "tool")] == [True, False]
    assert not is_simulated(None, "codergen")


def test_a_definition_knows_its_edges_and_its_managers() -> None:
    definition = define("a [type=tool]; start -> a -> exit")
    edge = definition.edge(1)
    assert edge is not None
    assert (edge.source, edge.target) == ("a", "exit")
    assert (definition.edge(None), definition.edge(9), definition.managers) == (None, None, ())


def waiting(*, wake_at_us: int | None = None) -> Run:
    return then(held(), ASKED, RunWaiting(wake_at_us=wake_at_us))


def test_a_run_that_waits_is_woken_when_a_branch_beside_its_question_is_due() -> None:
    view = HolderView(None, False, "second", 100)
    assert decide_woken(waiting(wake_at_us=200), view) == ()
    assert decide_woken(waiting(), view) == ()
    (woken,) = decide_woken(waiting(wake_at_us=90), view)
    assert isinstance(woken, RunQueued)
    assert decide_woken(held(), view) == ()


def test_a_decision_claims_the_run_that_waited_for_it_and_no_other() -> None:
    decided = GateDecided(gate="g#1", choice=YES, by="ann")
    events = decide_and_claim(waiting(), NO_ONE, decide=lambda *_: (decided,))
    assert events[0] == decided
    assert isinstance(events[-1], RunClaimed)
    running = then(held(), ASKED)
    assert decide_and_claim(running, NO_ONE, decide=lambda *_: (decided,)) == (decided,)
    assert decide_and_claim(waiting(), NO_ONE, decide=lambda *_: ()) == ()


def test_a_fork_tells_again_only_of_questions_without_an_answer() -> None:
    other = replace(ASKED, gate="h#1")
    run = then(held(), ASKED, other, GateDecided(gate="g#1", choice=YES, by="ann"))
    forked = RunForked(parent="p", parent_seq=4, parent_hash="00", by="ann")
    telling = notifications([forked], run, after=run.head, at_us=60)
    assert telling is not None
    assert [told.kind.value for told in telling()] == ["gate"]


def test_a_value_that_no_snapshot_can_hold_is_told() -> None:
    with pytest.raises(NotImplementedError, match="object in a run's state"):
        encode_run(replace(held(), threads=FrozenMap({"t": object()})))


def test_the_first_step_after_a_restored_workspace_clears_the_wish() -> None:
    paused = then(held(), RunPaused(reason="operator"), RunResumed(by="ann", restore_workspace=True))
    claimed = then(paused, RunClaimed(token=2, worker="w2"))
    assert claimed.restore_workspace
    assert not then(claimed, started()).restore_workspace


def test_the_conversation_of_a_finished_step_is_there_for_its_thread() -> None:
    play = Play("a [prompt=p, fidelity=full, thread_id=t]; b [type=tool]; start -> a -> b -> exit")
    asked = CallStarted(step="a#1", attempt=1, call="m1", number=1, type="model")
    answered = CallFinished(
        step="a#1", attempt=1, call="m1", number=1, type="model", status=CallStatus.OK, thread="head"
    )
    play.write(asked, answered)
    play.succeed()
    assert [*play.run.threads.plain().values()] == ["head"]


def test_a_fan_out_without_edges_ends_its_branch() -> None:
    play = fan("fan -> a -> join; fan -> inner; inner [shape=component]")
    land(play, "fan#1.a/a#1")
    assert results(play)["inner"] == "success"


def test_a_restart_inside_a_branch_fails_the_run() -> None:
    """The rules refuse it where they see it; a pipeline that changed since may have it all the same."""
    nodes = "start [shape=Mdiamond]; exit [shape=Msquare]; fan [shape=component]; join [shape=tripleoctagon]"
    edges = "start -> fan; fan -> a; fan -> b; a -> b [loop_restart=true]; b -> join; join -> exit"
    tools = "a [type=tool]; b [type=tool]"
    graph = build(f"digraph g {{ {nodes}; {tools}; {edges} }}", file="<test>", rules=()).graph
    play = Play(Definition(graph))
    land(play, "fan#1.a/a#1")
    land(play, "fan#1.b/b#1")
    assert isinstance(stopped := play.last, RunFailed)
    assert "is inside a parallel branch, which cannot end the run" in stopped.detail
