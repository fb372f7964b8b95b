"""Tokens of the dialect, one at a time, each with its position in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from onward.pipeline.dot.source import BYTE_ORDER_MARK, Source
from onward.pipeline.value import shown

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
