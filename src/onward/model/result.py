"""What a handler hands back: a value, never an exception, never a suspension."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from onward.errors import InvalidInput
from onward.model.attempt.artifact import Artifact
from onward.model.attempt.output import LastOutput
from onward.model.events.steps import StepStatus
from onward.model.values.value import plain_text

LOG_LINES_MAX, LOG_LINE_MAX = 100, 1_000
EXCERPT_MAX = 8_192
LOG_FULL = "… the lines after this one were left out"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one attempt. `retryable` says whether a failure may go away by trying again.

    `response` is the text that an agent answered. `is_decided` says that the handler itself knows how the
    step ended; without it, a `status.json` that was written during the attempt decides. What the step did to
    the run's artifacts, and the end of what a failed attempt printed, are filled in by the engine. The next
    attempt asks every repeatable call again, unless a failure `keeps_calls`: an error or a time limit does.
    With `stop`, a failure stops the run for this reason, whatever edges there are.
    """

    status: StepStatus = StepStatus.SUCCESS
    context_updates: Mapping[str, Any] = field(default_factory=dict)
    preferred_label: str = ""
    suggested_next_ids: tuple[str, ...] = ()
    notes: str = ""
    failure_reason: str = ""
    retryable: bool = True
    log: tuple[str, ...] = ()
    response: str = ""
    is_decided: bool = True
    artifacts: Mapping[str, Artifact | None] = field(default_factory=dict)
    contents: Mapping[str, bytes] = field(default_factory=dict)
    output: LastOutput | None = None
    keeps_calls: bool = False
    stop: str = ""

    def __post_init__(self) -> None:
        """What a handler says is stored and must be readable for ever, so a wrong type is refused here."""
        if type(self.status) is not StepStatus:
            object.__setattr__(self, "status", _status(self.status))
        for name in ("preferred_label", "notes", "failure_reason", "response"):
            text = getattr(self, name)
            if type(text) is not str or not text.isascii():
                object.__setattr__(self, name, plain_text(text, f"{name} of a result"))
        if self.suggested_next_ids != ():
            ids = tuple(plain_text(one, "a suggested id of a result") for one in self.suggested_next_ids)
            object.__setattr__(self, "suggested_next_ids", ids)
        if self.log != ():
            # They are shortened when they are recorded: before that, secrets are looked for in the whole.
            lines = tuple(
                plain_text(line, "a line for the log") for line in islice(self.log, LOG_LINES_MAX + 1)
            )
            object.__setattr__(self, "log", lines)

    def with_log(self, lines: Iterable[str]) -> Result:
        """The same, and what the handler wrote down on the way before what it returned."""
        return replace(self, log=(*lines, *self.log))

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


def log_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Lines for the log as they are stored: a few, none of them long. What is left out is said."""
    kept = [log_line(line) for line in islice(lines, LOG_LINES_MAX + 1)]
    return tuple(kept if len(kept) <= LOG_LINES_MAX else [*kept[:LOG_LINES_MAX], LOG_FULL])


def log_line(line: object) -> str:
    """One line for the log, shortened if need be."""
    text = plain_text(line, "a line for the log")
    if len(text) <= LOG_LINE_MAX:
        return text
    size = f"… ({len(text):,} characters)"
    return text[: LOG_LINE_MAX - len(size)] + size


def excerpt(text: str) -> str:
    """The text, or the beginning of a long one and its length, as a gate shows it."""
    if len(text) <= EXCERPT_MAX:
        return text
    return f"{text[:EXCERPT_MAX]}… ({len(text):,} characters)"


def _status(status: object) -> StepStatus:
    try:
        return StepStatus(status)  # type: ignore[arg-type]
    except ValueError:
        known = ", ".join(StepStatus)
        raise InvalidInput(f"the status {status!r} of a result is not one of {known}.") from None
