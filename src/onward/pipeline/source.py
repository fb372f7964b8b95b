"""The text of a pipeline file: positions in it, findings about it, its tokens, and the values of
attributes.

A finding (`Diagnostic`) says what is wrong, where, and what to do about it.

The dialect writes the same value with and without quotes (`timeout=900s`, `timeout="900s"`), so every
typed reading also accepts the text form. If that is impossible, the message of the ValueError says what
was expected, as in "a whole number such as 3". `Attributes` is the typed reading of what was written
about a graph, a node or an edge.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import msgspec

from onward.errors import InvalidInput, InvalidPipeline
from onward.model.context import check_value
from onward.model.values import DURATION_S_MAX, INTEGER_MAX


class Severity(StrEnum):
    """How much a finding matters; an error forbids execution."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Diagnostic(msgspec.Struct, frozen=True):
    """A finding with its rule and its exact place; lines and columns count from 1."""

    rule: str
    severity: Severity
    message: str
    file: str
    line: int
    column: int
    node_id: str | None = None
    edge: tuple[str, str] | None = None
    fix: str | None = None

    def __str__(self) -> str:
        fix = f" ({self.fix})" if self.fix else ""
        return f"{self.file}:{self.line}:{self.column}: {self.severity} [{self.rule}] {self.message}{fix}"


def by_position(diagnostic: Diagnostic) -> tuple[int, int, str, str]:
    """Sort key: the order of the findings in the file."""
    return diagnostic.line, diagnostic.column, diagnostic.rule, diagnostic.message


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


TOKENS_MAX = 200_000
"""Far more than the largest pipeline needs, to bound the reading of nonsense."""

# Every repetition is possessive: no character is read twice, whatever the text contains.
# A '#' is a comment only where Graphviz has it: as the first character of a line.
_SKIP = r"(?:[ \t\r\n\f\v]++|//[^\r\n]*+|/\*.*?\*/|(?<![^\r\n\ufeff])#[^\r\n]*+)*+"
_NAME = r"[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)*+"
# A bare value may contain hyphens, but an arrow after it is an arrow.
_BARE = r"[A-Za-z_](?:[\w.:]|-(?!>))*+"
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_OTHERS = "|".join(
    (
        rf"(?P<string>{_STRING})",
        r"(?P<mark>->|--|[{}\[\]=,;:+<])",
        r"(?P<number>-?[0-9.][\w.]*+)",
        r"(?P<end>\Z)",
        r'(?P<unclosed>"|/\*)',
        r"(?P<stray>.)",
    )
)
_FLAGS = re.ASCII | re.DOTALL
_STATEMENT = re.compile(f"{_SKIP}(?:(?P<word>{_NAME})|{_OTHERS})", _FLAGS)
_VALUE = re.compile(f"{_SKIP}(?:(?P<word>{_BARE})|{_OTHERS})", _FLAGS)
_BODY_AHEAD = re.compile(rf"{_SKIP}(?:->|[\[{{}}])", _FLAGS)
# A whole, correct `key=value` with its comma, or at the end of its block.
_PLAIN = re.compile(
    rf"{_SKIP}(?P<key>{_NAME}){_SKIP}={_SKIP}"
    rf"(?:(?P<word>{_BARE})|(?P<string>{_STRING})|(?P<number>-?[0-9]{{1,18}}+(?!\w)|[0-9]{{1,4}}+(?:ms|[smhd])))"
    rf"{_SKIP}(?:,(?={_SKIP}[A-Za-z_])|(?=\]))",
    _FLAGS,
)


class Unreadable(Exception):
    """From `start`, the text cannot be divided into tokens."""

    def __init__(self, rule: str, message: str, start: int) -> None:
        self.rule, self.message, self.start = rule, message, start
        super().__init__(message)


