"""One reading of a log: what its events say about a run's steps, attempts, gates, branches and stops.

Begin with `Projection`: it folds events one by one, live or from the store, and every page, receipt and
picture uses it. It remembers what happened, while `Run` is the current state. Before it stand its values,
and which step an event is about. `tests/read/test_kinds.py` says which reader tells of which kind of event.

Nothing here reads a store, a clock or a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from onward.machine.catalogue import CATALOGUE
from onward.model import events as ev
from onward.model.call import AttemptHeld, CallFinished, CallKind, CallLost, CallStatus, Usage
from onward.model.gate import GateDecided, GateOpened, GateWithdrawn
from onward.model.ids import is_in_step, node_of, place_of, step_of_gate
from onward.model.limits import bounded_sum, is_possible
from onward.model.run import Frozen

LEFT, WITHDRAWN = "left", "withdrawn"


def _seconds(started_at_us: int, ended_at_us: int | None) -> float | None:
    """The time between two instants; never negative, even if the wall clock was set back."""
    return None if ended_at_us is None else max(0, ended_at_us - started_at_us) / 1_000_000


class Claim(Frozen, frozen=True, kw_only=True):
    """A worker claimed the run. `is_take_over`: its previous holder was lost."""

    token: int = 0
    worker: str = ""
    is_take_over: bool = False
    at_us: int = 0


class StopSeen(Frozen, frozen=True, kw_only=True):
    """Why the run stopped; `kind` is that of the event."""

    kind: str
    reason: str
    detail: str
    at_us: int


class Try(Frozen, frozen=True, kw_only=True):
    """One start of an attempt, and how it ended.

    An attempt that a crash or a stop cut off starts again: that is its next try, and `number` counts them.
    `outcome` is a step's status, `interrupted` or `held`. While a try runs, or if its process died, it has no
    outcome and no end. `output` is the end of what it printed, if it failed or was stopped. `waits`: it was
    held because it has to wait, as a flow that asks or sleeps does, and nothing went wrong.
    """

    attempt: int
    number: int
    started_at_us: int
    claim: Claim = Claim()
    ended_at_us: int | None = None
    outcome: str = ""
    reason: str = ""
    output: ev.LastOutput | None = None
    waits: bool = False

    @property
    def duration_s(self) -> float | None:
        return _seconds(self.started_at_us, self.ended_at_us)


class StepUsage(Frozen, frozen=True, kw_only=True):
    """What the recorded calls of a step came to, over all its attempts.

    Tokens are as in `Usage`. `cost_micro` is None if no call had a cost. The calls that were answered are
    counted by what they did; `failed` and `lost` count tries. `models` are those that answered, each once.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    is_measured: bool = False
    cost_micro: int | None = None
    model_calls: int = 0
    program_calls: int = 0
    tool_calls: int = 0
    function_calls: int = 0
    failed: int = 0
    lost: int = 0
    models: tuple[str, ...] = ()

    def with_call(self, call: CallFinished) -> StepUsage:
        """With one more call that has ended."""
        is_counted, counted = is_possible(call.usage, call.cost_micro), dict[str, int]()
        used = call.usage if is_counted and call.usage is not None else Usage()
        if call.status is CallStatus.ERROR:
            counted["failed"] = self.failed + 1
        elif name := _COUNTED.get(call.type):
            counted[name] = getattr(self, name) + 1
        is_new = call.model and call.status is CallStatus.OK and call.model not in self.models
        cost = self.cost_micro
        if call.cost_micro is not None and is_counted:
            cost = bounded_sum(cost or 0, call.cost_micro)
        return replace(
            self,
            input=bounded_sum(self.input, used.input),
            output=bounded_sum(self.output, used.output),
            cached=bounded_sum(self.cached, used.cached),
            cache_write=bounded_sum(self.cache_write, used.cache_write),
            reasoning=bounded_sum(self.reasoning, used.reasoning),
            is_measured=self.is_measured or (is_counted and call.usage is not None),
            cost_micro=cost,
            models=(*self.models, call.model) if is_new else self.models,
            **counted,
        )


