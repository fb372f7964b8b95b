"""Exit codes: what a script learns without reading a word."""

from __future__ import annotations

from onward.errors import (
    ConditionError,
    InvalidInput,
    InvalidPipeline,
    OnwardError,
    StylesheetError,
    UnknownHandler,
)

FINE = 0
FAILED = 1
USAGE = 2
UNFINISHED = 75
"""Not finished, and resumable."""
INTERRUPTED = 130
"""Ctrl-C in a command that drives no run."""

_OF_STATUS = {"completed": FINE, "failed": FAILED, "cancelled": FAILED}
_USAGE_ERRORS = (InvalidInput, InvalidPipeline, ConditionError, StylesheetError, UnknownHandler)


def exit_of(status: str) -> int:
    """The exit code of a command that drove a run until it stood like this."""
    return _OF_STATUS.get(status, UNFINISHED)


def exit_of_error(error: OnwardError) -> int:
    """The exit code of a command that ended with this error."""
    return USAGE if isinstance(error, _USAGE_ERRORS) else FAILED