class Token(NamedTuple):
    """A piece of text; `kind` is word, string, number, stray or end, and for punctuation the mark itself."""

    kind: str
    text: str
    start: int
    end: int

    def __str__(self) -> str:
        return "the end of the file" if self.kind == "end" else shown(self.text)


class Lexer:
    """Reads one token after another; `token` is the next one."""

    def __init__(self, source: Source) -> None:
        self._text = source.text
        self._count = 0
        self.token = self._read(_STATEMENT, 1 if self._text.startswith(BYTE_ORDER_MARK) else 0)

    def _read(self, pattern: re.Pattern[str], place: int) -> Token:
        self._taken_end = place
        self._count += 1
        match = pattern.match(self._text, place)
        assert match is not None  # `stray` and `end` leave nothing unmatched
        group = match.lastindex or 0
        kind, text, (start, end) = match.lastgroup or "", match[group], match.span(group)
        if kind == "mark":
            kind = text
        elif kind == "unclosed":
            what = "string" if text == '"' else "comment"
            raise Unreadable("syntax", f"this {what} is never closed", start)
        if self._count > TOKENS_MAX:
            raise Unreadable("limit", f"there are more than {TOKENS_MAX:,} tokens", start)
        return Token(kind, text, start, end)

    def take(self) -> Token:
        """Return the current token and move to the next; after '=' that is read as a value."""
        taken = self.token
        self.token = self._read(_VALUE if taken.kind == "=" else _STATEMENT, taken.end)
        return taken

    def plain_attributes(self) -> Iterator[re.Match[str]]:
        """Take the mark that opens a block, and the regular `key=value` pairs that follow.

        Nearly all pairs are regular, and this is fast. The first group is the key, the last one the value.
        """
        place = self.token.end
        while match := _PLAIN.match(self._text, place):
            place = match.end()
            yield match
        self.token = self._read(_STATEMENT, place)

    def starts_line(self) -> bool:
        """Whether a line ends between the token last taken and the current one."""
        gap = self._text[self._taken_end : self.token.start]
        return "\n" in gap or "\r" in gap

    def touches(self) -> bool:
        """Whether there is nothing between the token last taken and the current one."""
        return self._taken_end == self.token.start

    def starts_statement(self) -> bool:
        """Whether the current token starts a line as only a statement can, so an open block must end."""
        if self.token.kind != "word" or not self.starts_line():
            return False
        return _BODY_AHEAD.match(self._text, self.token.end) is not None


OBJECT_BYTES_MAX = 8_192

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(r"([0-9]{1,18})(ms|s|m|h|d)")
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_FLOAT = re.compile(r"-?[0-9]{0,100}\.[0-9]{1,100}")


class Duration(msgspec.Struct, frozen=True):
    """A length of time, and the text it was written as."""

    seconds: float
    text: str

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Read `250ms`, `30s`, `15m`, `2h` or `1d`; ValueError says what was expected."""
        match = _DURATION.fullmatch(text)
        if match is None:
            raise ValueError("a whole number with its unit, such as 250ms, 30s, 15m, 2h or 1d")
        seconds = int(match[1]) * _SECONDS[match[2]]
        if seconds > DURATION_S_MAX:
            raise ValueError("a duration of at most a hundred years")
        return cls(seconds, text)

    def __str__(self) -> str:
        return self.text


Value = str | int | float | bool | Duration


def number(text: str) -> int | float | Duration:
    """Read an unquoted value that starts like a number; ValueError says what was expected."""
    if _INTEGER.fullmatch(text):
        return _bounded(int(text))
    if _FLOAT.fullmatch(text):
        return float(text)
    try:
        return Duration.parse(text)
    except ValueError as error:
        raise ValueError(f"an integer, a decimal number, or {error}") from None


def as_text(value: Value) -> str:
    """The value as it would be written, without quotes."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def as_integer(value: Value) -> int:
    """The value as an integer of 64 bits."""
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("a whole number such as 3")
    return _bounded(value)


