"""What a projection yields: steps, attempts, branches, claims and stops, as values."""

from __future__ import annotations

from onward.model.event import BranchPlan, GateDecided, Outcome
from onward.model.run import Frozen

LEFT, WITHDRAWN = "left", "withdrawn"


def _seconds(started_at_us: int, ended_at_us: int | None) -> float | None:
    """Never less than none, though wall clocks are set back."""
    return None if ended_at_us is None else max(0, ended_at_us - started_at_us) / 1_000_000


class Claim(Frozen, frozen=True, kw_only=True):
    """A worker got the run. `is_take_over`: the owner before it was lost."""

    token: int = 0
    worker: str = ""
    is_take_over: bool = False
    at_us: int = 0


class Stop(Frozen, frozen=True, kw_only=True):
    """The run stopped: the kind of the event that says so, and why."""

    kind: str
    reason: str
    detail: str
    at_us: int


class Attempt(Frozen, frozen=True, kw_only=True):
    """One beginning of a step's work, and how it ended.

    A crash keeps the `number`, and `tries` counts the attempts of that number. `outcome` is a step's status
    or `interrupted`; it is empty, and there is no end, while the attempt runs and after its process died.
    """

    number: int
    tries: int
    started_at_us: int
    claim: Claim = Claim()
    ended_at_us: int | None = None
    outcome: str = ""
    reason: str = ""

    @property
    def duration_s(self) -> float | None:
        return _seconds(self.started_at_us, self.ended_at_us)


class Step(Frozen, frozen=True, kw_only=True):
    """A step from its first beginning on: work that is attempted, a gate, a fan-out, or a rule of the engine.

    `index` counts steps as they begin, from 0. `state` is what the log alone can say: running, waiting,
    retrying, failed, interrupted, decided, rejected, withdrawn, left, or its outcome's status. `text` is the
    question of a gate, and `decisions` are its answers. `finished_seq` is the event with the outcome.
    """

    step: str
    node: str
    index: int
    started_at_us: int
    state: str = ""
    reason: str = ""
    attempts: tuple[Attempt, ...] = ()
    log: tuple[str, ...] = ()
    child: str | None = None
    text: str = ""
    decisions: tuple[GateDecided, ...] = ()
    branches: tuple[BranchPlan, ...] = ()
    ended_at_us: int | None = None
    outcome: Outcome | None = None
    finished_seq: int = 0

    @property
    def attempts_count(self) -> int:
        """How often it began; a gate, a fan-out or a rule does once."""
        return len(self.attempts) or 1

    @property
    def duration_s(self) -> float | None:
        """From the first beginning to the outcome, pauses included."""
        return _seconds(self.started_at_us, self.ended_at_us)


class Branch(Frozen, frozen=True, kw_only=True):
    """A branch of the fan-out `step`, the `index`th of them; `status` is what it came to."""

    step: str
    index: int
    started_at_us: int
    status: str = ""
    ended_at_us: int | None = None
