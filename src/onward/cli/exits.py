"""Exit codes."""

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
"""Ctrl-C in a command that executes no run."""

_OF_STATUS = {"completed": FINE, "failed": FAILED, "cancelled": FAILED}
_USAGE_ERRORS = (InvalidInput, InvalidPipeline, ConditionError, StylesheetError, UnknownHandler)


def exit_of(status: str) -> int:
    """The exit code of a command that executed a run until it had this status."""
    return _OF_STATUS.get(status, UNFINISHED)


def exit_of_error(error: OnwardError) -> int:
    """The exit code of a command that ended with this error."""
    return USAGE if isinstance(error, _USAGE_ERRORS) else FAILED
