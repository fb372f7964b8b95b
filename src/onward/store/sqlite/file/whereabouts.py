"""Whether a database's files are still where they were: what is written into a deleted file is lost.

A file can be deleted or replaced while a process has it open, and SQLite then continues as if nothing had
happened. The same is true of the write-ahead log (`-wal`), which has what was committed last, and of its
index (`-shm`), by which processes exclude each other. SQLite itself deletes these two only when the last
connection closes. A look costs about a microsecond for each file, so every transaction takes it: after the
commit, since what was in its place then was acknowledged rightly.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from onward.errors import StoreGone


class _Noted(NamedTuple):
    """A file of the database, how to look at it, and what was seen when it was opened."""

    path: str
    look: Callable[[str], object]
    at: str
    seen: object


class Whereabouts:
    """The files that the paths named when they were opened. While one is open, no other has its number."""

    def __init__(self, path: str) -> None:
        self._log_fd = -1
        self._path = os.path.abspath(path)  # whatever becomes of the current directory
        self._database = _by_number(self._path)
        self._files = (self._database, *self._sides())

    def check(self) -> None:
        """Raise `StoreGone` if one of the paths names another file now, or none."""
        _check(self._files)

    def is_well(self) -> bool:
        """Whether all of them are there."""
        try:
            self.check()
        except StoreGone:
            return False
        return True

    def check_closed(self) -> None:
        """The same for the database alone: a connection that closes may delete the other two."""
        _check((self._database,))

    def reopened(self) -> None:
        """Note the side files of a new connection to the same database."""
        self.close()
        self._files = (self._database, *self._sides())

    def close(self) -> None:
        """Stop looking."""
        fd, self._log_fd = self._log_fd, -1
        if fd >= 0:
            os.close(fd)  # no library locks this one, so no lock is dropped

    def _sides(self) -> list[_Noted]:
        """The side files that are there; a connection that has the database for itself needs no index."""
        log, index = f"{self._path}-wal", f"{self._path}-shm"
        noted = [_by_number(index)] if os.path.exists(index) else []
        if os.path.exists(log):
            noted.append(self._by_name(log) if sys.platform == "linux" else _by_number(log))
        return noted

    def _by_name(self, path: str) -> _Noted:
        # Not by `stat`: that asks for the file's times, and Linux (from 6.13) then writes them anew with the
        # next change, which makes a commit a fifth slower. The kernel also knows an open file's name.
        self._log_fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        link = f"/proc/self/fd/{self._log_fd}"
        return _Noted(path, os.readlink, link, os.readlink(link))


def _check(files: Sequence[_Noted]) -> None:
    path = ""
    try:
        for path, look, at, seen in files:
            if look(at) != seen:
                raise StoreGone(path)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreGone(path) from None
    except OSError:
        pass  # this cannot be told just now, and SQLite will tell if it matters


def _by_number(path: str) -> _Noted:
    return _Noted(path, _number, path, _number(path))


def _number(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino
