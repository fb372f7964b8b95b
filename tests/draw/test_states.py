"""What a picture says about a run: every state, the edges taken, and branches put together."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from onward.draw.scene import Jump, NodeState, NodeStatus, States, Trace, states_of
from onward.model.events import (
    AttemptFailed,
    AttemptInterrupted,
    BranchPlan,
    Event,
    GoalRedirected,
    Outcome,
    ParallelStarted,
    RunCancelled,
    RunFailed,
    RunInterrupted,
    StepFinished,
    StepRouted,
    StepStarted,
    StepStatus,
    Transition,
)
from onward.model.gate import Choice, GateDecided, GateOpened
from onward.model.ids import node_of, place_of
from onward.model.run import AttemptState, OpenStep, Run, RunStatus
from tests.draw.pictures import FAN, RELEASE, graph_of, lived, states_after

FAN_EDGES = {(edge.source, edge.target): edge.order for edge in graph_of(FAN).edges}
EDGES = {(edge.source, edge.target): edge.order for edge in graph_of(RELEASE).edges}


def began(step: str, attempt: int = 1) -> StepStarted:
    return StepStarted(step=step, node=node_of(place_of(step)), attempt=attempt)


def ended(
    step: str, to: str | None = None, status: StepStatus = StepStatus.SUCCESS, *, jump: bool = False
) -> StepFinished:
    node = node_of(place_of(step))
    edge = None if jump else EDGES.get((node, to or ""))
    onward = None if to is None else Transition(to=to, reason="why", edge=edge)
    reason = "two tests failed" if status is StepStatus.FAIL else ""
    outcome = Outcome(status=status, failure_reason=reason)
    return StepFinished(step=step, node=node, attempt=1, outcome=outcome, next=onward)


def failed(step: str, *, again: bool) -> AttemptFailed:
    return AttemptFailed(
        step=step, attempt=1, status=StepStatus.FAIL, reason="busy", retry_at_us=9 if again else None
    )


GIVEN_UP = RunCancelled(reason="user")
START = ended("start#1", "plan")
ASKED = GateOpened(gate="plan#1", node="plan", text="Go on?", choices=(Choice(key="Y", label="Yes", to="x"),))


@pytest.mark.parametrize(
    ("events", "status", "note"),
    [
        ([], NodeStatus.NOT_REACHED, ""),
        ([began("plan#1")], NodeStatus.RUNNING, ""),
        ([ASKED], NodeStatus.WAITING, "Go on?"),
        (
            [ASKED, GateDecided(gate="plan#1", choice=ASKED.choices[0], by="me")],
            NodeStatus.WAITING,
            "answered: Yes",
        ),
        ([began("plan#1"), ended("plan#1", "write")], NodeStatus.SUCCEEDED, ""),
        ([began("plan#1"), ended("plan#1", "write", StepStatus.PARTIAL_SUCCESS)], NodeStatus.PARTIAL, ""),
        ([began("plan#1"), ended("plan#1", "write", StepStatus.SKIPPED)], NodeStatus.SKIPPED, ""),
        ([began("plan#1"), ended("plan#1", "write", StepStatus.FAIL)], NodeStatus.FAILED, "two tests failed"),
        ([began("plan#1"), failed("plan#1", again=True)], NodeStatus.RETRYING, "busy"),
        ([began("plan#1"), failed("plan#1", again=False)], NodeStatus.FAILED, "busy"),
        (
            [began("plan#1"), AttemptInterrupted(step="plan#1", attempt=1, why="stopped")],
            NodeStatus.INTERRUPTED,
            "stopped",
        ),
        (
            [began("plan#1"), AttemptInterrupted(step="plan#1", attempt=1, why="x"), GIVEN_UP],
            NodeStatus.INTERRUPTED,
            "started and never finished",
        ),
    ],
)  # fmt: skip
def test_every_way_a_node_can_stand(events: list[Event], status: NodeStatus, note: str) -> None:
    state = states_after(RELEASE, START, *events).nodes["plan"]
    assert (state.status, state.note) == (status, note)


def test_an_attempt_that_nobody_makes_is_not_shown_as_running() -> None:
    at_work = [START, began("plan#1")]
    assert states_after(RELEASE, *at_work, is_at_work=False).nodes["plan"].status is NodeStatus.INTERRUPTED
    stopped = states_after(RELEASE, *at_work, RunInterrupted(reason="crash"))
    assert stopped.nodes["plan"].status is NodeStatus.INTERRUPTED


def test_a_second_visit_that_was_skipped_does_not_show_the_outcome_of_the_first() -> None:
    states = states_after(
        RELEASE,
        START,
        *(began("plan#1"), ended("plan#1", "plan", jump=True)),
        *(began("plan#2"), ended("plan#2", "write", StepStatus.SKIPPED)),
    )
    assert states.nodes["plan"] == NodeState(NodeStatus.SKIPPED, visits=2)


def test_visits_and_retries_are_counted_and_the_next_node_is_marked() -> None:
    states = states_after(
        RELEASE,
        START,
        *(began("plan#1"), ended("plan#1", "write")),
        *(began("write#1"), failed("write#1", again=True), began("write#1", 2), ended("write#1", "test")),
        *(began("test#1"), ended("test#1", "fix", StepStatus.FAIL)),
        *(began("fix#1"), ended("fix#1", "write")),
    )
    assert states.nodes["write"] == NodeState(NodeStatus.SUCCEEDED, visits=1, retries=1, is_next=True)
    assert states.nodes["write"].words == "succeeded, 1 retry, next"
    assert [node for node, state in states.nodes.items() if state.is_next] == ["write"]


def test_the_edges_that_were_taken_are_counted() -> None:
    states = states_after(
        RELEASE,
        START,
        *(began("plan#1"), ended("plan#1", "write")),
        *(began("write#1"), ended("write#1", "test")),
        *(began("test#1"), ended("test#1", "fix", StepStatus.FAIL)),
        *(began("fix#1"), ended("fix#1", "write")),
        *(began("write#2"), ended("write#2", "test")),
    )
    taken = {(edge.source, edge.target): states.taken.get(edge.order, 0) for edge in graph_of(RELEASE).edges}
    assert {ends: times for ends, times in taken.items() if times} == {
        ("start", "plan"): 1,
        ("plan", "write"): 1,
        ("write", "test"): 2,
        ("test", "fix"): 1,
        ("fix", "write"): 1,
    }
    assert states.jumps == ()


def test_a_move_that_no_edge_stands_for_is_a_jump() -> None:
    states = states_after(
        RELEASE,
        START,
        *(began("plan#1"), ended("plan#1", "start", jump=True)),
        GoalRedirected(gate="plan", next=Transition(to="write", reason="goal")),
    )
    # An edge plan -> write exists, and was not what led there.
    assert set(states.jumps) == {Jump("plan", "start", 1), Jump("plan", "write", 1)}
    assert EDGES["plan", "write"] not in states.taken


def test_a_step_without_a_way_on_says_why() -> None:
    finished = START, began("plan#1"), ended("plan#1")
    states = states_after(RELEASE, *finished, RunFailed(reason="no_way_on", detail="why", step="plan#1"))
    assert (states.nodes["plan"].status, states.nodes["plan"].note) == (NodeStatus.SUCCEEDED, "why")


def test_an_edge_that_a_finished_step_took_later_counts_as_taken() -> None:
    taken = StepRouted(step="plan#1", next=Transition(to="write", reason="why", edge=EDGES["plan", "write"]))
    states = states_after(RELEASE, START, began("plan#1"), ended("plan#1"), taken)
    assert states.taken[EDGES["plan", "write"]] == 1
    assert states.nodes["write"].is_next


def test_under_a_changed_pipeline_the_ends_of_a_move_decide_its_edge() -> None:
    run, trace = lived(START)
    trace.moves.clear()
    trace.moves["start", "plan", 99] = 2
    states = states_of(graph_of(RELEASE), run, trace, is_at_work=False)
    assert states.taken == {EDGES["start", "plan"]: 2}


def branched(**opened: AttemptState) -> tuple[Run, Trace]:
    """A run whose branches went through `fan` twice, and are open now as said."""
    run, trace = lived()
    visits = {"start": 1, "fan": 2, "fan#1.lint/lint": 1, "fan#1.test/test": 1, "fan#1.test/deep": 2}
    visits |= {"fan#2.lint/lint": 1, "fan#2.test/test": 1}
    for place, count in visits.items():
        trace.visits[place] = trace.finished[place] = count
        trace.outcomes[place] = Outcome(status=StepStatus.SUCCESS)
    trace.outcomes["fan#1.lint/lint"] = Outcome(status=StepStatus.FAIL)
    steps = {
        f"fan#2.{branch}/{branch}#1": OpenStep(
            step=f"fan#2.{branch}/{branch}#1", node=branch, attempt=1, token=1, state=state
        )
        for branch, state in opened.items()
    }
    return replace(run, open_steps=steps), trace


def fan_states(run: Run, trace: Trace) -> States:
    return states_of(graph_of(FAN), run, trace, is_at_work=True)


def test_a_node_in_branches_counts_all_visits_and_shows_the_last_round() -> None:
    states = fan_states(*branched(test=AttemptState.RETRYING))
    assert states.nodes["lint"] == NodeState(NodeStatus.SUCCEEDED, visits=2)
    assert states.nodes["test"] == NodeState(NodeStatus.RETRYING, visits=2)
    assert states.nodes["deep"].visits == 2
    assert states.nodes["join"].status is NodeStatus.NOT_REACHED


def test_of_several_branches_through_one_node_the_most_urgent_counts() -> None:
    run, trace = branched()
    for branch, status in (("lint", StepStatus.SUCCESS), ("test", StepStatus.FAIL)):
        trace.visits[f"fan#2.{branch}/deep"] = trace.finished[f"fan#2.{branch}/deep"] = 1
        trace.outcomes[f"fan#2.{branch}/deep"] = Outcome(status=status)
    states = fan_states(run, trace)
    assert states.nodes["deep"] == NodeState(NodeStatus.FAILED, visits=4)


def fanned_out() -> tuple[Run, Trace]:
    plans = tuple(BranchPlan(path=f"fan#1.{to}", to=to, edge=FAN_EDGES["fan", to]) for to in ("lint", "test"))
    return lived(
        StepFinished(
            step="start#1",
            node="start",
            attempt=1,
            outcome=Outcome(status=StepStatus.SUCCESS),
            next=Transition(to="fan", reason="why", edge=FAN_EDGES["start", "fan"]),
        ),
        ParallelStarted(
            step="fan#1", node="fan", branches=plans, join="join", policy="wait_all", max_parallel=4
        ),
    )


def test_a_fan_out_under_way_is_running_and_its_edges_are_taken() -> None:
    run, trace = fanned_out()
    states = fan_states(run, trace)
    assert states.nodes["fan"] == NodeState(NodeStatus.RUNNING, visits=1)
    assert {ends for ends, order in FAN_EDGES.items() if states.taken.get(order)} == {
        ("start", "fan"),
        ("fan", "lint"),
        ("fan", "test"),
    }
    assert {node for node, state in states.nodes.items() if state.is_next} == {"lint", "test"}


def test_a_fan_out_whose_branches_stopped_is_not_running() -> None:
    run, trace = fanned_out()
    waiting = replace(run, status=RunStatus.WAITING)
    assert fan_states(waiting, trace).nodes["fan"].status is NodeStatus.WAITING
    stopped = replace(run, status=RunStatus.INTERRUPTED)
    assert fan_states(stopped, trace).nodes["fan"].status is NodeStatus.INTERRUPTED


def test_the_way_from_a_fan_out_to_where_its_branches_meet_is_no_jump() -> None:
    run, trace = branched()
    trace.moves["fan", "join", None] = 2
    assert fan_states(run, trace).jumps == ()
