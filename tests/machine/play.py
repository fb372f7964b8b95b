"""A run that is driven by hand through the pure functions, with its whole log kept.

What the engine does with databases and handlers is done here with plain calls, so that a test can put
a crash, a request or a result between any two events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onward.machine.decide.requests import (
    HolderView,
    decide_answer,
    decide_cancel,
    decide_claim,
    decide_pause,
)
from onward.machine.decide.resume import ResumeRequest, decide_resume
from onward.machine.definition import Definition
from onward.machine.lifecycle import apply, fold
from onward.machine.plan.action import Action, Execute
from onward.machine.plan.planner import advance
from onward.machine.plan.results import finish
from onward.model.events import Event, RunClaimed, RunCreated, StepFinished, StepStarted
from onward.model.gate import Answer
from onward.model.result import Result
from onward.model.run import Run, RunStatus
from onward.pipeline.build import build
from onward.pipeline.rules.check import RULES
from onward.pipeline.rules.steps import rules_beside

NO_ONE = HolderView(None, False, "second")
DEAD = HolderView("first", False, "second")
ALIVE = HolderView("first", True, "second")


def define(body: str) -> Definition:
    """A pipeline with a start and an exit around `body`; nothing is run, so tools need no command."""
    source = f"digraph g {{ start [shape=Mdiamond]; exit [shape=Msquare]; {body} }}"
    return Definition(build(source, file="<test>", rules=rules_beside("tool", RULES)).graph)


def created(context: Mapping[str, Any] | None = None, *, run_id: str = "r", start: str = "start") -> Run:
    """A run that exists and nothing more."""
    event = RunCreated(pipeline="g", pipeline_hash="h", start_node=start, context=dict(context or {}))
    return apply(None, event, run_id=run_id, at_us=0, token=0)


class Play:
    """One run of one pipeline, claimed and advanced to its first effect unless told otherwise."""

    def __init__(
        self,
        body: str | Definition,
        context: Mapping[str, Any] | None = None,
        *,
        claim: bool = True,
        simulation: dict[str, Any] | None = None,
    ) -> None:
        self.definition = body if isinstance(body, Definition) else define(body)
        first = RunCreated(
            pipeline="g",
            pipeline_hash="h",
            start_node="start",
            context=dict(context or {}),
            simulation=simulation,
        )
        self.now_us = 1_000_000
        self.log: list[tuple[Event, int, int]] = [(first, self.now_us, 0)]
        self.run = apply(None, first, run_id="r", at_us=self.now_us, token=0)
        self.action: Action | None = None
        if claim:
            self.claim("first")

    @property
    def events(self) -> list[Event]:
        return [event for event, _, _ in self.log]

    @property
    def last(self) -> Event:
        return self.log[-1][0]

    @property
    def started(self) -> StepStarted:
        """The effect that is to be performed now."""
        assert isinstance(self.action, Execute), self.action
        return self.action.started

    @property
    def path(self) -> list[str]:
        """The nodes that finished, in order."""
        return [event.node for event in self.events if isinstance(event, StepFinished)]

    def write(self, *events: Event) -> None:
        """What a writer does: apply, and keep."""
        for event in events:
            token = event.token if isinstance(event, RunClaimed) else self.run.token
            self.run = apply(self.run, event, run_id="r", at_us=self.now_us, token=token)
            self.log.append((event, self.now_us, token))

    def go(self, first: Sequence[Event] = (), *, stop_reason: str | None = None) -> Action:
        """What a holder does: record `first` and everything that follows without an effect."""
        ahead = advance(self.definition, self.run, first, now_us=self.now_us, stop_reason=stop_reason)
        self.write(*ahead.events)
        assert self.run == ahead.run
        self.action = ahead.action
        return ahead.action

    def result(self, result: Result, *, stop_reason: str | None = None, jitter: float = 0.5) -> Action:
        """The effect under way came to `result`."""
        return self.end(self.started.step, result, stop_reason=stop_reason, jitter=jitter)

    def end(
        self, step: str, result: Result, *, stop_reason: str | None = None, jitter: float = 0.5
    ) -> Action:
        """One of the effects under way came to `result`."""
        ended = finish(self.definition, self.run, step, result, now_us=self.now_us, jitter=jitter)
        return self.go(ended, stop_reason=stop_reason)

    def succeed(self, *, label: str = "", suggest: Sequence[str] = (), **updates: Any) -> Action:
        """The effect under way succeeded."""
        return self.result(
            Result(context_updates=updates, preferred_label=label, suggested_next_ids=tuple(suggest))
        )

    def fail(self, reason: str = "broken", *, retryable: bool = False) -> Action:
        """The effect under way failed, by default for good."""
        return self.result(Result.fail(reason, retryable=retryable))

    # -- other writers -------------------------------------------------------------------------------

    def claim(self, asker: str = "second") -> Action:
        """Somebody takes the run, whose owner, if there was one, is dead."""
        holder = "first" if self.run.status is RunStatus.RUNNING else None
        self.write(*decide_claim(self.run, HolderView(holder, False, asker, self.now_us)))
        return self.go()

    def pause(self, holder_view: HolderView = ALIVE, after: str = "step") -> tuple[Event, ...]:
        events = decide_pause(self.run, holder_view, after=after, by="pat")
        self.write(*events)
        return events

    def cancel(self, holder_view: HolderView = ALIVE) -> tuple[Event, ...]:
        events = decide_cancel(self.run, holder_view, by="kim")
        self.write(*events)
        return events

    def answer(self, answer: str | Answer, *, gate: str | None = None, text: str = "") -> tuple[Event, ...]:
        said = answer if isinstance(answer, Answer) else Answer(answer, text)
        holder_view = msgspec.structs.replace(NO_ONE, now_us=self.now_us)
        events = decide_answer(self.run, holder_view, gate_id=gate, answer=said, by="pat")
        self.write(*events)
        return events

    def resume(
        self,
        holder_view: HolderView = DEAD,
        *,
        from_node: str | None = None,
        action: str | None = None,
        step: str | None = None,
        take_over: bool = False,
        raises: tuple[tuple[str, str, int], ...] = (),
    ) -> Action:
        """A person sends the run on; it is claimed and goes on."""
        request = ResumeRequest("pat", from_node, action, step, take_over=take_over, raises=raises)
        holder_view = msgspec.structs.replace(holder_view, now_us=self.now_us)
        self.write(*decide_resume(self.definition, self.run, holder_view, request))
        return self.go()

    def refolded(self) -> Run:
        """The run as a reader of the log finds it."""
        run = fold(None, self.log, run_id="r")
        assert run is not None
        return run
