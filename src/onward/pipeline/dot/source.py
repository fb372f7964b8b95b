"""The text of a pipeline file, and positions in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from onward.errors import InvalidPipeline
from onward.pipeline.diagnostic import Diagnostic, Severity

SOURCE_BYTES_MAX = 1_048_576
"""The longest pipeline file that can be read, in UTF-8."""
BYTE_ORDER_MARK = "\ufeff"

_LINE_END = re.compile(r"\r\n?|\n")
# NUL cannot be stored in a PostgreSQL text, and half a surrogate pair cannot be written as UTF-8 at all.
_UNUSABLE = re.compile("[\x00\ud800-\udfff]")
_ESCAPED = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


@dataclass(frozen=True)
class Source:
    """A file's text with its name; offsets count characters from 0, lines and columns from 1."""

    text: str
    file: str

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in _LINE_END.finditer(self.text))]

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset. A byte order mark takes up no column."""
        line = bisect_right(self._line_starts, offset)
        start = self._line_starts[line - 1]
        marked = line == 1 and offset > 0 and self.text.startswith(BYTE_ORDER_MARK)
        return line, offset - start + (0 if marked else 1)

    def error(self, rule: str, message: str, offset: int, *, fix: str | None = None) -> Diagnostic:
        """An error at an offset of this text."""
        line, column = self.position(offset)
        return Diagnostic(rule, Severity.ERROR, message, self.file, line, column, fix=fix)

    def refusal(self) -> Diagnostic | None:
        """Why this text cannot be read at all, or None."""
        if len(self.text) > SOURCE_BYTES_MAX or _byte_length(self.text) > SOURCE_BYTES_MAX:
            return _too_long(self.file)
        if match := _UNUSABLE.search(self.text):
            what = "a NUL character" if match[0] == "\0" else f"half a surrogate pair (U+{ord(match[0]):04X})"
            return self.error("encoding", f"the text contains {what}", match.start(), fix="remove it")
        return None


class Written(NamedTuple):
    """The position of a value in the source, quotes included."""

    source: Source
    start: int
    end: int

    @property
    def position(self) -> tuple[int, int]:
        """Line and column of the value's first character."""
        return self.source.position(self.start)

    def at(self, offset: int) -> tuple[int, int]:
        """Line and column of the value's character at `offset`, counting quotes and escapes."""
        text, place = self.source.text, self.start
        if text[place] != '"':
            return self.source.position(min(place + offset, self.end))
        place += 1
        for _ in range(offset):
            if place >= self.end - 1:
                break
            place += 2 if text[place] == "\\" and text[place + 1] in _ESCAPED else 1
        return self.source.position(place)


def unescaped(body: str) -> str:
    """The meaning of a string's body: four escapes are known, any other backslash is kept."""
    if "\\" not in body:
        return body
    return re.sub(r'\\([nt"\\])', lambda match: _ESCAPED[match[1]], body)


def decode(data: bytes, file: str) -> str:
    """The text of a pipeline file; InvalidPipeline names the first byte that is not UTF-8."""
    if len(data) > SOURCE_BYTES_MAX:
        raise InvalidPipeline([_too_long(file)])
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = Source(data[: error.start].decode("utf-8"), file)
        message = f"byte 0x{data[error.start]:02x} at offset {error.start} is not UTF-8"
        fix = "save the file as UTF-8"
        raise InvalidPipeline([before.error("encoding", message, len(before.text), fix=fix)]) from None


def _byte_length(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _too_long(file: str) -> Diagnostic:
    message = f"the file is longer than {SOURCE_BYTES_MAX:,} bytes"
    return Diagnostic("limit", Severity.ERROR, message, file, 1, 1, fix="split the pipeline")
