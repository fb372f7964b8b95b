"""A managing step names its child when it begins, and the planner never leaves it in doubt."""

from __future__ import annotations

from onward.machine.decide.owner_loss import orphaned
from onward.model.events import RunForked, StepStarted
from onward.model.ids import child_run_id, sortable_id
from tests.machine.play import Play

CHILD = "graph [stack.child_dotfile=c]; "
MANAGED = CHILD + "m [shape=house, repeatable=false, max_retries=1]; a [prompt=p]; start -> m -> a -> exit"


def test_a_child_is_named_by_run_and_step_and_sorts_by_the_steps_start() -> None:
    at_us = 1_700_000_000_123_456
    name = child_run_id("run", "m#1", at_us)
    assert name == child_run_id("run", "m#1", at_us)
    assert len({name, child_run_id("run", "m#2", at_us), child_run_id("other", "m#1", at_us)}) == 3
    assert sortable_id(at_us // 1000, 0) <= name <= sortable_id(at_us // 1000, (1 << 80) - 1)


def test_only_a_managing_step_names_a_child() -> None:
    play = Play(MANAGED)
    assert play.started.child is not None
    play.succeed()
    assert play.started.child is None


def test_every_attempt_of_a_step_names_the_same_child_however_it_came_about() -> None:
    play = Play(MANAGED)
    child = play.started.child
    play.now_us += 5_000_000
    play.claim()  # cut off: repeatable=false does not make a manager doubtful
    assert play.started.child == child
    play.fail(retryable=True)
    play.now_us += 60_000_000
    play.go()
    assert (play.started.attempt, play.started.child) == (2, child)
    assert play.refolded() == play.run


def test_another_visit_names_another_child() -> None:
    play = Play(CHILD + 'm [shape=house]; start -> m; m -> m [condition="context.again=1"]; m -> exit')
    first = play.started.child
    play.succeed(again=1)
    assert play.started.step == "m#2"
    assert play.started.child not in (None, first)


def test_a_fork_does_not_take_the_originals_child_with_it() -> None:
    play = Play(
        CHILD + "f [shape=component]; j [shape=tripleoctagon]; m [shape=house]; c [type=t]; "
        "start -> f; f -> m -> j; f -> c -> j; j -> exit"
    )
    (managing,) = [e for e in play.events if isinstance(e, StepStarted) and e.child]
    play.write(RunForked(parent="r", parent_seq=1, parent_hash="00", by="ann"))
    assert play.run.open_steps[managing.step].child is None


def test_a_child_is_left_behind_by_what_closes_its_step_without_an_outcome() -> None:
    play = Play(MANAGED)
    child, before, known = play.started.child, play.run, len(play.events)
    play.resume(action="skip")
    assert orphaned(before, play.run, play.events[known:]) == [child]
    play = Play(MANAGED)
    before, known = play.run, len(play.events)
    play.succeed()
    assert orphaned(before, play.run, play.events[known:]) == []
