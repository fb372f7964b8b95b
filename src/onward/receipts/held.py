"""Directories that are held open, so that the way to them is walked once and not for every file.

A descriptor always leads to the directory that was checked when it was opened. It is used only while the path
leads to that same directory: one that was removed, moved or exchanged for something else is walked to again,
and refused if a link is on the way.
"""

from __future__ import annotations

import os
import resource
import threading
from collections import OrderedDict
from typing import NamedTuple

from onward.receipts.names import Path

HELD_MAX = 256
SHARE_MAX = 4  # one in so many of the descriptors that this process may have: the others are for the work


class _Directory(NamedTuple):
    descriptor: int
    path: str
    device: int
    inode: int

    def is_there(self) -> bool:
        try:
            state = os.lstat(self.path)
        except OSError:
            return False
        return state.st_ino == self.inode and state.st_dev == self.device


class Held:
    """Open directories, by the parts that lead to them; the longest unused are closed first."""

    def __init__(self, limit: int = HELD_MAX) -> None:
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._limit = limit if allowed == resource.RLIM_INFINITY else min(limit, allowed // SHARE_MAX)
        self._held: OrderedDict[Path, _Directory] = OrderedDict()
        self._lock = threading.Lock()  # a handler's thread may ask for its directory

    def __len__(self) -> int:
        return len(self._held)

    def __del__(self) -> None:
        self.let_go(())

    def again(self, parts: Path) -> int | None:
        """A descriptor of the caller's own, if the directory that was kept is still where it was."""
        with self._lock:
            found = self._held.get(parts)
            if found is None:
                return None
            if not found.is_there():
                self._close(parts)
                return None
            self._held.move_to_end(parts)
            return os.dup(found.descriptor)

    def path(self, parts: Path) -> str | None:
        """Where the directory is that was kept, if it is still there."""
        found = self._held.get(parts)
        return found.path if found is not None and found.is_there() else None

    def keep(self, parts: Path, path: str, directory: int) -> None:
        """Hold open what `directory` is a descriptor of, which stays the caller's."""
        state = os.fstat(directory)
        with self._lock:
            if parts in self._held:
                self._close(parts)
            self._held[parts] = _Directory(os.dup(directory), path, state.st_dev, state.st_ino)
            while len(self._held) > self._limit:
                self._close(next(iter(self._held)))

    def let_go(self, parts: Path, *, below: bool = True) -> None:
        """Close a directory, and with `below` those in it."""
        with self._lock:
            if below:
                for found in [found for found in self._held if found[: len(parts)] == parts]:
                    self._close(found)
            elif parts in self._held:
                self._close(parts)

    def _close(self, parts: Path) -> None:
        os.close(self._held.pop(parts).descriptor)
