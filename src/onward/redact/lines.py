"""The user's own patterns, each for a secret that is in one line.

What a pattern would match across lines, or across pieces of a very long line, is not looked for: so that text
that comes in pieces is redacted as if it came at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

LINE_CHARACTERS_MAX = 65_536
MARK = "[redacted]"


def redact_lines(text: str, own: Sequence[re.Pattern[str]]) -> str:
    """The text without what the patterns match."""
    return "".join(_clean(line, own) for line in _pieces(text))


class LineStream:
    """Text that comes in pieces: line by line."""

    def __init__(self, own: Sequence[re.Pattern[str]]) -> None:
        self._own, self._line = own, ""

    def feed(self, text: str) -> str:
        """What can be passed on: whole lines."""
        *whole, self._line = [*_pieces(self._line + text), ""]
        if whole and not _is_whole(whole[-1]):
            self._line = whole.pop()
        return "".join(_clean(line, self._own) for line in whole)

    def finish(self) -> str:
        """The rest."""
        line, self._line = self._line, ""
        return _clean(line, self._own)


def _pieces(text: str) -> Iterator[str]:
    """The lines with their ends; a very long one in pieces."""
    at = 0
    while at < len(text):
        end = text.find("\n", at, at + LINE_CHARACTERS_MAX) + 1 or min(at + LINE_CHARACTERS_MAX, len(text))
        yield text[at:end]
        at = end


def _is_whole(line: str) -> bool:
    return line.endswith("\n") or len(line) >= LINE_CHARACTERS_MAX


def _clean(line: str, own: Sequence[re.Pattern[str]]) -> str:
    end = "\n" if line.endswith("\n") else ""
    text = line.removesuffix("\n")
    for pattern in own:
        text = pattern.sub(lambda match: MARK if match[0] else "", text)
    return text + end