_COUNTED = {
    CallKind.MODEL.value: "model_calls",
    CallKind.PROGRAM.value: "program_calls",
    CallKind.TOOL.value: "tool_calls",
    CallKind.FUNCTION.value: "function_calls",
    CallKind.EFFECT.value: "function_calls",
}
"""A question to a person is no call in this sense."""


class Step(Frozen, frozen=True, kw_only=True):
    """A step from its first start: work that is attempted, a gate, a fan-out, or a node the engine decides.

    `index` counts steps as they start, from 0. `state` is what the log alone can say: running, waiting,
    retrying, failed, interrupted, held, decided, rejected, withdrawn, left, or its outcome's status. `text`
    is the question of a gate, and `decisions` are its answers. `finished_seq` is the event with the outcome.
    """

    step: str
    node: str
    index: int
    started_at_us: int
    state: str = ""
    reason: str = ""
    tries: tuple[Try, ...] = ()
    log: tuple[str, ...] = ()
    child: str | None = None
    text: str = ""
    decisions: tuple[GateDecided, ...] = ()
    branches: tuple[ev.BranchPlan, ...] = ()
    ended_at_us: int | None = None
    outcome: ev.Outcome | None = None
    finished_seq: int = 0
    spent: StepUsage | None = None
    """What its recorded calls came to; None if it made none."""

    @property
    def attempts(self) -> int:
        """The number of its last attempt; a step without attempts, such as a gate, counts as one."""
        return self.tries[-1].attempt if self.tries else 1

    @property
    def duration_s(self) -> float | None:
        """How long its tries took together; None if none has ended.

        A try whose process died is not counted: when it ended is not known. A gate or a fan-out has no tries
        and takes from its start to its outcome.
        """
        if not self.tries:
            return self.elapsed_s
        known = [one.duration_s for one in self.tries if one.duration_s is not None]
        return sum(known) if known else None

    @property
    def elapsed_s(self) -> float | None:
        """From the first start to the outcome, with the time in which no process worked on it."""
        return _seconds(self.started_at_us, self.ended_at_us)


class BranchSeen(Frozen, frozen=True, kw_only=True):
    """Branch number `index` of the fan-out `step`; `status` is how it ended."""

    step: str
    index: int
    started_at_us: int
    status: str = ""
    ended_at_us: int | None = None


_ABOUT: Mapping[type[ev.Event], str] = {kind: row.about for kind, row in CATALOGUE.items() if row.about}


def step_of(event: ev.Event) -> str | None:
    """The step that an event is about; None if it is about a branch or the whole run."""
    name = _ABOUT.get(type(event))
    return None if name is None else getattr(event, name)


