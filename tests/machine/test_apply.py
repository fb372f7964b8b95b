"""What a log means: creation, claims, steps, attempts and questions."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from onward.machine.fold.changes import IllegalEvent
from onward.machine.fold.steps import context_after
from onward.machine.lifecycle import apply
from onward.model.context import FrozenMap
from onward.model.events import (
    AttemptFailed,
    AttemptInterrupted,
    Event,
    Outcome,
    RunClaimed,
    RunCreated,
    RunInterrupted,
    RunPaused,
    RunResumed,
    RunWaiting,
    StepStarted,
    StepStatus,
)
from onward.model.gate import GateDecided, GateWithdrawn
from onward.model.run import AttemptState, RunStatus, Simulation
from tests.machine.events import ASKED, SUCCESS, YES, finished, held, retrying, started, then

# -- creation, claims, tokens ------------------------------------------------------------------------


def test_a_created_run_is_a_checkpoint_of_its_own() -> None:
    """O4: a run that dies before its first step can be resumed, because creation says where it begins."""
    event = RunCreated(
        pipeline="g",
        pipeline_hash="h",
        start_node="start",
        path="g.dot",
        context={"x": 1},
        on_owner_loss="requeue",
        exclusive_key="chat",
        simulation={"a": []},
        simulates_tools=True,
    )
    run = apply(None, event, run_id="r", at_us=7, token=0)
    assert (run.status, run.next_node, run.context.plain()) == (RunStatus.QUEUED, "start", {"x": 1})
    assert (run.head, run.created_at_us, run.wake_at_us, run.token) == (1, 7, 7, 0)
    assert (run.path, run.on_owner_loss, run.exclusive_key, run.simulation) == (
        "g.dot",
        "requeue",
        "chat",
        Simulation(script={"a": []}),
    )
    older = replace(event, simulates_tools=False)
    assert apply(None, older, run_id="r", at_us=7, token=0).simulation == Simulation(
        script={"a": []}, real_tools=True
    )


def test_a_claim_gives_the_run_an_owner_and_takes_its_wake_time() -> None:
    run = held()
    assert (run.status, run.token, run.worker, run.wake_at_us, run.head) == (
        RunStatus.RUNNING,
        1,
        "w1",
        None,
        2,
    )


@pytest.mark.parametrize("token", [0, 1])
def test_a_claim_must_raise_the_token(token: int) -> None:
    """I10: tokens never fall, and no two claims have the same."""
    claim = RunClaimed(token=token, worker="w2")
    with pytest.raises(IllegalEvent, match=f"a claim with token {token} after token 1"):
        apply(held(), claim, run_id="r", at_us=50, token=1)


def test_an_event_with_an_older_token_is_refused() -> None:
    """I9: what a fenced owner wrote can never be folded in."""
    run = then(held(), RunClaimed(token=2, worker="w2"))
    with pytest.raises(IllegalEvent, match="StepStarted carries token 1, older than 2"):
        apply(run, started(), run_id="r", at_us=50, token=1)


def test_each_lost_owner_is_counted_until_a_step_finishes() -> None:
    run = held()
    for token in (2, 3):
        run = then(run, RunClaimed(token=token, worker="w", lost=True))
    assert run.losses == 2
    assert then(run, RunClaimed(token=4, worker="w")).losses == 2
    assert then(run, started(), finished()).losses == 0


def test_a_claim_by_another_process_means_that_live_sessions_are_gone() -> None:
    assert not held().root.first_hop
    assert then(held(), RunClaimed(token=2, worker="w2")).root.first_hop


def test_a_claim_by_the_process_that_held_the_run_last_finds_its_sessions_alive() -> None:
    """R6: it let go at a gate or a pause, and nothing died."""
    paused = then(held(), RunPaused(reason="operator"), RunResumed(by="pat"))
    assert (paused.worker, paused.last_worker) == (None, "w1")
    assert not then(paused, RunClaimed(token=2, worker="w1")).root.first_hop
    between = then(paused, RunClaimed(token=2, worker="w2"), RunPaused(reason="operator"))
    assert then(between, RunResumed(by="pat"), RunClaimed(token=3, worker="w1")).root.first_hop


# -- steps -------------------------------------------------------------------------------------------


def test_an_attempt_is_known_before_its_work_begins() -> None:
    """O1, C16: the attempt's number is in the state from its start on, not from its end."""
    run = then(held(), started(repeatable=False, fidelity="full"))
    opened = run.open_steps["a#1"]
    assert (opened.attempt, opened.token, opened.state) == (1, 1, AttemptState.OPEN)
    assert (opened.repeatable, opened.fidelity) == (False, "full")
    assert (run.visits["a"], run.executions["a"], run.steps_finished) == (1, 1, 0)


