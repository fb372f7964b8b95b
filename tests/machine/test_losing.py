"""A dead owner: the run's policy decides, a claim fences the owner, and every stop honours what was asked."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from onward.machine.decide.owner_loss import (
    LOSSES_MAX,
    RESTARTED,
    decide_held_back,
    decide_loss,
    decide_release,
)
from onward.machine.decide.requests import HolderView
from onward.model.events import (
    Event,
    RunCancelled,
    RunClaimed,
    RunFailed,
    RunInterrupted,
    RunPaused,
    RunQueued,
)
from onward.model.run import Pending, Run, RunStatus
from tests.machine.events import held, then

DEAD = HolderView("process 7 on host", False, "me", now_us=1_000)


def lost(run: Run, **how: Any) -> tuple[Event, ...]:
    return decide_loss(run, DEAD, **how)


def test_finding_it_is_a_claim_with_the_stop_behind_it() -> None:
    run = held()
    claim, stop = lost(run)
    assert claim == RunClaimed(token=run.token + 1, worker="me", lost=True)
    assert isinstance(stop, RunInterrupted)
    assert then(run, claim, stop).worker is None


def test_a_living_owner_and_a_run_that_nobody_holds_are_left_alone() -> None:
    run = held()
    assert decide_loss(run, HolderView("x", True, "me")) == ()
    assert lost(then(run, RunPaused(reason="operator"))) == ()


def test_the_policy_decides_between_the_queue_and_the_user() -> None:
    run = held()
    assert lost(run)[1] == RunInterrupted(reason="crash", detail="process 7 on host died")
    assert lost(run, is_restart=True)[1] == RunInterrupted(reason="restart", detail=RESTARTED)
    queued = lost(replace(run, on_owner_loss="requeue"))[1]
    assert queued == RunQueued(why="process 7 on host died", wake_at_us=1_000)


@pytest.mark.parametrize(("losses", "wait_s"), [(0, 0), (1, 1), (2, 2), (3, 4)])
def test_each_loss_without_a_checkpoint_waits_longer(losses: int, wait_s: int) -> None:
    run = replace(held(), on_owner_loss="requeue", losses=losses)
    (_, queued) = lost(run)
    assert isinstance(queued, RunQueued)
    assert queued.wake_at_us == 1_000 + wait_s * 1_000_000


@pytest.mark.parametrize(("losses", "wait_s"), [(0, 0), (1, 1), (2, 2), (3, 4)])
def test_a_release_counts_and_waits_like_a_loss(losses: int, wait_s: int) -> None:
    run = replace(held(), on_owner_loss="requeue", losses=losses)
    events = decide_release(run, owner=run.worker or "", token=run.token, now_us=1_000, error="no space")
    after = then(run, *events)
    assert (after.status, after.wake_at_us) == (RunStatus.QUEUED, 1_000 + wait_s * 1_000_000)
    assert (after.losses, after.token, after.worker) == (losses + 1, run.token + 1, None)
    assert after.detail == "the process that held it stopped running it: no space"


def test_a_drained_workers_hand_back_is_no_loss() -> None:
    run = replace(held(), losses=3)
    handed_back = then(run, RunQueued(why="released by a worker that stops", wake_at_us=1))
    assert then(handed_back, RunClaimed(token=run.token + 1, worker="next")).losses == 3


def test_five_releases_in_a_row_are_a_crash_loop_that_says_what_happened_last() -> None:
    run = replace(held(), on_owner_loss="requeue", losses=LOSSES_MAX - 1)
    events = decide_release(run, owner=run.worker or "", token=run.token, now_us=1_000, error="no space")
    after = then(run, *events)
    assert (after.status, after.reason) == (RunStatus.FAILED, "crash_loop")
    assert after.detail.endswith("the last time: the process that held it stopped running it: no space")


@pytest.mark.parametrize("policy", ["requeue", "interrupt"])
def test_five_losses_in_a_row_are_a_crash_loop(policy: str) -> None:
    """B2-3: a job that loses its process again and again ends."""
    run = replace(held(), on_owner_loss=policy, losses=LOSSES_MAX - 1)
    (_, failed) = lost(run)
    assert isinstance(failed, RunFailed)
    assert failed.reason == "crash_loop"


def test_a_pending_cancel_comes_before_a_pending_pause_and_both_before_the_policy() -> None:
    both = Pending(cancel_by="kim", pause_after="step", pause_by="pat")
    assert isinstance(lost(replace(held(), pending=both))[-1], RunCancelled)
    paused = Pending(pause_after="step", pause_by="pat")
    assert lost(replace(held(), pending=paused))[-1] == RunPaused(reason="operator", detail="asked by pat")


def test_what_would_go_on_by_itself_is_held_back_and_nothing_else() -> None:
    claim, later = lost(held()), RunInterrupted(reason="rate_limit", wake_at_us=5_000)
    for stop in (later, RunQueued(why="", wake_at_us=1)):
        run = then(held(), stop)
        paused = then(run, *decide_held_back(run, why="because"))
        assert (paused.status, paused.wake_at_us) == (RunStatus.PAUSED, None)
        assert (paused.reason, paused.detail) == ("operator", "because")
    assert decide_held_back(then(held(), *claim), why="because") == ()
    assert decide_held_back(then(held(), RunFailed(reason="step_failed")), why="because") == ()
