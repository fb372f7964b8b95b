"""What a log means: what happens to one branch, step or question leaves the others alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from onward.model.context import FrozenMap
from onward.model.events import (
    AttemptFailed,
    AttemptInterrupted,
    Event,
    GoalRedirected,
    RunForked,
    RunInterrupted,
    RunResumed,
    StepStatus,
    Transition,
)
from onward.model.gate import GateDecided, GateOpened, GateWithdrawn
from onward.model.run import Branch
from tests.machine.events import ASKED, YES, finished, held, started, then

BESIDE = GateOpened(gate="h#1", node="h", text="And this?", choices=(YES,))


@pytest.mark.parametrize(
    "event",
    [
        started(),
        finished("s#1"),
        GoalRedirected(gate="a", next=Transition(to="a", reason="goal_gate")),
        ASKED,
        RunForked(parent="p", parent_seq=1, parent_hash="", by="pat"),
    ],
    ids=lambda event: event.kind,
)
def test_what_happens_on_one_line_leaves_other_lines_alone(event: Event) -> None:
    """A branch has a context and a place of its own."""
    side = Branch(context=FrozenMap({"x": 1}), next_node="z")
    run = held()
    run = replace(run, branches={**run.branches, "side": side})
    after = then(run, event).branches["side"]
    assert replace(after, first_hop=False) == side
    assert after.first_hop is isinstance(event, RunForked)  # another run has other sessions


@pytest.mark.parametrize(
    "event",
    [
        started("c#1"),
        finished("s#1"),
        AttemptFailed(step="a#1", attempt=1, status=StepStatus.FAIL, reason="x"),
        AttemptInterrupted(step="a#1", attempt=1, why="x"),
        ASKED,
        GateDecided(gate="i#1", choice=YES, by="pat"),
        GateWithdrawn(gate="i#1"),
    ],
    ids=lambda event: event.kind,
)
def test_what_happens_to_one_step_or_question_leaves_the_others_alone(event: Event) -> None:
    run = then(held(), started(), started("b#1"), BESIDE, replace(BESIDE, gate="i#1", node="i"))
    after = then(run, event)
    assert after.open_steps["b#1"] == run.open_steps["b#1"]
    assert after.gates["h#1"] == run.gates["h#1"]


def test_a_resume_keeps_what_was_decided_for_other_steps_and_lines() -> None:
    side = Branch(context=FrozenMap(), next_node="z")
    run = then(held(), started(), RunInterrupted(reason="in_doubt"))
    run = replace(run, directives={"b#1": "continue"}, branches={**run.branches, "side": side})
    resumed = then(run, RunResumed(by="pat", action="retry", step="a#1"))
    assert resumed.directives == {"b#1": "continue", "a#1": "retry"}
    assert resumed.branches["side"] == side
    assert list(then(run, RunResumed(by="pat", from_node="a")).branches) == [""]
