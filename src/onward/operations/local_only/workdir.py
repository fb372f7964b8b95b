"""The directory of a run's commands, as a flag names it on this machine."""

from __future__ import annotations

import os

from onward.errors import InvalidInput


def directory_of(cwd: str | None, *, is_here: bool = True) -> str:
    """The directory that `--cwd` names, as an absolute path; without it, the current one.

    With `is_here` it must exist: this process is to execute commands there.
    """
    if cwd is not None and not cwd.strip():
        raise InvalidInput("--cwd is empty; name a directory, or leave the flag out.")
    try:
        workdir = os.path.abspath(cwd or os.curdir)
    except FileNotFoundError:
        raise InvalidInput("the current directory is gone; change to another one.") from None
    if is_here and not os.path.isdir(workdir):
        raise InvalidInput(f"--cwd {cwd}: there is no such directory; create it, or name another.")
    return workdir


def missing_notice(workdir: str | None) -> str:
    """The notice that a queued run needs a directory that this machine does not have; else empty."""
    if workdir is None or os.path.isdir(workdir):
        return ""
    return f"there is no directory {workdir} on this machine; only a worker that has it takes the run"


def is_elsewhere(workdir: str) -> bool:
    """Whether a directory exists and is not the current one."""
    return os.path.isdir(workdir) and not os.path.samefile(workdir, os.curdir)
