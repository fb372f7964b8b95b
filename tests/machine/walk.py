"""Random small pipelines, and random legal lives of their runs.

A walk makes every decision through the same functions as the engine; what is random is the pipeline,
the results of effects, the deaths of owners, and what people ask for. Beside the run it keeps a model
so simple that it can hardly be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from onward.errors import InvalidInput, Refused
from onward.machine.definition import Definition
from onward.machine.fold.snapshot import decode_run, encode_run
from onward.machine.plan.action import Action, Execute, Sleep
from onward.machine.plan.planner import advance
from onward.model.events import Event, GoalRedirected, RunQueued, RunResumed, StepFinished, StepStatus
from onward.model.result import Result
from onward.model.run import RunStatus
from tests.machine.play import ALIVE, DEAD, NO_ONE, Play, define

Draw = Callable[[st.SearchStrategy[Any]], Any]

GATE = "shape=hexagon"
KINDS = ("type=tool", "type=tool", "prompt=p", "shape=diamond", GATE)
EXTRAS = (
    "goal_gate=true",
    "max_retries=1",
    "max_retries=2",
    "allow_partial=true",
    "repeatable=false",
    "continue_on_fail=true",
    "fidelity=full",
    "retry_target=n0",
    "human.timeout=1s",
    "human.on_timeout=reject",
)
GUARDS = ("", "", 'condition="outcome=fail"', 'condition="outcome=success"', 'condition="context.k=1"')
LABELS = ("", "", "label=go", 'label="[G] Go"', "label=back")
VALUES = st.one_of(
    st.integers(0, 2),
    st.sampled_from([True, None, 1.0, "1", "", {"a": 1}]),
    st.lists(st.integers(0, 2), max_size=3),
)
UPDATES = st.dictionaries(st.sampled_from(["k", "l", "m"]), VALUES, max_size=2)


@st.composite
def definitions(draw: Draw, *, all_repeatable: bool = False) -> Definition:
    """A pipeline of up to five nodes that hang together anyhow, with loops, gates and low ceilings."""
    written = [extra for extra in EXTRAS if not (all_repeatable and _key(extra) == "repeatable")]
    count = draw(st.integers(1, 5))
    names = [f"n{i}" for i in range(count)]
    lines = ["max_visits=6; max_steps=25; max_reroutes=2; default_fidelity=full"]
    for name in names:
        kind = draw(st.sampled_from(KINDS))
        read = [extra for extra in written if kind == GATE or not extra.startswith("human.")]
        extras = draw(st.lists(st.sampled_from(read), max_size=2, unique_by=_key))
        lines.append(f"{name} [{', '.join([kind, *extras])}]")
    edges = [("start", "n0", "")]
    for index in range(1, count):  # every node can be reached
        edges.append((names[draw(st.integers(0, index - 1))], names[index], _attributes(draw)))
    edges.append((names[-1], "exit", _attributes(draw)))
    for _ in range(draw(st.integers(0, 4))):
        source, target = draw(st.sampled_from(names)), draw(st.sampled_from([*names, "exit"]))
        edges.append((source, target, _attributes(draw)))
    lines += [f"{source} -> {target} [{attributes}]" for source, target, attributes in edges]
    if draw(st.booleans()):
        lines.append("retry_target=n0")
    return define("; ".join(lines))


def _key(written: str) -> str:
    return written.partition("=")[0]


def _attributes(draw: Draw) -> str:
    parts = [draw(st.sampled_from(GUARDS)), draw(st.sampled_from(LABELS))]
    parts.append(draw(st.sampled_from(["", "weight=1"])))
    return ", ".join(part for part in parts if part)


class Walk(Play):
    """A run with its model: its context as a plain dict, and the node that it must stand before."""

    def __init__(self, definition: Definition, context: dict[str, Any]) -> None:
        self.context: dict[str, Any] = dict(context)
        self.next_node: str | None = "start"
        self._updates: dict[str, Any] = {}
        super().__init__(definition, context)

    def go(self, first: Sequence[Event] = (), *, stop_reason: str | None = None) -> Action:
        """Also plans a second time, as another process would that has only read the log."""
        before, written = self.run, len(self.log)
        action = super().go(first, stop_reason=stop_reason)
        copy = decode_run(encode_run(before))
        assert copy is not None
        fresh = Definition(self.definition.graph)
        again = advance(fresh, copy, first, now_us=self.now_us, stop_reason=stop_reason)
        assert (again.action, again.events) == (action, self.events[written:])
        return action

    def write(self, *events: Event) -> None:
        for event in events:
            super().write(event)
            self._model(event)

    def _model(self, event: Event) -> None:
        match event:
            case StepFinished():
                self._finished(event)
            case GoalRedirected():
                self.next_node = event.next.to
            case RunResumed(from_node=str() as node):
                self.next_node = node

    def _finished(self, event: StepFinished) -> None:
        self.next_node = None if event.next is None else event.next.to
        if "human.gate.selected" in event.context:
            self.context |= event.context
        elif event.node in self.definition.handler_kinds and event.outcome.notes != "skipped by a person":
            self.context |= self._updates
        if event.outcome.status is not StepStatus.SKIPPED:
            self.context["outcome"] = event.outcome.status.value
            if event.outcome.preferred_label:
                self.context["preferred_label"] = event.outcome.preferred_label

    def move(self, draw: Draw) -> None:
        """One thing happens."""
        self.now_us += draw(st.sampled_from([1, 1_000_000]))
        if self.run.status is RunStatus.RUNNING:
            self._move_held(draw)
        else:
            self._move_stopped(draw)

    def _move_held(self, draw: Draw) -> None:
        move = draw(st.sampled_from(["result"] * 12 + ["die", "ask", "drain"]))
        if move == "die":
            self.claim()
        elif move == "ask":
            self.pause(ALIVE) if draw(st.integers(0, 4)) else self.cancel(ALIVE)
        elif isinstance(self.action, Sleep):
            if move == "drain":
                self.write(RunQueued(why="a long wait", wake_at_us=self.action.until_us))
            else:
                self.now_us = max(self.now_us, self.action.until_us)
                self.go()
        elif isinstance(self.action, Execute):
            self._result(draw, "signal" if move == "drain" else None)

    def _result(self, draw: Draw, stop_reason: str | None) -> None:
        status = draw(st.sampled_from([StepStatus.SUCCESS, StepStatus.SUCCESS, *StepStatus]))
        self._updates = draw(UPDATES)
        result = Result(
            status=status,
            context_updates=self._updates,
            preferred_label=draw(st.sampled_from(["", "", "Go", "back"])),
            suggested_next_ids=draw(st.sampled_from([(), ("n1",), ("exit",)])),
            failure_reason="r",
            retryable=draw(st.booleans()),
        )
        self.result(result, stop_reason=stop_reason)

    def _move_stopped(self, draw: Draw) -> None:
        nodes = st.sampled_from(list(self.definition.graph.nodes))
        moves: list[Callable[[], object]] = [
            lambda: self._claim_if_due(),
            lambda: self.answer(draw(st.sampled_from(self._answers()))),
            lambda: self.resume(DEAD),
            lambda: self.resume(NO_ONE, action=draw(st.sampled_from(["retry", "skip", "continue", "abort"]))),
            lambda: self.resume(NO_ONE, from_node=draw(nodes)),
            lambda: self.pause(NO_ONE),
            lambda: self.cancel(NO_ONE),
        ]
        likely = {
            RunStatus.QUEUED: [0],
            RunStatus.WAITING: [1],
            RunStatus.FAILED: [2, 3, 4],
            RunStatus.INTERRUPTED: [3],
        }.get(self.run.status, [2])
        choice = draw(st.sampled_from(likely * 4 + list(range(len(moves)))))
        self._try(moves[choice])

    def _answers(self) -> list[str]:
        keys = [choice.key for gate in self.run.gates.values() for choice in gate.choices]
        return [*keys * 4, "go", "exit", "no such choice"]

    def _claim_if_due(self) -> None:
        if self.run.wake_at_us is not None:
            self.claim()

    def _try(self, move: Callable[[], object]) -> None:
        """A refusal is an answer, and changes nothing."""
        before = self.run
        try:
            move()
        except (Refused, InvalidInput):
            assert self.run is before
