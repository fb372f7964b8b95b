"""The working directory of a run, checked before anything is written."""

from __future__ import annotations

import os

from onward.errors import InvalidInput, WorkdirGone
from onward.model.row import needed_directory
from onward.model.run import Run


def check_workdir(workdir: str | None, *, is_here: bool) -> None:
    """Refuse a directory that a run cannot be given; with `is_here`, also one that is not on this machine."""
    if workdir is None:
        return
    if not os.path.isabs(workdir):
        raise InvalidInput(f"the directory {workdir!r} is relative; write the whole path.")
    try:
        workdir.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"the name of the directory {workdir!r} is not UTF-8; use another.") from None
    if is_here and not os.path.isdir(workdir):
        raise InvalidInput(f"there is no directory {workdir}; create it, or name another.")


def check_still_there(run: Run) -> None:
    """Refuse to execute a run here whose directory is gone. One that executes nothing needs none."""
    for workdir in filter(None, map(needed_directory, run.needs)):
        if not os.path.isdir(workdir):
            raise WorkdirGone(run.id, workdir)
