"""A flow that waits for runs continues when one of them has ended, and not more often than is good for it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from onward.machine.decide.requests import HolderView, decide_awaited, looks_at_runs
from onward.model.events import RunQueued
from onward.model.run import AttemptState, OpenStep, Run, RunStatus, StepCalls
from tests.machine.play import created

NOW_US = 1_000_000_000
NOBODY = HolderView(None, False, "tests", NOW_US)


def waiting(*runs: str, status: RunStatus = RunStatus.WAITING, reason: str = "", events: int = 10) -> Run:
    """A run whose flow waits for these since NOW_US, with so many events of history."""
    held = OpenStep(
        step="flow#1",
        node="flow",
        attempt=1,
        token=1,
        state=AttemptState.HELD,
        held="wait",
        calls=StepCalls(since=5, calls_from=5),
        awaits=runs,
    )
    return replace(
        created(),
        status=status,
        reason=reason,
        updated_at_us=NOW_US,
        head=5 + events,
        open_steps={"flow#1": held},
    )


@pytest.mark.parametrize(
    ("run", "is_told"),
    [
        (waiting("one", "two"), True),
        (waiting("two"), False),
        (waiting("one", status=RunStatus.INTERRUPTED, reason="child"), True),
        (waiting("one", status=RunStatus.INTERRUPTED, reason="limit"), False),
        (waiting("one", status=RunStatus.RUNNING), False),
        (replace(waiting("one", status=RunStatus.INTERRUPTED, reason="child"), is_dismissed=True), False),
    ],
)
def test_only_a_flow_that_waits_for_the_run_is_queued(run: Run, is_told: bool) -> None:
    assert bool(decide_awaited(run, NOBODY, child="one")) is is_told


def test_a_flow_with_a_long_history_does_not_run_again_for_each_of_many_runs() -> None:
    (short,) = decide_awaited(waiting("one"), NOBODY, child="one")
    (long,) = decide_awaited(waiting("one", events=100_000), NOBODY, child="one")
    assert isinstance(short, RunQueued)
    assert isinstance(long, RunQueued)
    assert (short.wake_at_us, long.wake_at_us) == (NOW_US + 3_000, NOW_US + 30_000_000)
    later = replace(NOBODY, now_us=NOW_US + 60_000_000)
    (then,) = decide_awaited(waiting("one", events=100_000), later, child="one")
    assert isinstance(then, RunQueued)
    assert then.wake_at_us == later.now_us


def test_a_person_lets_only_a_flow_look_that_waits_for_runs() -> None:
    assert looks_at_runs(waiting("one"), NOW_US)
    assert not looks_at_runs(waiting(), NOW_US)
