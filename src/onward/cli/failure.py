"""An error as one sentence for a person, one object for a program, and an exit code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from onward.cli.exits import FAILED, USAGE, exit_of_error
from onward.cli.print.output import Output
from onward.cli.words import as_typed, with_flags
from onward.config import is_debugging
from onward.errors import (
    AmbiguousRun,
    HistoryCorrupt,
    InvalidPipeline,
    LeaseLost,
    OnwardError,
    Refused,
    RunNotFound,
    WorkdirGone,
)


def tell_error(out: Output, error: OnwardError) -> int:
    """Print an error that Onward raised."""
    prefix = "" if isinstance(error, InvalidPipeline) else "onward: "
    said = with_flags(as_typed(str(error), out.words), out.words)
    out.note(f"{prefix}{said}")
    if isinstance(error, Refused) and error.details.get("left"):
        _tell_left(out, error.details["left"])
    _tell_json(out, {"code": code_of(error), "message": said, **_details(error)})
    _tell_where(out, error)
    return exit_of_error(error)


def tell_usage(out: Output, message: str, command: str = "") -> int:
    """Print what is wrong with a command line, and whose help says more."""
    message = " ".join(message.split())
    out.note(f"onward: {message} See `{' '.join(filter(None, ('onward', command)))} --help`.")
    _tell_json(out, {"code": "usage", "message": message})
    return USAGE


def tell_defect(out: Output, error: BaseException) -> int:
    """Print an unexpected error: a defect of Onward or of a handler."""
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    out.note(f"onward: this is a defect, please report it: {message} (ONWARD_DEBUG=1 shows where)")
    _tell_json(out, {"code": "defect", "message": message})
    _tell_where(out, error)
    return FAILED


def code_of(error: OnwardError) -> str:
    """The stable name of an error: a refusal's own code, else its class in words."""
    if isinstance(error, Refused):
        return error.code
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()


def _details(error: OnwardError) -> dict[str, Any]:
    match error:
        case Refused():
            return error.details
        case RunNotFound():
            return {"wanted": error.wanted}
        case AmbiguousRun():
            return {"wanted": error.wanted, "matches": list(error.matches)}
        case HistoryCorrupt():
            return {"run": error.run_id, "seq": error.seq}
        case WorkdirGone():
            return {"run": error.run_id, "workdir": error.workdir}
        case LeaseLost():
            return {"run": error.run_id}
        case InvalidPipeline():
            return {"diagnostics": list(error.diagnostics)}
        case _:
            return {}


def _tell_left(out: Output, left: Sequence[Mapping[str, Any]]) -> None:
    """Print what the steps in doubt left, below the refusal that asks for a decision."""
    from onward.cli.print.leftovers import left_lines

    for line in left_lines(left):
        out.note(line)


def _tell_json(out: Output, fields: dict[str, Any]) -> None:
    if out.is_json:
        out.value({"error": fields})


def _tell_where(out: Output, error: BaseException) -> None:
    if is_debugging():
        import traceback

        out.note("".join(traceback.format_exception(error)).rstrip())
