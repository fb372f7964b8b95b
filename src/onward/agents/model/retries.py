"""What follows a failed request: a table, and a pure function that is told the time and the dice."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from onward.agents.model.failure import Failure, FailureKind


class Retry(StrEnum):
    """How a failed request is made again."""

    BACK_OFF = "back_off"
    """After a pause that grows with every try."""
    HOLD = "hold"
    """When the provider says, or after a long pause."""
    NEVER = "never"
    """It would fail again; somebody must change something first."""


class Handling(msgspec.Struct, frozen=True):
    """How requests are made again, and the reason of the run that stops when they are not."""

    retry: Retry
    reason: str


HANDLING: Mapping[FailureKind, Handling] = {
    FailureKind.TRANSIENT: Handling(Retry.BACK_OFF, "step_failed"),
    FailureKind.CUT: Handling(Retry.BACK_OFF, "step_failed"),
    FailureKind.EMPTY: Handling(Retry.BACK_OFF, "step_failed"),
    FailureKind.RATE_LIMIT: Handling(Retry.HOLD, "rate_limit"),
    FailureKind.AUTH: Handling(Retry.NEVER, "provider_auth"),
    FailureKind.CREDIT: Handling(Retry.NEVER, "provider_credit"),
    FailureKind.FORBIDDEN: Handling(Retry.NEVER, "provider_forbidden"),
    FailureKind.REQUEST: Handling(Retry.NEVER, "provider_request"),
    FailureKind.TOO_LONG: Handling(Retry.NEVER, "step_failed"),  # unless the conversation can be shortened
}


class Pauses(msgspec.Struct, frozen=True):
    """How many tries one request gets, and how long the pauses between them are."""

    tries_max: int
    delay_s_first: float
    delay_s_max: float


BACKING_OFF = Pauses(tries_max=5, delay_s_first=1.0, delay_s_max=60.0)
HOLDING = Pauses(tries_max=20, delay_s_first=15.0, delay_s_max=900.0)
ASKED_S_MAX = 86_400.0
"""A provider that asks for more than a day is asked again after one."""


class TryAgain(msgspec.Struct, frozen=True):
    """Make the request again at this time."""

    at_us: int


class GiveUp(msgspec.Struct, frozen=True):
    """Stop; `reason` is the run's, if nothing else handles it."""

    reason: str


def after_failure(failure: Failure, *, tries: int, now_us: int, roll: float) -> TryAgain | GiveUp:
    """What to do after `tries` failed tries of one request in a row; `roll` is in [0, 1)."""
    handling = HANDLING[failure.kind]
    if handling.retry is Retry.NEVER:
        return GiveUp(handling.reason)
    pauses = HOLDING if handling.retry is Retry.HOLD else BACKING_OFF
    if tries >= pauses.tries_max:
        return GiveUp(handling.reason)
    wait_s = pause_s(pauses, tries=tries, roll=roll)
    if failure.retry_at_us is not None:
        # A little later than asked and each at another moment: all who wait were told the same instant.
        asked_s = (failure.retry_at_us - now_us) / 1_000_000 + roll * pauses.delay_s_first
        wait_s = min(max(asked_s, 0.0), ASKED_S_MAX)
    return TryAgain(now_us + round(wait_s * 1_000_000))


def pause_s(pauses: Pauses, *, tries: int, roll: float) -> float:
    """The pause after `tries` tries: doubled each time, and between half of that and all of it by chance."""
    whole_s: float = min(pauses.delay_s_first * 2.0 ** min(tries - 1, 32), pauses.delay_s_max)
    return whole_s * (0.5 + roll / 2)
