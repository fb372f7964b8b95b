"""Whether a database's files are still where they were: what is written into a deleted file is lost.

A file can be deleted or replaced while a process has it open, and SQLite then continues as if nothing had
happened. The same is true of the write-ahead log (`-wal`), which has what was committed last, and of its
index (`-shm`), by which processes exclude each other. SQLite itself deletes these two only when the last
connection closes. A look costs about a microsecond for each file, so every transaction takes it: after the
commit, since what was in its place then was acknowledged rightly.

A look asks for a file's number and not for its times. Linux (from 6.13) writes the times of a file anew with
the next change after they were asked for. For the log that is the next commit, which takes a fifth longer
after `os.stat` or `os.fstat`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

from onward.errors import StoreGone

Number = tuple[int, int, int]
"""What a file is on this machine, whatever its name: its inode, and the two parts of its device."""
_AT_FDCWD, _STATX_INO = -100, 0x100


class Whereabouts:
    """The files that the paths named when they were opened. While one is open, no other has its number."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)  # whatever becomes of the current directory
        self._database = File(self._path)
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
        self._files = (self._database, *self._sides())

    def _sides(self) -> list[File]:
        """The side files that are there; a connection that has the database for itself needs no index."""
        return [File(path) for path in (f"{self._path}-wal", f"{self._path}-shm") if os.path.exists(path)]


class _Statx(ctypes.Structure):
    """What the kernel fills in; its place for the times stays empty."""

    _fields_ = (
        ("before", ctypes.c_uint8 * 32),
        ("ino", ctypes.c_uint64),
        ("between", ctypes.c_uint8 * 96),
        ("dev_major", ctypes.c_uint32),
        ("dev_minor", ctypes.c_uint32),
        ("after", ctypes.c_uint8 * 112),
    )


class File:
    """A file of the database, and the number that it had when it was opened."""

    __slots__ = ("_found", "_into", "_name", "path", "seen")

    def __init__(self, path: str) -> None:
        # Kept as what the call takes: to convert the arguments costs as much as the call itself.
        self.path, self._name, self._found = path, ctypes.c_char_p(os.fsencode(path)), _Statx()
        self._into = ctypes.byref(self._found)
        self.seen = self.number()

    def number(self) -> Number:
        """The number of the file that has the path now."""
        if _statx(_AT_FDCWD, self._name, 0, _STATX_INO, self._into) == 0:
            found = self._found
            return found.ino, found.dev_major, found.dev_minor
        status = os.stat(self.path)  # raises what is wrong, unless only `statx` itself is not to be had
        return status.st_ino, os.major(status.st_dev), os.minor(status.st_dev)


def _check(files: Sequence[File]) -> None:
    path = ""
    try:
        for file in files:
            path = file.path
            if file.number() != file.seen:
                raise StoreGone(path)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreGone(path) from None
    except OSError:
        pass  # this cannot be told just now, and SQLite will tell if it matters


def _no_statx(*arguments: object) -> int:
    """Where the system has no such call."""
    return -1


_statx = getattr(ctypes.CDLL(None), "statx", _no_statx) if sys.platform == "linux" else _no_statx
