"""What a step in doubt left, for whoever has to decide about it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onward.cli.print.text import clean, count, one_line
from onward.config import load_settings, tool_environment

if TYPE_CHECKING:
    from onward.cli.options import Common
    from onward.engine.log.journal import Folded
    from onward.engine.step.leftovers import Leftovers
    from onward.store.port.store import Store

FILES_SHOWN = 10
EFFECTS = {"begun": "is under way", "in_doubt": "was begun and never finished", "finished": "has finished"}


def left_lines(left: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Steps as `view_left` gives them, each in a few lines."""
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
            yield f"  effect     {one_line(effect['key'])} {EFFECTS[effect['state']]}"
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


async def look_at_left(store: Store, folded: Folded, common: Common) -> list[dict[str, Any]]:
    """What the steps in doubt of a run left; a run without such a step costs nothing more."""
    from onward.machine.decide.doubt import is_in_doubt

    if not any(is_in_doubt(opened) for opened in folded.run.open_steps.values()):
        return []
    from onward.engine.step.leftovers import view_left

    return [view_left(left) for left in await _leavings(store, common).of(folded)]


def _leavings(store: Store, common: Common) -> Leftovers:
    """Looks where a resume by the same command line would."""
    from onward.cli.opening import app_of
    from onward.engine.step.leftovers import Leftovers
    from onward.receipts.homes import Homes
    from onward.wiring import own_paths
    from onward.workspace.trees import GitTrees

    app = app_of(load_settings(db=common.db, app=common.app, runs=common.runs, files=common.files))
    runs = app.runs_directory
    own = own_paths(app.store if isinstance(app.store, str) else None, runs)
    folder = None if runs is None else Homes(os.path.abspath(runs), store.identity)
    return Leftovers(store, folder, GitTrees(tool_environment(), own), own)
