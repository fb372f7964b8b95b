"""What a log means: stops, going on, forks, rows and snapshots."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from onward.machine.fold.changes import IllegalEvent
from onward.machine.fold.rows import run_row
from onward.machine.fold.snapshot import decode_run, encode_run
from onward.machine.lifecycle import apply, fold
from onward.model.events import (
    AttemptFailed,
    AttemptInterrupted,
    Event,
    PipelineChanged,
    RunCancelled,
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
)
from onward.model.gate import GateDecided, GateWithdrawn
from onward.model.ids import display_id
from onward.model.run import AttemptState, Pending, RunStatus
from tests.machine.events import ASKED, YES, finished, held, retrying, started, then
from tests.machine.play import Play, created

# -- stops and going on ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "wake_at_us"),
    [
        (RunWaiting(), None),
        (RunQueued(why="retry", wake_at_us=900), 900),
        (RunPaused(reason="operator", detail="asked by pat"), None),
        (RunInterrupted(reason="rate_limit", detail="later", wake_at_us=900), 900),
        (RunInterrupted(reason="crash"), None),
        (RunFailed(reason="step_failed", detail="why", step="a#1"), None),
        (RunCompleted(), None),
        (RunCancelled(reason="user", by="kim"), None),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_a_stop_lets_go_of_the_run_and_sets_its_wake_time_in_the_same_event(
    stop: Event, wake_at_us: int | None
) -> None:
    """Design §3: stop, release and next wake time are one append, because they are one event. H9."""
    run = then(held(), stop)
    assert (run.worker, run.wake_at_us, run.token) == (None, wake_at_us, 1)
    assert run_row(run).owner is None


def test_a_stop_says_why() -> None:
    run = then(held(), RunFailed(reason="step_failed", detail="why", step="a#1"))
    assert (run.reason, run.detail, run.stopped_step, run.ended_at_us) == ("step_failed", "why", "a#1", 50)
    run = then(held(), RunInterrupted(reason="rate_limit", detail="come back later", wake_at_us=900))
    assert (run.reason, run.detail) == ("rate_limit", "come back later")
    run = then(run, RunQueued(why="it is later", wake_at_us=900), at_us=901)
    assert (run.reason, run.detail, run.updated_at_us) == ("", "it is later", 901)
    run = then(run, RunClaimed(token=2, worker="w2"))
    assert (run.reason, run.detail) == ("", "")


def test_a_cancelled_run_keeps_nothing_of_what_it_waited_for() -> None:
    run = then(held(), RunQueued(why="retry of a#1", wake_at_us=900))
    run = then(replace(run, pending=Pending(pause_after="step")), RunCancelled(reason="user", by="kim"))
    assert (run.reason, run.detail, run.pending) == ("user", "", Pending())


def test_a_pause_ends_the_request_for_it_but_not_one_for_a_cancel() -> None:
    pending = Pending(cancel_by="kim", pause_after="step", pause_by="pat")
    run = then(replace(held(), pending=pending), RunPaused(reason="operator"))
    assert run.pending == Pending(cancel_by="kim")


def test_a_resume_clears_the_failure_and_opens_a_new_allowance() -> None:
    """Design §4: failure text and end time are cleared, retries and crashes start anew, the rest is kept."""
    run = then(
        held(),
        started(),
        retrying(),
        RunClaimed(token=2, worker="w2", lost=True),
        started(attempt=2),
        AttemptFailed(step="a#1", attempt=2, status=StepStatus.FAIL, reason="broken"),
        RunFailed(reason="step_failed", detail="why", step="a#1"),
    )
    run = replace(run, reroutes=3, pending=Pending(pause_after="step"))
    resumed = then(run, RunResumed(by="pat"), at_us=88)
    assert (resumed.pending, resumed.directives) == (Pending(), {})
    assert (resumed.reason, resumed.detail, resumed.stopped_step, resumed.ended_at_us) == ("", "", "", None)
    assert (resumed.losses, resumed.retries.plain(), resumed.wake_at_us) == (0, {}, 88)
    opened = resumed.open_steps["a#1"]
    assert (opened.state, opened.retries_spent, opened.attempt) == (AttemptState.RETRYING, 0, 2)
    assert (resumed.reroutes, resumed.visits["a"], resumed.executions["a"]) == (3, 1, 2)


def test_a_resume_keeps_an_abandoned_attempt_and_when_to_retry() -> None:
    interrupted = RunInterrupted(reason="crash")
    run = then(held(), started(), interrupted, RunResumed(by="pat"))
    assert run.open_steps["a#1"].state is AttemptState.OPEN
    run = then(held(), started(), retrying(), interrupted, RunResumed(by="pat"))
    assert (run.open_steps["a#1"].retries_spent, run.open_steps["a#1"].retry_at_us) == (0, 99)


def test_a_pause_was_only_a_break_and_keeps_the_retries_that_were_spent() -> None:
    """O1: pausing and resuming is no way to more tries."""
    run = then(held(), started(), retrying(), RunPaused(reason="operator"), RunResumed(by="pat"))
    assert (run.open_steps["a#1"].retries_spent, run.retries.plain()) == (1, {"a": 1})


@pytest.mark.parametrize(("step", "action"), [("a#1", "skip"), ("b#1", "retry"), ("a#1", None)])
def test_a_resume_tries_only_the_step_again_that_it_says_to(step: str, action: str | None) -> None:
    run = then(held(), started(), RunInterrupted(reason="crash"))
    run = then(run, RunResumed(by="pat", action=action, step=step))
    assert run.open_steps["a#1"].state is AttemptState.OPEN
    assert run.directives == ({step: action} if action else {})


@pytest.mark.parametrize("action", ["retry", "continue"])
def test_a_decided_doubt_makes_the_step_due_and_is_remembered_until_it_finishes(action: str) -> None:
    run = then(held(), started(repeatable=False), RunInterrupted(reason="in_doubt"))
    run = then(run, RunResumed(by="pat", action=action, step="a#1"))
    assert run.open_steps["a#1"].state is AttemptState.RETRYING
    assert run.directives == {"a#1": action}
    run = then(run, RunClaimed(token=2, worker="w"), started(attempt=2), finished(to="b"))
    assert run.directives == {}


def test_a_resume_from_another_step_leaves_everything_open_behind() -> None:
    run = then(held(), finished("s#1", "a"), started(), retrying(), RunPaused(reason="operator"))
    assert run.root.edge is not None
    run = then(replace(run, directives={"a#1": "retry"}), RunResumed(by="pat", from_node="z"))
    assert (run.next_node, run.root.edge, run.open_steps, run.gates) == ("z", None, {}, {})
    assert (run.visits["a"], run.retries.plain(), run.directives) == (1, {}, {})


def test_a_final_status_leaves_nothing_open() -> None:
    """Design §3: a final status comes with the withdrawal of gates and the end of attempts, or not at all.

    H11.
    """
    for final in (RunCompleted(), RunCancelled(reason="user")):
        with pytest.raises(IllegalEvent, match=f"{final.kind} leaves gates open: g#1"):
            then(held(), ASKED, final)
        with pytest.raises(IllegalEvent, match=f"{final.kind} leaves attempts open: a#1"):
            then(held(), started(), final)
        closed = AttemptInterrupted(step="a#1", attempt=1, why="cancelled")
        decided = GateDecided(gate="g#2", choice=YES, by="pat")
        run = then(held(), started(), ASKED, replace(ASKED, gate="g#2"), GateWithdrawn(gate="g#1"), decided)
        run = then(replace(run, directives={"a#1": "continue"}), closed, final)
        assert (run.open_steps, run.gates, run.directives, run.ended_at_us) == ({}, {}, {}, 50)


# -- forks and changed pipelines -----------------------------------------------------------------------


def test_a_fork_goes_on_from_its_parents_state_under_its_own_name() -> None:
    parent = then(held({"x": 1}), started(), finished(), RunClaimed(token=2, worker="w", lost=True))
    event = RunForked(
        parent="r", parent_seq=4, parent_hash="ab", by="pat", on_owner_loss="requeue", context={"x": 2}
    )
    child = apply(parent, event, run_id="child", at_us=90, token=parent.token)
    assert (child.id, child.status, child.next_node, child.context["x"]) == (
        "child",
        RunStatus.QUEUED,
        "b",
        2,
    )
    assert child.parent is not None
    assert (child.parent.run_id, child.parent.seq, child.parent.hash) == ("r", 4, "ab")
    assert (child.created_at_us, child.wake_at_us, child.worker, child.losses) == (90, 90, None, 0)
    assert (child.root.first_hop, child.on_owner_loss, child.head) == (True, "requeue", parent.head + 1)
    assert (parent.id, parent.context["x"]) == ("r", 1)
    row = run_row(child)
    assert (row.parent, row.parent_seq, row.display_id) == ("r", 4, display_id("child"))


def test_a_fork_takes_nothing_over_that_was_under_way() -> None:
    parent = replace(
        then(held(), started(), retrying(), ASKED),
        exclusive_key="chat",
        pending=Pending(cancel_by="kim"),
        directives={"a#1": "continue"},
        ended_at_us=5,
        reason="crash",
        detail="why",
        stopped_step="a#1",
    )
    event = RunForked(parent="r", parent_seq=4, parent_hash="ab", by="pat", exclusive_key="mine")
    child = apply(parent, event, run_id="child", at_us=90, token=1)
    assert (child.open_steps, child.gates, child.retries.plain()) == ({}, {}, {})
    assert (child.pending, child.directives, child.ended_at_us) == (Pending(), {}, None)
    assert (child.reason, child.detail, child.stopped_step) == ("", "", "")
    assert (child.exclusive_key, child.root.first_hop, parent.root.first_hop) == ("mine", True, False)


def test_a_fork_of_a_run_that_nobody_ever_held_has_no_live_session_either() -> None:
    event = RunForked(parent="r", parent_seq=1, parent_hash="ab", by="pat")
    child = apply(created(), event, run_id="child", at_us=90, token=0)
    assert then(child, RunClaimed(token=1, worker="w")).root.first_hop


def test_an_accepted_change_replaces_the_pipelines_hash() -> None:
    changed = PipelineChanged(pipeline_hash="i", before="h", by="pat")
    assert then(created(), changed).pipeline_hash == "i"


# -- folding, rows and snapshots -----------------------------------------------------------------------


def test_no_events_fold_to_nothing() -> None:
    assert fold(None, [], run_id="r") is None


def test_a_row_is_a_function_of_the_state() -> None:
    """I4: what lists show can be rebuilt from the log alone."""
    play = Play("start -> a -> exit; a [type=tool]")
    play.fail("no disk")
    row = run_row(play.run)
    assert (row.status, row.reason, row.detail) == (RunStatus.FAILED, "step_failed", "step a#1: no disk")
    assert (row.recoverable, row.next_node, row.steps_finished) == (True, "a", 1)
    assert (row.token, row.owner, row.ended_at_us, row.head) == (1, None, play.now_us, len(play.log))
    assert row == run_row(play.refolded())


def test_a_snapshot_is_the_state() -> None:
    run = then(held({"x": [1, 1.0, True, None, {"k": "v"}], "big": 2**64 - 1}), started(), retrying(), ASKED)
    run = then(run, GateDecided(gate="g#1", choice=YES, by="pat"))
    back = decode_run(encode_run(run))
    assert back == run
    assert back is not None
    assert encode_run(back) == encode_run(run)