def test_an_attempt_made_again_is_neither_a_visit_nor_an_execution_more() -> None:
    run = then(held(), started(), RunClaimed(token=2, worker="w2", lost=True), started())
    assert (run.visits["a"], run.executions["a"], run.open_steps["a#1"].token) == (1, 1, 2)


def test_the_next_attempt_is_an_execution_more_of_the_same_visit() -> None:
    run = then(held(), started(), retrying(), started(attempt=2))
    assert (run.visits["a"], run.executions["a"]) == (1, 2)
    assert (run.open_steps["a#1"].attempt, run.open_steps["a#1"].retries_spent) == (2, 1)


def test_a_step_that_is_open_under_this_token_cannot_start_again() -> None:
    """I7: nothing that is under way is begun a second time by the same owner."""
    with pytest.raises(IllegalEvent, match="step a#1 is already open under token 1"):
        then(held(), started(), started())


@pytest.mark.parametrize("step", ["a#1", "a#3", "b#1"])
def test_only_the_next_visit_of_a_node_can_start(step: str) -> None:
    """I7, I8: a step that has its outcome can never be begun again."""
    run = then(held(), started(), finished())
    event = StepStarted(step=step, node="a", attempt=1)
    with pytest.raises(IllegalEvent, match=f"step {step} is not visit 2 of node a"):
        then(run, event)
    assert "a#2" in then(run, started("a#2")).open_steps


@pytest.mark.parametrize("is_effect", [True, False])
def test_a_step_has_one_outcome_only(is_effect: bool) -> None:
    """I8: a second outcome for the same visit is refused, whether the node is an effect or a rule."""
    run = then(held(), started(), finished()) if is_effect else then(held(), finished())
    with pytest.raises(IllegalEvent, match="step a#1 is not visit 2 of node a"):
        then(run, finished())


def test_a_finished_step_of_an_unknown_branch_is_refused() -> None:
    with pytest.raises(IllegalEvent, match="step x/a#1 belongs to no branch"):
        then(held(), finished("x/a#1"))


def test_a_finished_step_is_outcome_changes_and_way_on_at_once() -> None:
    """Design §2: one event closes a step; C5: what it leads to is stored, never derived again."""
    outcome = Outcome(status=StepStatus.PARTIAL_SUCCESS, preferred_label="Go")
    run = then(held({"list": [1]}), started())
    run = then(run, finished(outcome=outcome, context={"x": 1}, grown={"list": [2]}))
    assert run.context.plain() == {
        "list": [1, 2],
        "x": 1,
        "outcome": "partial_success",
        "preferred_label": "Go",
    }
    assert (run.next_node, run.root.edge, run.root.previous, run.root.label) == ("b", 3, "a", "Go")
    assert (run.open_steps, run.steps_finished, run.outcomes.plain()) == ({}, 1, {"a": "partial_success"})


def test_an_outcome_without_a_label_keeps_the_last_label_in_the_context_only() -> None:
    labelled = Outcome(status=StepStatus.SUCCESS, preferred_label="Go")
    run = then(held(), started(), finished(outcome=labelled), started("b#1"), finished("b#1", "c"))
    assert (run.context["preferred_label"], run.root.label) == ("Go", "")


def test_a_skipped_step_records_no_outcome() -> None:
    """C21: skipping proceeds; outcome, label and goal gates stay as they were."""
    labelled = Outcome(status=StepStatus.FAIL, preferred_label="Fix")
    skipped = Outcome(status=StepStatus.SKIPPED)
    run = then(held(), finished(outcome=labelled), finished("b#1", "c", outcome=skipped))
    assert (run.context["outcome"], run.root.label, run.outcomes.plain()) == ("fail", "Fix", {"a": "fail"})
    assert (run.next_node, run.steps_finished) == ("c", 2)


@pytest.mark.parametrize(("context", "grown"), [({}, {"x": [1]}), ({"x": "text"}, {"x": [1]})])
def test_a_change_that_does_not_fit_its_context_is_damage(
    context: dict[str, Any], grown: dict[str, Any]
) -> None:
    """I25: a log that cannot be folded is named, not guessed at."""
    with pytest.raises(IllegalEvent, match="adds to a context value that is missing or of another type"):
        then(held(context), finished(grown=grown))


def test_the_engines_own_keys_win_over_a_handlers() -> None:
    context = context_after(FrozenMap(), SUCCESS, {"outcome": "mine"}, {})
    assert context["outcome"] == "success"


# -- attempts ----------------------------------------------------------------------------------------


