"""Text for a terminal: stored text cannot control it, and numbers are for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from onward.model.values import DAY_S, HOUR_S, MINUTE_S

_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor, screen
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\x9c|$)"  # titles, links, the clipboard
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]",
    re.DOTALL,
)
# Control characters except tab and line feed, and the marks that reorder text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_SURROGATES = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """The text without anything that would control a terminal."""
    if text.isprintable():
        return text
    text = _CONTROLS.sub("", _SEQUENCES.sub("", text.replace("\r\n", "\n")))
    return _SURROGATES.sub("\ufffd", text)


def visible(text: str) -> str:
    """The text with every character shown that would control a terminal, so that nothing in it is hidden.

    Colours are left out, because commands print them and they hide nothing; what a carriage return would
    overwrite stays, on a line of its own.
    """
    if text.isprintable():
        return text
    text = _COLOURS.sub("", text.replace("\r\n", "\n")).replace("\r", "\n")
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub(_escaped, text))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def one_line(text: str, width: int = 200) -> str:
    """The text on one line, cut to `width` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def age(at_us: int, now_us: int) -> str:
    """How long ago something was."""
    seconds = (now_us - at_us) / 1_000_000
    for unit_s, unit in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min")):
        if seconds >= unit_s:
            return f"{seconds // unit_s:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"


def local_time(at_us: int) -> str:
    """An instant by this machine's wall clock."""
    return datetime.fromtimestamp(at_us / 1_000_000).strftime("%Y-%m-%d %H:%M:%S")


def count(number: int, noun: str) -> str:
    """A number with its noun, in the plural if needed."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows below their headings, with aligned columns."""
    cells = [[*headings], *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
