"""What `onward doctor` looks at in a SQLite database."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

import apsw

from onward.store.privacy import exposed
from onward.store.sqlite.file.connection import LIBRARY_MIN
from onward.store.sqlite.file.filesystem import NETWORK, filesystem_of
from onward.store.sqlite.file.migrate import schema_number

SPACE_MIN = 64 * 1024 * 1024


def check_database(db: apsw.Connection, path: str) -> Sequence[tuple[str, bool, str]]:
    """Subject, whether it is well, and a sentence for each."""
    directory = os.path.dirname(os.path.abspath(path))
    version = apsw.sqlite_lib_version()
    kind, mode = filesystem_of(directory), stat.S_IMODE(os.stat(path).st_mode)
    # The side files have the mode that the database had when they were made.
    told = exposed([path, f"{path}-workers"]) or exposed([f"{path}-wal", f"{path}-shm"])
    space = os.statvfs(directory)
    free = space.f_bavail * space.f_frsize
    sound = db.execute("PRAGMA quick_check(1)").get
    return (
        ("library", tuple(map(int, version.split("."))) >= LIBRARY_MIN, f"SQLite {version}"),
        ("schema", True, f"schema {schema_number(db)}"),
        *_durability(db),
        ("file system", kind not in NETWORK, f"{path} is on {kind or 'an unknown file system'}"),
        ("permissions", not told, told or f"mode {mode:04o}"),
        ("space", free >= SPACE_MIN, f"{free // 2**20} MiB free"),
        ("integrity", sound == "ok", str(sound)),
    )


def _durability(db: apsw.Connection) -> Sequence[tuple[str, bool, str]]:
    if db.readonly("main"):
        return (("writable", False, "this user can only read it here; runs cannot be started or changed"),)
    journal, sync = db.execute("PRAGMA journal_mode").get, db.execute("PRAGMA synchronous").get
    return (("durability", journal == "wal" and sync >= 2, f"journal_mode={journal}, synchronous={sync}"),)
