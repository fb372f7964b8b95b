"""What a handler hands back: a value, never an exception, never a suspension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onward.errors import InvalidInput
from onward.model.event import StepStatus
from onward.model.value import plain_text


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one attempt. `retryable` says whether a failure may go away by trying again."""

    status: StepStatus = StepStatus.SUCCESS
    context_updates: Mapping[str, Any] = field(default_factory=dict)
    preferred_label: str = ""
    suggested_next_ids: tuple[str, ...] = ()
    notes: str = ""
    failure_reason: str = ""
    retryable: bool = True

    def __post_init__(self) -> None:
        """What a handler says is stored and must be readable for ever, so a wrong type is refused here."""
        if type(self.status) is not StepStatus:
            object.__setattr__(self, "status", _status(self.status))
        for name in ("preferred_label", "notes", "failure_reason"):
            text = getattr(self, name)
            if type(text) is not str or not text.isascii():
                object.__setattr__(self, name, plain_text(text, f"{name} of a result"))
        if self.suggested_next_ids != ():
            ids = tuple(plain_text(one, "a suggested id of a result") for one in self.suggested_next_ids)
            object.__setattr__(self, "suggested_next_ids", ids)

    @classmethod
    def success(cls, notes: str = "", **context_updates: Any) -> Result:
        """The step did what it should."""
        return cls(notes=notes, context_updates=context_updates)

    @classmethod
    def fail(cls, reason: str, *, retryable: bool = True) -> Result:
        """The step failed; with `retryable=False` trying again is pointless."""
        return cls(status=StepStatus.FAIL, failure_reason=reason, retryable=retryable)

    @classmethod
    def retry(cls, reason: str) -> Result:
        """Not yet: try again."""
        return cls(status=StepStatus.RETRY, failure_reason=reason)


def _status(status: object) -> StepStatus:
    try:
        return StepStatus(status)  # type: ignore[arg-type]
    except ValueError:
        known = ", ".join(StepStatus)
        raise InvalidInput(f"the status {status!r} of a result is not one of {known}.") from None
