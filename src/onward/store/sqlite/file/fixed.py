"""A database in a directory where nothing can be written: a read-only mount, a backup, another user's.

SQLite reads a file in WAL mode only beside its side files, and cannot create them here. If they are there,
perhaps because another process writes, it reads with them. If they are not, the file itself has everything,
and it is opened as immutable: SQLite then takes no locks and never looks whether the file has changed.
`Stamp` looks instead, before and after each read.
"""

from __future__ import annotations

import os
from urllib.parse import quote

import apsw
import msgspec

from onward.errors import StoreReadOnly

_READ = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


def is_fixed(path: str) -> bool:
    """Whether there is a file, and nothing can be created beside it."""
    return os.path.lexists(path) and not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK)


def connect_fixed(path: str) -> apsw.Connection:
    """A connection that only reads."""
    stamp = Stamp.of(path)
    if not stamp.has_log:
        return apsw.Connection(f"file:{quote(os.path.abspath(path))}?immutable=1", flags=_READ)
    if not os.path.exists(f"{path}-shm"):
        raise StoreReadOnly(
            f"{path} cannot be read where nothing can be written, because what was written last is in "
            f"{path}-wal; copy both files to a directory of your own, and name the copy with --db."
        )
    return apsw.Connection(f"file:{quote(os.path.abspath(path))}?mode=ro", flags=_READ)


class Stamp(msgspec.Struct, frozen=True):
    """What a file looks like from outside: if it is the same, nothing was written to it."""

    has_log: bool
    size: int
    changed_at_ns: int

    @classmethod
    def of(cls, path: str) -> Stamp:
        found = os.stat(path)
        try:
            has_log = os.stat(f"{path}-wal").st_size > 0
        except OSError:
            has_log = False
        return cls(has_log, found.st_size, found.st_mtime_ns)
