"""Calls as they are shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from msgspec.structs import asdict

from onward.operations.replies.kept import CallListed
from onward.read.calls import OPEN, CallSeen
from onward.read.view import instant

MICRO = 1_000_000


def view_call(call: CallSeen, *, is_gone: bool = False) -> CallListed:
    """One try of a call; its cost in units of money. `is_gone`: no process holds its run any more."""
    estimated = call.estimated
    view = {
        "step": call.step,
        "attempt": call.attempt,
        "call": call.call,
        "try": call.number,
        "type": call.type,
        "name": call.name,
        "about": call.about,
        "state": call.state,
        "repeatable": call.repeatable,
        "began_at": instant(call.began_at_us),
        "ended_at": instant(call.ended_at_us),
        "duration_s": None if call.duration_us is None else call.duration_us / MICRO,
        "model": call.model,
        "usage": None if call.usage is None else asdict(call.usage),
        "cost": None if call.cost_micro is None else call.cost_micro / MICRO,
        "estimated": None
        if estimated is None
        else {"tokens": estimated.tokens, "cost": estimated.cost_micro / MICRO},
        "shortened_to": call.shortened_to or None,
        "is_gone": is_gone and call.state == OPEN,
        "request_id": call.request_id,
        "error": call.error,
        "by": call.by,
    }
    return cast("CallListed", view)


def shortened(calls: Iterable[CallSeen]) -> int | None:
    """The lowest ceiling that a limit left for an answer among these calls; None if it lowered none."""
    return min((call.shortened_to for call in calls if call.shortened_to), default=None)
