"""A lock of our own which says that the database is in use, and which no other code in this process drops.

Whoever closes a SQLite database asks for an exclusive lock on the file. If it gets one, no one else has the
file open: it moves the write-ahead log into the database and deletes the log. SQLite's own lock against that
is a POSIX lock, and those belong to the process. When any code in the process closes the file (`sqlite3` of
Python is another copy of the library), they are all dropped. The next to close then deletes the log, and all
that is committed afterwards goes to a file without a name.

So a store holds a second lock on the same bytes, one that belongs to an open file and ends with that file
alone. It conflicts with the locks of every other process, and of every other library in this one. It costs
nothing once the database is open. Only Linux has such locks; elsewhere `Whereabouts` notices that the log is
gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys

from onward.errors import StoreUnavailable
from onward.store.sqlite.file.presence import CAUSES, FLOCK

# SQLite's file format fixes the bytes of which every connection locks a share while it has the file open.
SHARED_FIRST, SHARED_SIZE = 0x4000_0002, 510


class SharedLock:
    """A share of the database file, held from the end of opening it until it is released or closed."""

    def __init__(self, path: str) -> None:
        self._fd = -1
        if sys.platform == "linux":
            try:
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                # Refused only when our own connection has the file for itself: then no one else can open it.
                with contextlib.suppress(BlockingIOError):
                    self._set(fcntl.F_RDLCK)
            except OSError as error:
                cause = CAUSES.get(error.errno, StoreUnavailable)
                raise cause(f"{path} cannot be locked: {error.strerror}; put it on a local disk.") from None

    def release(self) -> None:
        """Let the connection of this process close the database for good, if it is the last one."""
        if self._fd >= 0:
            self._set(fcntl.F_UNLCK)

    def close(self) -> None:
        """Close the file, when the connection is closed: this drops what POSIX locks it still had."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _set(self, kind: int) -> None:
        asked = FLOCK.pack(kind, os.SEEK_SET, SHARED_FIRST, SHARED_SIZE, 0)
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, asked)
