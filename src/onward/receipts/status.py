"""`status.json` as it comes in: how a program outside says what came of its step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import msgspec

from onward.errors import InvalidInput
from onward.model.events import StepStatus
from onward.model.result import Result

STATUS_BYTES_MAX = 1024 * 1024


class Reported(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The closed schema of the file."""

    outcome: Literal["success", "retry", "fail", "partial_success"]
    preferred_label: str = ""
    preferred_next_label: str = ""
    suggested_next_ids: tuple[str, ...] = ()
    context_updates: dict[str, Any] = {}
    notes: str = ""
    failure_reason: str = ""

    @property
    def label(self) -> str:
        return self.preferred_label or self.preferred_next_label


def read_status(content: bytes, path: str) -> Reported:
    """What the file says; InvalidInput names the file and what is wrong with it."""
    if len(content) > STATUS_BYTES_MAX:
        raise InvalidInput(f"{path} has more than {STATUS_BYTES_MAX:,} bytes; large things are artifacts.")
    try:
        found = msgspec.json.decode(content, type=Reported)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        names = ", ".join(Reported.__struct_fields__)
        raise InvalidInput(f"{path} does not say how the step ended: {error}; known are {names}.") from None
    if found.preferred_label and found.preferred_next_label not in ("", found.preferred_label):
        raise InvalidInput(
            f"{path} has two labels, preferred_label {found.preferred_label!r} and preferred_next_label "
            f"{found.preferred_next_label!r}, which are two names for one thing; write one."
        )
    return found


def as_reported(result: Result, reported: Reported) -> Result:
    """The result of a step whose program wrote a status; what its handler knows beside that stays."""
    status = StepStatus(reported.outcome)
    reason = ""
    if status in (StepStatus.FAIL, StepStatus.RETRY):
        reason = reported.failure_reason or reported.notes or f"its status.json says {status.value}"
    return replace(
        result,
        status=status,
        preferred_label=reported.label or result.preferred_label,
        suggested_next_ids=reported.suggested_next_ids or result.suggested_next_ids,
        context_updates={**result.context_updates, **reported.context_updates},
        notes="; ".join(filter(None, (reported.notes, result.notes))),
        failure_reason=reason,
        is_decided=True,
    )
