"""The last lines of an attempt that failed, below the line that says so."""

from __future__ import annotations

from collections.abc import Iterator

from onward.cli.print.text import clean, one_line
from onward.model.events import LastOutput

LINES_SHOWN = 10
ALL = 1_000_000


def failed_lines(output: LastOutput | None, reason: str) -> Iterator[str]:
    """The end of the traceback or of what was printed, unless the reason, as it is shown, says the same."""
    if output is None:
        return
    lines = output.ending(LINES_SHOWN)
    if one_line(" ".join(lines), ALL) in one_line(reason):
        return
    for line in lines:
        yield f"    | {clean(line)}".rstrip()
