"""Which files and directories of ours other users of the machine can read or enter."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable

OTHERS = stat.S_IRWXG | stat.S_IRWXO


def exposed(paths: Iterable[str]) -> str:
    """What is wrong with the permissions of those paths that are there, and what to run; empty if nothing."""
    found: dict[str, list[str]] = {}
    for path in paths:
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue  # there is none
        if mode & OTHERS:
            found.setdefault("700" if stat.S_ISDIR(mode) else "600", []).append(path)
    return "; ".join(
        f"{', '.join(named)} can be read by other users: run `chmod {mode} {shlex.join(named)}`"
        for mode, named in found.items()
    )