def _bounded(value: int) -> int:
    if abs(value) > INTEGER_MAX:
        raise ValueError("a whole number of at most 64 bits")
    return value


def as_count(value: Value) -> int:
    """The value as an integer that is not negative."""
    count = as_integer(value)
    if count < 0:
        raise ValueError("a whole number of 0 or more")
    return count


def as_positive(value: Value) -> int:
    """The value as an integer of at least 1."""
    count = as_integer(value)
    if count < 1:
        raise ValueError("a whole number of at least 1")
    return count


def as_boolean(value: Value) -> bool:
    """The value as a boolean; only `true` and `false` are accepted."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip() in ("true", "false"):
        return value.strip() == "true"
    raise ValueError("true or false")


def as_duration_s(value: Value) -> float:
    """The value as seconds; a number without a unit is refused, because the unit would be a guess."""
    if isinstance(value, Duration):
        return value.seconds
    return Duration.parse(as_text(value).strip()).seconds


def as_positive_s(value: Value) -> float:
    """The value as seconds; a limit or interval of zero would let nothing happen."""
    seconds = as_duration_s(value)
    if seconds <= 0:
        raise ValueError("a duration of at least 1ms")
    return seconds


def as_object(value: Value) -> dict[str, Any]:
    """The value as a JSON object."""
    text = as_text(value)
    expected = 'a JSON object such as {\\"size\\": 3}'
    if len(text.encode("utf-8", "replace")) > OBJECT_BYTES_MAX:
        raise ValueError(f"a JSON object of at most {OBJECT_BYTES_MAX:,} bytes")
    try:
        found = json.loads(text)
        check_value(found, "it")
    except (ValueError, RecursionError, InvalidInput) as error:
        raise ValueError(f"{expected} ({str(error).removesuffix('.')})") from None
    if not isinstance(found, dict):
        raise ValueError(expected)
    return found


def shown(value: Value, *, characters_max: int = 60) -> str:
    """The value quoted for a message: printable, on one line and not long."""
    text = as_text(value)
    return repr(text if len(text) <= characters_max else text[: characters_max - 1] + "…")


T = TypeVar("T")


class Attributes(ABC):
    """Typed reading of attributes, the same for graph, node and edge.

    A value of the wrong type raises InvalidInput; for the dialect's own attributes, `check` has already
    refused such a pipeline.
    """

    attrs: Mapping[str, Value]

    @property
    @abstractmethod
    def subject(self) -> str:
        """The name of the graph, node or edge in messages."""

    def text(self, key: str, default: str = "") -> str:
        """The attribute as text, or `default` if it was not written."""
        value = self.attrs.get(key)
        return default if value is None else as_text(value)

    def integer(self, key: str) -> int | None:
        """The attribute as an integer, or None if it was not written."""
        return self._read(key, as_integer)

    def count(self, key: str) -> int | None:
        """The attribute as an integer that is not negative, or None if it was not written."""
        return self._read(key, as_count)

    def boolean(self, key: str, default: bool = False) -> bool:
        """The attribute as true or false, or `default` if it was not written."""
        value = self._read(key, as_boolean)
        return default if value is None else value

    def is_true(self, key: str) -> bool:
        """Whether the attribute says true; rules ask this before a value that is no boolean is refused."""
        value = self.attrs.get(key)
        return value is not None and as_text(value).strip() == "true"

    def duration_s(self, key: str) -> float | None:
        """The attribute as seconds, or None if it was not written."""
        return self._read(key, as_duration_s)

    def json_object(self, key: str) -> dict[str, Any]:
        """The attribute as a JSON object, or an empty one if it was not written."""
        return self._read(key, as_object) or {}

    def _read(self, key: str, reading: Callable[[Value], T]) -> T | None:
        value = self.attrs.get(key)
        if value is None:
            return None
        try:
            return reading(value)
        except ValueError as error:
            raise InvalidInput(f"{key} of {self.subject} is {shown(value)}; write {error}.") from None
