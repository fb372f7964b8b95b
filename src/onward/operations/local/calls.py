"""Calls as they are shown."""

from __future__ import annotations

from typing import cast

from msgspec.structs import asdict

from onward.operations.kept import CallListed
from onward.read.calls import CallSeen
from onward.read.view import instant

MICRO = 1_000_000


def view_call(call: CallSeen) -> CallListed:
    """One try of a call; its cost in units of money."""
    view = {
        "step": call.step,
        "attempt": call.attempt,
        "call": call.call,
        "try": call.number,
        "type": call.type,
        "name": call.name,
        "state": call.state,
        "repeatable": call.repeatable,
        "began_at": instant(call.began_at_us),
        "ended_at": instant(call.ended_at_us),
        "duration_s": None if call.duration_us is None else call.duration_us / MICRO,
        "model": call.model,
        "usage": None if call.usage is None else asdict(call.usage),
        "cost": None if call.cost_micro is None else call.cost_micro / MICRO,
        "request_id": call.request_id,
        "error": call.error,
        "by": call.by,
    }
    return cast("CallListed", view)
