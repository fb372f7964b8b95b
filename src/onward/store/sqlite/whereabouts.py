"""Whether a database's file is still where it was: what is written into one that was deleted is lost.

A file can be deleted or replaced while a process has it open, and SQLite then goes on as if nothing had
happened (only the log of what took the file's place it leaves alone when it closes). Looking costs about a
microsecond, so every transaction does it: behind the commit, since what was there then was acknowledged well.
"""

from __future__ import annotations

import os

from onward.errors import StoreGone


class Whereabouts:
    """The file that a path named when it was opened. As long as it is open no other file has its number."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)  # whatever becomes of the current directory
        found = os.stat(self._path)
        self._file = found.st_dev, found.st_ino

    def check(self) -> None:
        """Raise `StoreGone` if the path names another file now, or none."""
        if not self._is_there():
            raise StoreGone(self._path)

    def _is_there(self) -> bool:
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # nobody can tell just now, and SQLite will tell if it matters
        return (found.st_dev, found.st_ino) == self._file
