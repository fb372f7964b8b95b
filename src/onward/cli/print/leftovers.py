"""What a step in doubt left, for the person who decides about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onward.cli.print.text import clean, count, one_line

FILES_SHOWN = 10
EFFECTS = {"begun": "is running", "in_doubt": "started and never finished", "finished": "has finished"}


def left_lines(left: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A few lines for each step; `left` comes from `view_left`."""
    for one in left:
        where = f"{one_line(one['step'])} was cut off in attempt {one['attempt']}"
        yield f"{where}; what it left: {one['assessment']}"
        call = one["call"]
        if call["handler"]:
            command = f": {one_line(call['command'])}" if call["command"] else ""
            yield f"  open call  {one_line(call['handler'])}{command}"
        yield from _files("its files", one["directory"], one["files"], one["files_count"])
        yield from _files("changed in", one["place"], one["changed"], one["changed_count"])
        for effect in one["effects"]:
            about = f": {one_line(effect['about'])}" if effect["about"] else ""
            yield f"  effect     {one_line(effect['key'])} {EFFECTS[effect['state']]}{about}"
        for why in one["unseen"]:
            yield f"  not seen   {one_line(why)}"


def _files(what: str, where: str | None, files: Sequence[Mapping[str, Any]], total: int) -> Iterator[str]:
    if not files:
        return
    yield f"  {what:<10} {clean(where or '')}"
    for file in files[:FILES_SHOWN]:
        yield f"    {one_line(file['path'])}{_size(file)}"
    if total > FILES_SHOWN:
        yield f"    and {total - FILES_SHOWN:,} more"


def _size(file: Mapping[str, Any]) -> str:
    if file["bytes"] is not None:
        return f" ({count(file['bytes'], 'byte')})"
    return "" if file["path"].endswith("/") else " (removed)"
