"""Limits: how much may be spent in a scope, what is spent and reserved there, and by which calls.

Reservations and settlements are no part of this: the log makes them, with the events of the calls
(`Write.calls`). A write whose call does not fit is refused as `LimitReached`, and nothing of it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from onward.model.limits import MEASURES, NO_AMOUNTS, WARN_PERCENT, Amounts
from onward.model.run import Frozen

Limit = tuple[int | None, int | None, int | None]
UNSET: Limit = (None, None, None)


class Scope(Frozen, frozen=True, kw_only=True):
    """One scope. At every commit spent and reserved are within the limit, unless that was lowered.

    `own` is the limit that was set for it; where that is None, `default`, the one of its kind, counts. 0 is
    no limit. `warned` are the measures of which WARN_PERCENT were spent, and that this was said of.
    """

    id: str
    own: Limit = UNSET
    default: Limit = UNSET
    spent: Amounts = NO_AMOUNTS
    reserved: Amounts = NO_AMOUNTS
    warned: tuple[str, ...] = ()

    @property
    def limit(self) -> Amounts:
        """What counts; 0 is no limit."""
        pairs = zip(self.own, self.default, strict=True)
        return Amounts(*(default or 0 if own is None else own for own, default in pairs))

    @property
    def nearly_spent(self) -> tuple[str, ...]:
        """The measures whose limit is spent to WARN_PERCENT or more."""
        return tuple(
            measure
            for measure, limit, spent in zip(MEASURES, self.limit, self.spent, strict=True)
            if limit and spent * 100 >= limit * WARN_PERCENT
        )


class ReservationState(StrEnum):
    """Whether a reservation still counts, or was settled with what its call cost."""

    OPEN = "open"
    SETTLED = "settled"


class Reservation(Frozen, frozen=True, kw_only=True):
    """What one call reserved in its scopes, and what it was charged when it ended.

    `is_estimated`: what it cost is not known, so it was charged what it had reserved.
    """

    run_id: str
    step: str
    call: str
    number: int
    token: int
    scopes: tuple[str, ...]
    model: str
    reserved: Amounts
    state: ReservationState = ReservationState.OPEN
    charged: Amounts = NO_AMOUNTS
    is_estimated: bool = False


class Spent(Frozen, frozen=True, kw_only=True):
    """What calls cost, put together by `what`: a run, chat, project, day, pipeline or model.

    `estimated` counts the calls whose cost is not known, and that were charged what they had reserved.
    """

    what: str
    input: int
    output: int
    cached: int
    tokens: int
    cost_micro: int
    calls: int
    estimated: int


class UsageKind(StrEnum):
    """What usage can be put together by."""

    RUN = "run"
    CHAT = "chat"
    PROJECT = "project"
    DAY = "day"
    PIPELINE = "pipeline"
    MODEL = "model"


class Warned(Frozen, frozen=True):
    """A scope has spent WARN_PERCENT of a limit. This is said once, until the limit is changed."""

    scope: str
    measure: str
    limit: int
    spent: int


class Limits(Protocol):
    """The limits of a database."""

    async def read(self, scopes: Sequence[str]) -> Sequence[Scope]:
        """These scopes as they are, in their order; one in which nothing was spent yet too."""
        ...

    async def list(self, *, limit: int) -> Sequence[Scope]:
        """The defaults of the kinds, then the scopes with a limit or spending, the newest day first."""
        ...

    async def change(self, scope: str, changes: Mapping[str, int | None]) -> Scope:
        """Set the limits of a scope by their measures; None goes back to the default of its kind.

        One that is lowered below what is spent stops new calls, and undoes nothing.
        """
        ...

    async def usage(self, by: UsageKind, *, limit: int) -> Sequence[Spent]:
        """What was settled, the newest day first, else the most expensive first. It survives its runs."""
        ...

    async def reservations(self, run_id: str) -> Sequence[Reservation]:
        """The reservations of a run, in the order of step, call and try."""
        ...

    async def abandoned(self, scope: str) -> Sequence[str]:
        """The runs with an open reservation in this scope whose holder is dead: a claim settles them."""
        ...

    def take_warnings(self, run_id: str) -> Sequence[Warned]:
        """What the writes of this process to a run have to warn of; once."""
        ...
