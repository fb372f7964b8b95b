"""When a try is made again, and when no more: a pure function of what came of it and a roll of the dice."""

from __future__ import annotations

from onward.model.row import DeliveryState
from onward.notify.sender import Sent
from onward.store.port.runs import Attempted, Delivery

TRIES_MAX = 12
FIRST_WAIT_S, WAIT_S_MAX = 5.0, 3_600.0
AGE_S_MAX = 3 * 86_400
"""Tries take up to about two and a half hours. One that nobody made for days would tell old news."""


def attempted(claimed: Delivery, sent: Sent, roll: float) -> Attempted:
    """What to record of a try."""
    if not sent.error:
        return Attempted(DeliveryState.DELIVERED, sent.response)
    if claimed.tries >= TRIES_MAX:
        return Attempted(DeliveryState.FAILED, sent.response, sent.error)
    return Attempted(DeliveryState.WAITING, sent.response, sent.error, wait_us(claimed.tries, roll))


def wait_us(tries: int, roll: float) -> int:
    """The pause after so many tries: twice as long each time, and between half of that and all of it."""
    whole_s = min(FIRST_WAIT_S * 2 ** (tries - 1), WAIT_S_MAX)
    return int(whole_s * (0.5 + roll / 2) * 1_000_000)


def is_too_late(claimed: Delivery, now_us: int) -> Attempted | None:
    """What to record instead of a try that comes too late; None if it does not."""
    if claimed.tries > TRIES_MAX:  # its processes died over it
        error = claimed.error or "the process that delivered it died"
        return Attempted(DeliveryState.FAILED, claimed.response, error)
    if claimed.tries == 1 and now_us - claimed.created_at_us > AGE_S_MAX * 1_000_000:
        return Attempted(DeliveryState.FAILED, None, f"nobody delivered it for {AGE_S_MAX // 86_400} days")
    return None
