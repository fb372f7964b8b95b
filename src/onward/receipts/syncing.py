"""Files that are written and have their names, and that the disk may not have yet."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial


class Unsynced:
    """Collects such files, to be synced where no other run has to wait for it."""

    def __init__(self) -> None:
        self._files: list[int] = []

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: int) -> None:
        """Take over the descriptor of a file."""
        self._files.append(file)

    def syncs(self, *, at_once: bool) -> list[Callable[[], None]]:
        """What remains to be done; `at_once`, in a piece for each file.

        File systems put syncs that are asked for at once into one write, so these take little longer than
        one. Where others sync at the same time they do so anyway, and one thread for each of them is enough.
        """
        files, self._files = self._files, []
        return [partial(_sync, [file]) for file in files] if at_once else [partial(_sync, files)]

    def close(self) -> None:
        """Give up what was not synced."""
        while self._files:
            os.close(self._files.pop())


def _sync(files: list[int]) -> None:
    """After an error the disk may have them or not; asking again would not tell."""
    try:
        for file in files:
            os.fsync(file)
    finally:
        for file in files:
            os.close(file)
