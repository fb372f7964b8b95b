"""Text for a picture: made harmless, cut to a length, and measured."""

from __future__ import annotations

import re
from collections.abc import Iterable
from unicodedata import combining, east_asian_width

# Escape sequences first, or their tails would remain as text.
_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\x9c|$)|\x9b[0-?]*[ -/]*[@-~]", re.DOTALL
)
# Characters that XML forbids, that control a terminal, or that reorder text.
_LOUD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]"
)
# Shares of the font's size for a plain sans-serif face, on the generous side.
_NARROW, _WIDE = frozenset("fijlrtI.,:;|!'`()[]{}/ "), frozenset("mwMW@%&—…→")
_SHARES = {"narrow": 0.36, "wide": 0.95, "capital": 0.72, "other": 0.6, "full": 1.05}
ELLIPSIS = "…"


def tame(text: str) -> str:
    """The text without control characters; line breaks stay."""
    if text.isascii() and text.isprintable():
        return text
    text = _SEQUENCES.sub("", text.replace("\r\n", "\n"))
    kept = _LOUD.sub("", text)
    return "".join(character for character in kept if ord(character) & 0xFFFE != 0xFFFE)


def one_line(text: str) -> str:
    """The tamed text on one line."""
    return " ".join(tame(text).split())


def cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text
    )


def cut(text: str, room: int) -> str:
    """The text, cut to at most `room` columns."""
    if cells(text) <= room:
        return text
    kept, used = list[str](), 0
    for character in text:
        used += cells(character)
        if used > room - 1:
            break
        kept.append(character)
    return "".join(kept).rstrip() + ELLIPSIS if room > 0 else ""


def wrap(text: str, room: int, lines_max: int) -> list[str]:
    """The text in at most `lines_max` lines of `room` columns; an ellipsis marks what was cut."""
    lines: list[str] = []
    for paragraph in tame(text).split("\n"):
        line = ""
        for word in _words(paragraph, room):
            joined = f"{line} {word}" if line else word
            if line and cells(joined) > room:
                lines.append(line)
                line = word
            else:
                line = joined
            if len(lines) > lines_max:
                break
        lines += [line] if line else []
    if len(lines) > lines_max:
        last = cut(lines[lines_max - 1], room - 1)
        lines = [*lines[: lines_max - 1], last if last.endswith(ELLIPSIS) else last + ELLIPSIS]
    return lines


def _words(paragraph: str, room: int) -> Iterable[str]:
    """The words, long ones in pieces."""
    for word in paragraph.split():
        while cells(word) > room:
            piece = word
            while cells(piece) > room:
                piece = piece[: max(1, min(room, len(piece) - 1))]
            yield piece
            word = word[len(piece) :]
        if word:
            yield word


def width_of(text: str, font_size: float) -> float:
    """About how wide a text is, in pixels."""
    return font_size * sum(_share(character) for character in text)


def _share(character: str) -> float:
    if character in _NARROW:
        return _SHARES["narrow"]
    if character in _WIDE:
        return _SHARES["wide"]
    if character.isascii():
        return _SHARES["capital" if character.isupper() else "other"]
    if combining(character):
        return 0.0
    return _SHARES["full" if east_asian_width(character) in "WF" else "capital"]
