"""The values of a projection: steps, attempts, branches, claims and stops."""

from __future__ import annotations

from msgspec.structs import replace

from onward.model.call import CallFinished, CallKind, CallStatus, Usage
from onward.model.events import BranchPlan, LastOutput, Outcome
from onward.model.gate import GateDecided
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


class Stop(Frozen, frozen=True, kw_only=True):
    """Why the run stopped; `kind` is that of the event."""

    kind: str
    reason: str
    detail: str
    at_us: int


class Try(Frozen, frozen=True, kw_only=True):
    """One start of an attempt, and how it ended.

    An attempt that a crash or a stop cut off starts again: that is its next try, and `number` counts them.
    `outcome` is a step's status, `interrupted` or `held`. While a try runs, or if its process died, it has no
    outcome and no end. `output` is the end of what it printed, if it failed or was stopped.
    """

    attempt: int
    number: int
    started_at_us: int
    claim: Claim = Claim()
    ended_at_us: int | None = None
    outcome: str = ""
    reason: str = ""
    output: LastOutput | None = None

    @property
    def duration_s(self) -> float | None:
        return _seconds(self.started_at_us, self.ended_at_us)


class Spent(Frozen, frozen=True, kw_only=True):
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

    def with_call(self, call: CallFinished) -> Spent:
        """With one more call that has ended."""
        used, counted = call.usage or Usage(), dict[str, int]()
        if call.status is CallStatus.ERROR:
            counted["failed"] = self.failed + 1
        elif name := _COUNTED.get(call.type):
            counted[name] = getattr(self, name) + 1
        is_new = call.model and call.status is CallStatus.OK and call.model not in self.models
        cost = self.cost_micro if call.cost_micro is None else (self.cost_micro or 0) + call.cost_micro
        return replace(
            self,
            input=self.input + used.input,
            output=self.output + used.output,
            cached=self.cached + used.cached,
            cache_write=self.cache_write + used.cache_write,
            reasoning=self.reasoning + used.reasoning,
            is_measured=self.is_measured or call.usage is not None,
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
    branches: tuple[BranchPlan, ...] = ()
    ended_at_us: int | None = None
    outcome: Outcome | None = None
    finished_seq: int = 0
    spent: Spent | None = None
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


class Branch(Frozen, frozen=True, kw_only=True):
    """Branch number `index` of the fan-out `step`; `status` is how it ended."""

    step: str
    index: int
    started_at_us: int
    status: str = ""
    ended_at_us: int | None = None
