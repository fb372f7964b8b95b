"""What holds for every pipeline, every result, every crash and every request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import event as note
from hypothesis import given
from hypothesis import strategies as st

from onward.machine.catalogue import CHECKPOINTS
from onward.machine.decide.owner_loss import LOSSES_MAX
from onward.machine.definition import Definition
from onward.machine.fold.rows import run_row
from onward.machine.fold.snapshot import decode_run, encode_run
from onward.machine.lifecycle import apply, fold
from onward.machine.plan.action import Sleep
from onward.machine.plan.planner import advance
from onward.machine.reasons import REASONS
from onward.model.context import same
from onward.model.events import RunClaimed, RunForked, StepFinished, StepStarted, StepStatus
from onward.model.gate import GateDecided, GateOpened
from onward.model.result import Result
from onward.model.run import Gate, Run, RunStatus
from tests.chance import examples
from tests.machine.play import Play
from tests.machine.walk import UPDATES, Walk, definitions

STOPPED = (RunStatus.PAUSED, RunStatus.INTERRUPTED, RunStatus.FAILED, RunStatus.CANCELLED)
contexts = st.dictionaries(st.sampled_from(["k", "l"]), st.integers(0, 2), max_size=2)


def walked(data: st.DataObject, definition: Definition, context: dict[str, Any]) -> Walk:
    """A life of up to forty moves, with every state on the way looked at and every plan made twice."""
    walk = Walk(definition, context)
    check_state(walk)
    for _ in range(data.draw(st.integers(10, 40))):
        if walk.run.is_final:
            break
        walk.move(data.draw)
        check_state(walk)
    note(f"ends {walk.run.status} {walk.run.reason}")
    return walk


def check_state(walk: Walk) -> None:
    """What must be true of a run at any moment."""
    run = walk.run
    assert run.next_node == walk.next_node
    assert same(dict(sorted(run.context.items())), dict(sorted(walk.context.items())))
    assert (run.worker is None) is (run.status is not RunStatus.RUNNING)
    assert run.steps_finished == len(walk.path)
    assert run.reroutes <= walk.definition.max_reroutes
    assert all(count <= walk.definition.max_visits for count in run.visits.values())
    if run.status in STOPPED:
        assert REASONS[run.reason].status is run.status
    if run.status is RunStatus.WAITING:
        assert any(gate.decided is None for gate in run.gates.values())
    if run.status is RunStatus.QUEUED:
        assert run.wake_at_us is not None
    if run.is_final:
        assert (run.open_steps, run.gates, run.directives) == ({}, {}, {})
        assert run.pending.cancel_by is None
        assert run.pending.pause_after is None
    run_row(run)


@examples(120)
@given(st.data(), definitions(), contexts)
def test_every_life_is_lawful(data: st.DataObject, definition: Definition, context: dict[str, Any]) -> None:
    """I2, I6, I7, I8, I10: the log of any life, however it was lived."""
    check_life(walked(data, definition, context))


def check_life(walk: Walk) -> None:
    tokens = [token for _, _, token in walk.log]
    assert tokens == sorted(tokens)
    claims = [event.token for event in walk.events if isinstance(event, RunClaimed)]
    assert claims == list(range(1, len(claims) + 1))
    finished = [event.step for event in walk.events if isinstance(event, StepFinished)]
    assert len(finished) == len(set(finished))
    assert walk.run.head == len(walk.log)
    _check_starts(walk)
    _check_gates(walk)


def _check_starts(walk: Walk) -> None:
    """No attempt begins for a step that has its outcome, and attempts are numbered without gaps."""
    done: set[str] = set()
    attempts: dict[str, int] = {}
    for event in walk.events:
        if isinstance(event, StepStarted):
            assert event.step not in done
            assert event.attempt - attempts.get(event.step, 0) in (0, 1)
            attempts[event.step] = event.attempt
        elif isinstance(event, StepFinished):
            done.add(event.step)


def _check_gates(walk: Walk) -> None:
    """A gate is opened once and decided at most once."""
    opened = [event.gate for event in walk.events if isinstance(event, GateOpened)]
    decided = [event.gate for event in walk.events if isinstance(event, GateDecided)]
    assert len(opened) == len(set(opened))
    assert len(decided) == len(set(decided))
    assert set(decided) <= set(opened)


@examples(80)
@given(st.data(), definitions(), contexts)
def test_a_log_folds_to_the_same_state_in_one_part_or_two(
    data: st.DataObject, definition: Definition, context: dict[str, Any]
) -> None:
    """I4: also when the first part comes back from a snapshot."""
    walk = walked(data, definition, context)
    cut = data.draw(st.integers(1, len(walk.log)))
    whole = walk.refolded()
    assert exact(whole) == exact(walk.run)
    first = fold(None, walk.log[:cut], run_id="r")
    assert first is not None
    for start in (first, decode_run(encode_run(first))):
        second = fold(start, walk.log[cut:], run_id="r")
        assert second is not None
        assert second == whole
        assert exact(second) == exact(whole)


def exact(run: Run) -> bytes:
    """The state with the type and the order of everything in it."""
    return encode_run(run)


@examples(50)
@given(st.data(), definitions(), contexts)
def test_a_fork_can_go_on_from_every_checkpoint(
    data: st.DataObject, definition: Definition, context: dict[str, Any]
) -> None:
    """K18: every prefix of a log that ends in a checkpoint can be forked, claimed and planned."""
    walk = walked(data, definition, context)
    for seq, (event, at_us, _) in enumerate(walk.log, 1):
        if not isinstance(event, CHECKPOINTS):
            continue
        parent = fold(None, walk.log[:seq], run_id="r")
        assert parent is not None
        forked = RunForked(parent="r", parent_seq=seq, parent_hash="", by="pat", context={"k": 1})
        child = apply(parent, forked, run_id="child", at_us=at_us, token=parent.token)
        assert (child.id, child.next_node, child.context["k"]) == ("child", parent.next_node, 1)
        claim = RunClaimed(token=child.token + 1, worker="w")
        child = apply(child, claim, run_id="child", at_us=at_us, token=claim.token)
        advance(definition, child, (), now_us=at_us, stop_reason=None)


@examples(50)
@given(st.data(), definitions(), contexts)
def test_a_stored_event_means_what_the_event_meant(
    data: st.DataObject, definition: Definition, context: dict[str, Any]
) -> None:
    """A log that went through JSON folds to the same state: nothing lives only in memory."""
    walk = walked(data, definition, context)
    stored = [
        (msgspec.json.decode(msgspec.json.encode(event), type=type(event)), at_us, token)
        for event, at_us, token in walk.log
    ]
    again = fold(None, stored, run_id="r")
    assert again is not None
    assert exact(again) == exact(walk.run)


class Script:
    """What every attempt comes to and every question is answered with, made up when first asked for."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self._results: dict[tuple[str, int], Result] = {}
        self._answers: dict[str, str] = {}

    def result(self, step: str, attempt: int) -> Result:
        if (step, attempt) not in self._results:
            status = self._data.draw(st.sampled_from([StepStatus.SUCCESS, StepStatus.SUCCESS, *StepStatus]))
            label = self._data.draw(st.sampled_from(["", "", "go"]))
            self._results[step, attempt] = Result(status, self._data.draw(UPDATES), label)
        return self._results[step, attempt]

    def answer(self, gate: Gate) -> str:
        if gate.gate not in self._answers:
            keys = [choice.key for choice in gate.choices]
            self._answers[gate.gate] = self._data.draw(st.sampled_from(keys))
        return self._answers[gate.gate]


