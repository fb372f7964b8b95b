"""Which runs this process can serve: those whose handlers it has, and whose directory is on this machine."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from onward.model.row import handlers_missing, needed_directory
from onward.model.run import Run


class Unserved:
    """Remembers what runs of the queue needed and this process did not have.

    The handlers of a process do not change, but a directory may be created or mounted at any time.
    """

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = kinds
        self._seen: dict[str, Run] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """The handlers that this process has."""
        return tuple(sorted(self._kinds))

    @property
    def seen(self) -> Mapping[str, Run]:
        """The needs that were not met when this process last looked, each with a run that has them."""
        return self._seen

    @property
    def lacks(self) -> tuple[str, ...]:
        """The directories among them that this process does not have."""
        needs = {need for run in self._seen.values() for need in run.needs}
        directories = filter(None, map(needed_directory, needs))
        return tuple(sorted(directory for directory in directories if not os.path.isdir(directory)))

    def refuses(self, run: Run) -> bool:
        """Whether the run needs something that this process does not have; then it is remembered."""
        if self._has(run.needs):
            return False
        self._seen[" ".join(run.needs)] = run
        return True

    def now(self) -> tuple[str, ...]:
        """The needs that are still not met, as they are stored."""
        self._seen = {text: run for text, run in self._seen.items() if not self._has(run.needs)}
        return tuple(sorted(self._seen))

    def _has(self, needs: Collection[str]) -> bool:
        directories = filter(None, map(needed_directory, needs))
        return not handlers_missing(needs, self._kinds) and all(map(os.path.isdir, directories))
