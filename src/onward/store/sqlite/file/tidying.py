"""Files that processes left which died: removed when nobody needs to know of them any more.

A file is signed after it was locked, and its lock is let go of only by the end of its process: one that is
signed and not locked is a dead process's for certain. Names are never used again, so nobody can come to it
between the look and the removal. One without a signature may be somebody's who is just beginning, and stays.

As long as a run or an unfinished effect names the process, the file says that it is dead; without it only a
time limit would. So the database is asked behind the look: what a dead process wrote is all there then.
"""

from __future__ import annotations

import contextlib
import os
import stat

import apsw

from onward.store.owner import owner_proof
from onward.store.sqlite.file.presence import is_held
from onward.store.sqlite.statements import QUERIES

ENDING = ".lock"
LOOKED_AT_MAX = 1_000
NONCE_BYTES_MAX = 64


def dead_files(directory: str) -> list[str]:
    """The names of files whose processes are certainly dead."""
    try:
        names = [name for name in os.listdir(directory) if name.endswith(ENDING)]
    except OSError:
        return []  # nobody has announced itself here yet, or it cannot be read: then nothing is tidied
    return [name for name in names[:LOOKED_AT_MAX] if _is_dead(os.path.join(directory, name))]


def _is_dead(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        nonce = os.path.basename(path).removesuffix(ENDING).encode()
        is_signed = os.pread(fd, NONCE_BYTES_MAX + 1, 0) == nonce
        return stat.S_ISREG(os.fstat(fd).st_mode) and is_signed and not is_held(fd)
    except OSError:
        return False
    finally:
        os.close(fd)


def remove_unneeded(db: apsw.Connection, directory: str, names: list[str]) -> None:
    """Remove those of dead processes that nothing in the database names."""
    needed = {owner_proof(owner).partition(":")[0] for (owner,) in db.execute(QUERIES["owner_named"])}
    for name in names:
        if name.removesuffix(ENDING) not in needed:
            with contextlib.suppress(OSError):  # another process was faster, or may not: the next one tries
                os.unlink(os.path.join(directory, name))