class Projection(msgspec.Struct):
    """What a log says, up to event `head`. Memory grows with the steps that were not forgotten.

    `steps` are in the order in which they started. `claim` and `stop` are the last ones; `checkpoint` is the
    number of the last checkpoint.
    """

    head: int = 0
    begun: int = 0
    checkpoint: int = 0
    claim: Claim = msgspec.field(default_factory=Claim)
    stop: StopSeen | None = None
    steps: dict[str, Step] = msgspec.field(default_factory=dict)
    branches: dict[str, BranchSeen] = msgspec.field(default_factory=dict)

    def copy(self) -> Projection:
        """A copy, for events that may never be committed."""
        rest = self.head, self.begun, self.checkpoint, self.claim, self.stop
        return Projection(*rest, {**self.steps}, {**self.branches})

    def apply(self, event: ev.Event, *, at_us: int) -> Step | None:
        """Add the next event; returns the step that it is about, if any."""
        self.head += 1
        happened = _HAPPENED.get(type(event))
        if happened is not None:
            happened(self, event, at_us)
        step = step_of(event)
        return None if step is None else self.steps.get(step)

    def completed(self) -> list[str]:
        """The finished steps, in the order in which they got their outcome."""
        finished = (step for step in self.steps.values() if step.finished_seq)
        return [step.step for step in sorted(finished, key=lambda step: step.finished_seq)]

    def branches_of(self, step: str) -> list[BranchSeen]:
        """The branches of a fan-out, in order."""
        return [self.branches[plan.path] for plan in self.steps[step].branches]

    def forget(self, step: str) -> None:
        """Drop a finished step, its questions and its branches with their steps, to free memory."""
        forgotten = self.steps.pop(step, None)
        for asked in [name for name in self.steps if name.startswith(f"{step}:")]:
            del self.steps[asked]
        if forgotten is None or not forgotten.branches:
            return
        inside = f"{step}."
        for known in (self.steps, self.branches):
            for name in [name for name in known if name.startswith(inside)]:
                del known[name]

    def _begin(self, step: str, node: str, at_us: int) -> Step:
        found = self.steps.get(step)
        if found is None:
            found = Step(step=step, node=node, index=self.begun, started_at_us=at_us)
            self.begun += 1
        return found

    def _known(self, step: str, at_us: int) -> Step:
        """The step; one that the engine itself decides starts with its first event."""
        return self._begin(step, node_of(place_of(step_of_gate(step))), at_us)

    # -- steps -----------------------------------------------------------------------------------------

    def _started(self, event: ev.StepStarted, at_us: int) -> None:
        before = self._begin(event.step, event.node, at_us)
        begun = Try(
            attempt=event.attempt,
            number=1 + sum(one.attempt == event.attempt for one in before.tries),
            started_at_us=at_us,
            claim=self.claim,
        )
        child = event.child or before.child
        self.steps[event.step] = replace(before, state="running", tries=(*before.tries, begun), child=child)

    def _failed(self, event: ev.AttemptFailed, at_us: int) -> None:
        step = _ended(self._known(event.step, at_us), event, event.status.value, event.reason, at_us)
        state = "failed" if event.retry_at_us is None else "retrying"
        log = (*step.log, *event.log)
        self.steps[event.step] = replace(step, state=state, reason=event.reason, log=log)

    def _interrupted(self, event: ev.AttemptInterrupted, at_us: int) -> None:
        step = _ended(self._known(event.step, at_us), event, "interrupted", event.why, at_us)
        self.steps[event.step] = replace(step, state="interrupted", reason=event.why)

    def _held(self, event: AttemptHeld, at_us: int) -> None:
        step = _ended(self._known(event.step, at_us), event, "held", event.detail or event.reason, at_us)
        self.steps[event.step] = replace(step, state="held", reason=event.detail or event.reason)

    def _called(self, event: CallFinished, at_us: int) -> None:
        if event.type != CallKind.GATE.value:
            step = self._known(event.step, at_us)
            self.steps[event.step] = replace(step, spent=(step.spent or StepUsage()).with_call(event))

    def _call_lost(self, event: CallLost, at_us: int) -> None:
        step = self._known(event.step, at_us)
        spent = step.spent or StepUsage()
        self.steps[event.step] = replace(step, spent=replace(spent, lost=spent.lost + 1))

    def _finished(self, event: ev.StepFinished, at_us: int) -> None:
        outcome, status = event.outcome, event.outcome.status.value
        step = self._begin(event.step, event.node, at_us)
        self.steps[event.step] = replace(
            _ended(step, event, status, outcome.failure_reason, at_us),
            state=status,
            reason=outcome.failure_reason,
            log=(*step.log, *event.log),
            ended_at_us=at_us,
            outcome=outcome,
            finished_seq=self.head,
        )
        self.checkpoint = self.head

    # -- gates and branches ----------------------------------------------------------------------------

    def _opened(self, event: GateOpened, at_us: int) -> None:
        """A gate that opens again is a new question, with its own start."""
        step = self._begin(event.gate, event.node, at_us)
        self.steps[event.gate] = replace(
            step, state="waiting", text=event.text, started_at_us=at_us, ended_at_us=None, decisions=()
        )

    def _decided(self, event: GateDecided, at_us: int) -> None:
        step, state = self._known(event.gate, at_us), "rejected" if event.rejected else "decided"
        # The answer to a question inside a step routes nothing: there is no more to come.
        ended_at_us = at_us if is_in_step(event.gate) else step.ended_at_us
        decisions = (*step.decisions, event)
        self.steps[event.gate] = replace(step, state=state, decisions=decisions, ended_at_us=ended_at_us)

    def _withdrawn(self, event: GateWithdrawn, at_us: int) -> None:
        self.steps[event.gate] = replace(self._known(event.gate, at_us), state=WITHDRAWN)

    def _fanned_out(self, event: ev.ParallelStarted, at_us: int) -> None:
        step = self._begin(event.step, event.node, at_us)
        self.steps[event.step] = replace(step, state="running", started_at_us=at_us, branches=event.branches)
        for index, plan in enumerate(event.branches):
            self.branches[plan.path] = BranchSeen(step=event.step, index=index, started_at_us=at_us)

    def _branch_finished(self, event: ev.BranchFinished, at_us: int) -> None:
        branch = self.branches.get(event.branch)
        if branch is not None:
            self.branches[event.branch] = replace(branch, status=event.status, ended_at_us=at_us)

    # -- the run ---------------------------------------------------------------------------------------

    def _created(self, event: ev.RunCreated, at_us: int) -> None:
        self.checkpoint = self.head

    def _claimed(self, event: ev.RunClaimed, at_us: int) -> None:
        self.claim = Claim(token=event.token, worker=event.worker, is_take_over=event.lost, at_us=at_us)
        self.stop = None

    def _stopped(
        self, event: ev.RunPaused | ev.RunInterrupted | ev.RunFailed | ev.RunCancelled, at_us: int
    ) -> None:
        detail = event.detail or (event.by if isinstance(event, ev.RunCancelled) else "")
        self.stop = StopSeen(kind=event.kind, reason=event.reason, detail=detail, at_us=at_us)

    def _forked(self, event: ev.RunForked, at_us: int) -> None:
        self._leave("left in the run that this one was forked from")

    def _resumed(self, event: ev.RunResumed, at_us: int) -> None:
        if event.from_node is not None:
            self._leave("abandoned when the run was resumed from another node")

    def _leave(self, why: str) -> None:
        for id, step in self.steps.items():
            if step.ended_at_us is None and step.state != WITHDRAWN:
                self.steps[id] = replace(step, state=LEFT, reason=why)


