"""Which runs this process can serve: those whose handlers it has, and whose directory is on this machine."""

from __future__ import annotations

import os
from collections.abc import Collection

from onward.model.needs import handlers_missing, needed_directory
from onward.model.run import Run


class Unserved:
    """Remembers what runs of the queue needed and this process did not have.

    The handlers of a process do not change, but a directory may be created or mounted at any time.
    """

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = kinds
        self._seen: dict[str, tuple[str, ...]] = {}

    def refuses(self, run: Run) -> bool:
        """Whether the run needs something that this process does not have; then it is remembered."""
        if self._has(run.needs):
            return False
        self._seen[" ".join(run.needs)] = run.needs
        return True

    def now(self) -> tuple[str, ...]:
        """The needs that are still not met, as they are stored."""
        self._seen = {text: needs for text, needs in self._seen.items() if not self._has(needs)}
        return tuple(sorted(self._seen))

    def _has(self, needs: Collection[str]) -> bool:
        directories = filter(None, map(needed_directory, needs))
        return not handlers_missing(needs, self._kinds) and all(map(os.path.isdir, directories))
