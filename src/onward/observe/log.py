"""A log for machines: one JSON object per line, with the run and the step that it is about.

`about` says which run and step the current work is about: every log line gets these fields, whoever logs it.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TextIO

import msgspec

from onward.errors import kind_of
from onward.model import events as ev
from onward.model.gate import GateOpened
from onward.model.run import Run
from onward.model.values import rfc3339
from onward.redact.redactor import NOTHING_SECRET, Redactor

_NOTHING: Mapping[str, str] = MappingProxyType({})
_ABOUT: ContextVar[Mapping[str, str]] = ContextVar("onward_about", default=_NOTHING)


def current() -> Mapping[str, str]:
    """The fields of the current work: `run`, `pipeline`, `step` and others that were added."""
    return _ABOUT.get()


@contextmanager
def about(**fields: str) -> Iterator[None]:
    """Add fields to all log lines inside. Tasks and threads that start inside inherit them."""
    token = _ABOUT.set({**_ABOUT.get(), **fields})
    try:
        yield
    finally:
        _ABOUT.reset(token)


_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_USER_INFO = re.compile(r"(://[^\s/:@\"']*):[^\s/@\"']+@")
_PASSWORD = re.compile(r"((?:password|passwd|sslpassword)\s*=\s*)(?:'[^']*'|[^\s&\"']+)", re.IGNORECASE)
LINES_LOGGED = 10
log = logging.getLogger("onward.run")


def without_secrets(text: str) -> str:
    """The text without the passwords of addresses."""
    return _PASSWORD.sub(r"\1***", _USER_INFO.sub(r"\1:***@", text))


class JsonLines(logging.Formatter):
    """Time, level, logger and message; the run and step; and the exception, if there is one."""

    def __init__(self, redactor: Callable[[], Redactor] = lambda: NOTHING_SECRET, **always: str) -> None:
        super().__init__()
        self._redactor, self._always = redactor, always

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        given = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        line: dict[str, Any] = {
            "time": rfc3339(int(record.created * 1_000_000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **self._always,
            **current(),
            **given,
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = _exception(record.exc_info[1])
        if record.stack_info:
            line["stack"] = record.stack_info
        return msgspec.json.encode(self._redactor().redact_value(_plain(line))).decode()


def _message(record: logging.LogRecord) -> str:
    """Its text. Where that fails, `logging` would print the arguments, and with them their secrets."""
    try:
        return record.getMessage()
    except Exception as error:
        return f"{record.msg} (its arguments do not fit: {kind_of(error)})"


def _exception(error: BaseException) -> Mapping[str, str]:
    trace = "".join(traceback.format_exception(error)).rstrip()
    return {"type": type(error).__name__, "message": str(error), "trace": trace}


def _plain(value: object) -> Any:
    """The value without secrets, as JSON; anything else as text."""
    match value:
        case None | bool() | int() | float():
            return value
        case Mapping():
            return {_text(key): _plain(inside) for key, inside in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(inside) for inside in value]
        case _:
            return _text(value)


def _text(value: object) -> str:
    return without_secrets(str(value)).encode("utf-8", "backslashreplace").decode()


def log_json(
    stream: TextIO | None = None,
    *,
    redactor: Callable[[], Redactor] = lambda: NOTHING_SECRET,
    **always: str,
) -> None:
    """Log everything in this process as JSON lines on standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(redactor, **always))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)


def log_events(run: Run, events: Sequence[ev.Event]) -> None:
    """An observer of the engine: logs a line for each committed event of a run's steps.

    The worker itself logs that it claimed a run and how the run stopped.
    """
    more: dict[str, Any]
    known = {"run": run.id, "pipeline": run.pipeline}
    for event in events:
        match event:
            case ev.StepStarted():
                _about_step(logging.INFO, "started", known, event)
            case ev.StepFinished():
                is_bad = event.outcome.status is ev.StepStatus.FAIL
                more = {"outcome": event.outcome.status.value, "reason": event.outcome.failure_reason}
                more |= _printed(event.output, event.outcome.failure_reason)
                _about_step(logging.WARNING if is_bad else logging.INFO, "finished", known, event, **more)
            case ev.AttemptFailed():
                more = {"outcome": event.status.value, "reason": event.reason}
                more |= _printed(event.output, event.reason)
                _about_step(logging.WARNING, "failed", known, event, **more)
            case ev.AttemptInterrupted():
                more = {"reason": event.why, **_printed(event.output, event.why)}
                _about_step(logging.WARNING, "was interrupted", known, event, **more)
            case GateOpened():
                log.info("gate %s opened", event.gate, extra={**known, "gate": event.gate})


def _printed(output: ev.LastOutput | None, reason: str) -> dict[str, Any]:
    """The last lines of an attempt that failed, and the error that its handler raised."""
    if output is None:
        return {}
    found: dict[str, Any] = {"output": [line.text for line in output.lines[-LINES_LOGGED:]]}
    if output.traceback:
        message = reason.removeprefix(f"{output.error}: ")
        found["exception"] = {"type": output.error, "message": message, "trace": output.traceback}
    return found


def _about_step(
    level: int,
    became: str,
    known: Mapping[str, str],
    event: ev.StepStarted | ev.StepFinished | ev.AttemptFailed | ev.AttemptInterrupted,
    **more: Any,
) -> None:
    fields = {**known, "step": event.step, "attempt": event.attempt}
    fields |= {name: value for name, value in more.items() if value}
    log.log(level, "step %s %s", event.step, became, extra=fields)