def test_a_retry_counts_and_a_last_failure_does_not() -> None:
    run = then(held(), started(), retrying())
    opened = run.open_steps["a#1"]
    assert (opened.state, opened.retries_spent, opened.retry_at_us, opened.reason) == (
        AttemptState.RETRYING,
        1,
        99,
        "busy",
    )
    assert run.retries.plain() == {"a": 1}
    failed = then(held(), started(), retrying(at_us=None))
    assert (failed.open_steps["a#1"].state, failed.open_steps["a#1"].retries_spent) == (
        AttemptState.FAILED,
        0,
    )
    assert failed.retries.plain() == {}


def test_a_success_resets_the_nodes_retry_counter() -> None:
    run = then(held(), started(), retrying(), started(attempt=2), finished())
    assert run.retries.plain() == {}


@pytest.mark.parametrize(
    "event",
    [
        AttemptFailed(step="b#1", attempt=1, status=StepStatus.FAIL, reason=""),
        AttemptFailed(step="a#1", attempt=2, status=StepStatus.FAIL, reason=""),
        AttemptInterrupted(step="a#1", attempt=2, why=""),
    ],
)
def test_only_an_open_attempt_can_end(event: AttemptFailed | AttemptInterrupted) -> None:
    with pytest.raises(IllegalEvent, match=f"step {event.step} has no open attempt {event.attempt}"):
        then(held(), started(), event)


@pytest.mark.parametrize("ended", [retrying(), AttemptInterrupted(step="a#1", attempt=1, why="stop")])
def test_an_attempt_ends_once(ended: Event) -> None:
    """A retry that was counted twice for one attempt would spend the policy of another."""
    with pytest.raises(IllegalEvent, match="step a#1 has no open attempt 1"):
        then(held(), started(), ended, retrying())


def test_an_interrupted_attempt_stays_known_with_its_reason() -> None:
    run = then(held(), started(), AttemptInterrupted(step="a#1", attempt=1, why="stopped by a signal"))
    opened = run.open_steps["a#1"]
    assert (opened.state, opened.reason) == (AttemptState.INTERRUPTED, "stopped by a signal")


# -- gates -------------------------------------------------------------------------------------------


def test_a_gate_is_a_visit_of_its_node_and_stays_until_decided() -> None:
    run = then(held(), ASKED, RunWaiting())
    gate = run.gates["g#1"]
    assert (gate.text, gate.choices, gate.opened_at_us, gate.decided) == ("Go on?", (YES,), 50, None)
    assert (run.visits["g"], run.status) == (1, RunStatus.WAITING)


def test_an_answer_wakes_a_waiting_run() -> None:
    """Design §3: an answer queues the run with a wake time; it does not make it running."""
    run = then(
        then(held(), ASKED, RunWaiting()), GateDecided(gate="g#1", choice=YES, by="pat", text="ok"), at_us=77
    )
    gate = run.gates["g#1"]
    assert (run.status, run.wake_at_us) == (RunStatus.QUEUED, 77)
    assert (gate.decided, gate.by, gate.answer) == (YES, "pat", "ok")


@pytest.mark.parametrize("stop", [RunPaused(reason="operator"), RunInterrupted(reason="crash")])
def test_an_answer_does_not_wake_a_stopped_run(stop: Event) -> None:
    run = then(held(), ASKED, stop)
    after = then(run, GateDecided(gate="g#1", choice=YES, by="pat"))
    assert (after.status, after.wake_at_us) == (run.status, None)


def test_a_gate_is_decided_once() -> None:
    """I22: the first decision is the decision, even in a log that says otherwise."""
    decided = GateDecided(gate="g#1", choice=YES, by="pat")
    with pytest.raises(IllegalEvent, match="gate g#1 is not open"):
        then(held(), ASKED, decided, decided)


@pytest.mark.parametrize("event", [GateDecided(gate="g#9", choice=YES, by="pat"), GateWithdrawn(gate="g#9")])
def test_a_gate_that_is_not_there_is_neither_decided_nor_withdrawn(event: Event) -> None:
    with pytest.raises(IllegalEvent, match="gate g#9 is not open"):
        then(held(), ASKED, event)


def test_a_gate_opens_once() -> None:
    with pytest.raises(IllegalEvent, match="gate g#1 is already open"):
        then(held(), ASKED, ASKED)


def test_a_finished_gate_step_closes_its_gate_without_another_visit() -> None:
    run = then(held(), ASKED, GateDecided(gate="g#1", choice=YES, by="pat"), finished("g#1"))
    assert (run.gates, run.visits["g"]) == ({}, 1)


def test_a_withdrawn_gate_is_gone() -> None:
    assert then(held(), ASKED, GateWithdrawn(gate="g#1")).gates == {}
