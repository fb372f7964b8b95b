"""The values of a projection: steps, attempts, branches, claims and stops."""

from __future__ import annotations

from onward.model.event import BranchPlan, GateDecided, Outcome
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


class Attempt(Frozen, frozen=True, kw_only=True):
    """One start of a step's work, and how it ended.

    After a crash the work starts again under the same `number`; `tries` counts those starts. `outcome` is a
    step's status or `interrupted`. While the attempt runs, or if its process died, it has no outcome or end.
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
    """A step from its first start: work that is attempted, a gate, a fan-out, or a node the engine decides.

    `index` counts steps as they start, from 0. `state` is what the log alone can say: running, waiting,
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
        """How often it started; a step without attempts, such as a gate, counts as one."""
        return len(self.attempts) or 1

    @property
    def duration_s(self) -> float | None:
        """From the first start to the outcome, pauses included."""
        return _seconds(self.started_at_us, self.ended_at_us)


class Branch(Frozen, frozen=True, kw_only=True):
    """Branch number `index` of the fan-out `step`; `status` is how it ended."""

    step: str
    index: int
    started_at_us: int
    status: str = ""
    ended_at_us: int | None = None
