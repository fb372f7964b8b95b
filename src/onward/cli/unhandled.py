"""What Python prints by itself, without secrets: unhandled errors, warnings, and log lines without a handler.

A user's function raises in a task, a thread or a `__del__`, or logs, and Python prints that to standard
error. None of it passes through `Output`. Handlers of `logging` that an app has set up are the app's own.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from onward.errors import kind_of

if TYPE_CHECKING:
    from onward.redact.redactor import Redactor


def redact_unhandled(redactor: Callable[[], Redactor]) -> None:
    """From now on, print these things of this process without what `redactor` knows at that moment."""
    printer = _Printer(redactor)
    sys.excepthook = printer.error
    sys.unraisablehook = printer.unraisable
    threading.excepthook = printer.of_thread
    logging.lastResort = _LastResort(printer)
    warnings.showwarning = printer.warning


class _Printer:
    """Prints to standard error, whatever that is then."""

    def __init__(self, redactor: Callable[[], Redactor]) -> None:
        self._redactor = redactor

    def print(self, text: str) -> None:
        """Print the text on lines of its own. If that fails, there is nowhere left to report it."""
        try:
            sys.stderr.write(self._redactor().redact(text.rstrip("\n")) + "\n")
            sys.stderr.flush()
        except Exception:
            pass  # closed, replaced by anything, or in the midst of the end of Python

    def error(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """An error that ends the process."""
        self.print(_told(kind, error, trace))

    def unraisable(self, found: sys.UnraisableHookArgs) -> None:
        """An error that could be raised nowhere, as in `__del__`."""
        self.print(
            f"{found.err_msg or 'Exception ignored in'}: {_shown(found.object)}\n"
            + _told(found.exc_type, found.exc_value, found.exc_traceback)
        )

    def of_thread(self, found: threading.ExceptHookArgs) -> None:
        """An error that ended a thread. One that exits has ended as it should."""
        if not issubclass(found.exc_type, SystemExit):
            name = "" if found.thread is None else f" {found.thread.name}"
            told = _told(found.exc_type, found.exc_value, found.exc_traceback)
            self.print(f"Exception in thread{name}:\n{told}")

    def warning(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        """A warning."""
        self.print(warnings.formatwarning(message, category, filename, lineno, line))


class _LastResort(logging.Handler):
    """Prints what no other handler takes: warnings and worse, without their levels, as Python does."""

    def __init__(self, printer: _Printer) -> None:
        super().__init__(logging.WARNING)
        self._printer = printer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception as error:  # its arguments do not fit its text
            text = f"a line of the logger {record.name} cannot be formatted: {kind_of(error)}"
        self._printer.print(text)


def _told(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> str:
    try:
        return "".join(traceback.format_exception(kind, error, trace))
    except Exception:
        return f"{kind.__name__}: (it cannot be printed)"


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return f"a {kind_of(value)}"