_WAITS = ("gate", "wait")
"""Why an attempt is held that has nothing to do until somebody answers or a time comes."""


def _ended(
    step: Step,
    event: ev.AttemptFailed | ev.AttemptInterrupted | AttemptHeld | ev.StepFinished,
    outcome: str,
    reason: str,
    at_us: int,
) -> Step:
    """The step with its last try ended, unless that has already ended."""
    if not step.tries or step.tries[-1].ended_at_us is not None:
        return step
    *earlier, last = step.tries
    output = None if isinstance(event, AttemptHeld) else event.output
    waits = isinstance(event, AttemptHeld) and event.reason in _WAITS
    last = replace(last, ended_at_us=at_us, outcome=outcome, reason=reason, output=output, waits=waits)
    return replace(step, tries=(*earlier, last))


_HAPPENED: Mapping[type[ev.Event], Callable[[Projection, Any, int], None]] = {
    ev.RunCreated: Projection._created,
    ev.RunForked: Projection._forked,
    ev.RunClaimed: Projection._claimed,
    ev.RunResumed: Projection._resumed,
    ev.RunPaused: Projection._stopped,
    ev.RunInterrupted: Projection._stopped,
    ev.RunFailed: Projection._stopped,
    ev.RunCancelled: Projection._stopped,
    ev.StepStarted: Projection._started,
    ev.AttemptFailed: Projection._failed,
    ev.AttemptInterrupted: Projection._interrupted,
    AttemptHeld: Projection._held,
    ev.StepFinished: Projection._finished,
    CallFinished: Projection._called,
    CallLost: Projection._call_lost,
    ev.ParallelStarted: Projection._fanned_out,
    ev.BranchFinished: Projection._branch_finished,
    GateOpened: Projection._opened,
    GateDecided: Projection._decided,
    GateWithdrawn: Projection._withdrawn,
}
