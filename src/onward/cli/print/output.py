"""Where a command prints. If its reader goes away, the work continues."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import Any, TextIO

import msgspec

from onward.cli.exits import FAILED
from onward.cli.print.text import clean
from onward.redact.redactor import NOTHING_SECRET, Redactor

# JSON allows these; a terminal may obey them.
_LOUD = re.compile("[\x7f-\x9f]")
_NOT_ASCII = re.compile("[^\x00-\x7f]")
_READER_LEFT = (errno.EPIPE, errno.EIO, errno.ESHUTDOWN)


class Output:
    """Standard output and error of one command.

    With `is_json`, standard output holds JSON alone and everything for people goes to standard error.
    A reader that went away (`| head`, a closed terminal) silences the output and stops nothing.
    """

    def __init__(self, *, is_json: bool = False, words: Sequence[str] = ()) -> None:
        self.is_json = is_json
        self.words = words
        """The command line, for errors that speak of it."""
        self.is_gone = False
        self.redactor: Redactor = NOTHING_SECRET
        """Knows what must not be printed."""
        self._stdout = sys.stdout
        self._trouble = ""
        self.voice: Callable[[int, str], None] | None = None
        """If set, gets the lines for people, with the log level of each."""

    @property
    def is_terminal(self) -> bool:
        """Whether both input and output are a terminal."""
        return _is_tty(sys.stdin) and _is_tty(sys.stdout)

    @property
    def is_live(self) -> bool:
        """Whether the output may be updated in place."""
        return not self.is_json and _is_tty(sys.stdout)

    def say(self, text: str = "", *, end: str = "\n") -> None:
        """Print a result of the command for a person."""
        if self.voice is not None:
            self.voice(logging.INFO, self._shown(text))
            return
        self._write(sys.stderr if self.is_json else sys.stdout, self._shown(text) + end)

    def note(self, text: str) -> None:
        """Print a remark for a person, on standard error."""
        if self.voice is not None:
            self.voice(logging.WARNING, self._shown(text))
            return
        self._write(sys.stderr, self._shown(text) + "\n")

    def _shown(self, text: str) -> str:
        return clean(self.redactor.redact(text))

    def value(self, value: Any) -> None:
        """Print a JSON value on one line."""
        if not self.redactor.is_empty:
            value = self.redactor.redact_value(msgspec.to_builtins(value))
        text = msgspec.json.encode(value).decode()
        self._write(self._stdout, _LOUD.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")

    def raw(self, content: bytes) -> None:
        """Print bytes as they are, for a file or a program; not for a terminal."""
        buffer = getattr(self._stdout, "buffer", None)
        try:
            if buffer is None:
                self._stdout.write(content.decode(errors="replace"))
            else:
                buffer.write(content)
                buffer.flush()
        except OSError as error:
            self.lose(self._stdout, error)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """With JSON, everything else that is printed inside, such as by handlers, goes to standard error."""
        with redirect_stdout(sys.stderr) if self.is_json else nullcontext():
            yield

    def close(self, code: int) -> int:
        """The exit code; a failure to write output counts unless the reader went away."""
        if self._trouble:
            self.note(f"onward: the output could not be written: {self._trouble}.")
            return code or FAILED
        return code

    def _write(self, stream: TextIO | None, text: str) -> None:
        if stream is None or stream.closed:
            return
        try:
            stream.write(text)
            stream.flush()
        except UnicodeEncodeError:
            # The terminal has another character set: escape as JSON does, so that JSON stays valid.
            self._write(stream, _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text))
        except OSError as error:
            self.lose(stream, error)

    def lose(self, stream: TextIO, error: OSError) -> None:
        """Discard what is still buffered, so that the interpreter does not complain when it exits."""
        if stream is self._stdout or stream is sys.stdout:
            self.is_gone = True
            if error.errno not in _READER_LEFT:
                self._trouble = error.strerror or str(error)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _is_tty(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()