def lived(definition: Definition, script: Script, *, dies: Callable[[], bool]) -> Play:
    """A run executed to its stop by a script; its owners die when `dies` says so."""
    play = Play(definition)
    while play.run.status in (RunStatus.RUNNING, RunStatus.WAITING):
        if play.run.status is RunStatus.WAITING:
            [gate] = play.run.gates.values()
            play.answer(script.answer(gate))
            play.claim()
        elif play.run.losses < LOSSES_MAX - 1 and dies():
            play.claim()
        elif isinstance(play.action, Sleep):
            play.now_us = play.action.until_us
            play.go()
        else:
            play.result(script.result(play.started.step, play.started.attempt))
    return play


@examples(80)
@given(st.data(), definitions(all_repeatable=True))
def test_owners_that_die_anywhere_change_nothing_but_the_log(
    data: st.DataObject, definition: Definition
) -> None:
    """P17, K1, K2: the same results lead to the same end, wherever and however often owners died."""
    script = Script(data)
    control = lived(definition, script, dies=lambda: False)
    crashed = lived(definition, script, dies=lambda: data.draw(st.booleans()))
    note(f"ends {control.run.status} {control.run.reason}")
    assert crashed.path == control.path
    one, other = control.run, crashed.run
    assert (one.status, one.reason, one.detail) == (other.status, other.reason, other.detail)
    assert same(one.context.plain(), other.context.plain())
    assert (one.visits, one.executions, one.outcomes) == (other.visits, other.executions, other.outcomes)
    assert (one.retries, one.reroutes, one.next_node) == (other.retries, other.reroutes, other.next_node)
