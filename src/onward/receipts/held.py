"""Directories that are held open, so that the way to them is walked once and not for every file.

A descriptor always leads to the directory that was checked when it was opened. It is used only while the path
leads to that same directory: one that was removed, moved or exchanged for something else is walked to again,
and refused if a link is on the way.
"""

from __future__ import annotations

import resource
import threading
from collections import OrderedDict

from onward.receipts.entry import Directory
from onward.receipts.names import Path

HELD_MAX = 1_024
SHARE_MAX = 4  # one in so many of the descriptors that this process may have: the others are for the work


class Held:
    """Open directories, by the parts that lead to them. Those of the run that is longest unused go first.

    A directory that is dropped while a thread works in it is closed when the thread is done.
    """

    def __init__(self, limit: int = HELD_MAX) -> None:
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._limit = limit if allowed == resource.RLIM_INFINITY else min(limit, allowed // SHARE_MAX)
        self._held: OrderedDict[Path, dict[Path, Directory]] = OrderedDict()
        self._count = 0
        self._lock = threading.Lock()  # a handler's thread may ask for its directory

    def __len__(self) -> int:
        return self._count

    def again(self, parts: Path) -> Directory | None:
        """The directory that was kept, if it is still where it was."""
        top = parts[:1]
        with self._lock:
            found = self._held.get(top, {}).get(parts)
            if found is None:
                return None
            self._held.move_to_end(top)
        if found.is_there():
            return found
        self.let_go(parts)
        return None

    def keep(self, parts: Path, directory: Directory) -> None:
        """Hold it open."""
        top = parts[:1]
        with self._lock:
            below = self._held.setdefault(top, {})
            self._held.move_to_end(top)
            self._count += parts not in below
            below[parts] = directory
            while self._count > self._limit:
                oldest, below = next(iter(self._held.items()))
                self._drop(oldest, next(iter(below)))

    def let_go(self, parts: Path, *, below: bool = False) -> None:
        """Hold a directory no longer, and with `below` those in it."""
        top = parts[:1]
        with self._lock:
            if below and not parts:
                self._held.clear()
                self._count = 0
            inside = self._held.get(top, {})
            gone = [one for one in inside if one[: len(parts)] == parts] if below else [parts]
            for one in gone:
                if one in inside:
                    self._drop(top, one)

    def _drop(self, top: Path, parts: Path) -> None:
        self._count -= 1
        below = self._held[top]
        del below[parts]
        if not below:
            del self._held[top]
