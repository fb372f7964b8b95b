"""One held run that has a directory: what is known of its files, and what waits to be written.

The event loop adds writes; a thread does them. Each time, it does all that wait, in order and under the
run's lock, so no two threads change the order of one run's files.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from onward.engine.files.sync_group import SyncGroup, Write
from onward.engine.step.shielded import unbroken
from onward.model.events import Event, StepFinished
from onward.receipts import run_directory
from onward.receipts.folder import Path, Unsynced

SOON_S = 0.01
"""How long a file that is written after its commit waits for the run's next receipts."""


class RunOnDisk:
    """A run's attempts under way and its finished steps, which are known up to event `upto`.

    `make` makes the run's own directory. It is called before the first write.
    """

    def __init__(self, token: int, make: Callable[[], None], group: SyncGroup) -> None:
        self.token, self._make, self._group = token, make, group
        self.paths: dict[str, Path] = {}
        self.made: set[str] = set()
        """The steps whose attempt has its directory, or has it when the writes that wait are done."""
        self.updates: dict[str, Mapping[str, Any]] = {}
        self.finished: list[run_directory.Told] = []
        self.upto = self.told = 0
        self.is_refused = False
        """Whether its own directory could not be made."""
        self._is_made = False
        self._waiting: deque[Callable[[], object]] = deque()
        self._errors: deque[OSError] = deque()
        self._lock = threading.Lock()
        self._soon: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None

    def learn(self, seq: int, event: Event) -> None:
        """Take in an event, if it is the next one."""
        if seq == self.upto + 1:
            self.upto = seq
            if isinstance(event, StepFinished):
                self.finished.append(run_directory.told(event))

    def add(self, write: Callable[[], object]) -> None:
        """Have this done after all that waits."""
        self._waiting.append(write)

    def first(self) -> list[Write]:
        """What must be written before anything else of the run is."""
        return [self.write_out] if self._waiting or not self._is_made else []

    def write_out(self, unsynced: Unsynced | None = None) -> None:
        """Do all that waits. OSError: the run has no directory; what else goes wrong is kept for `errors`."""
        with self._lock:
            try:
                self._have_directory()
            except OSError:
                self.is_refused = True
                self._waiting.clear()
                raise
            while self._waiting:
                try:
                    self._waiting.popleft()()
                except OSError as error:
                    self._errors.append(error)

    def _have_directory(self) -> None:
        if not self._is_made:
            self._make()
            self._is_made = True

    def write_soon(self) -> None:
        """Write what waits, together with the run's next receipts or by itself in a moment.

        What goes wrong is kept for `errors`: a warning must not be lost in a callback.
        """
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON_S, self._write_alone)

    def _write_alone(self) -> None:
        self._soon = None
        if self._writing is not None:
            self.write_soon()
        elif self._waiting:
            self._writing = self._group.write((self.write_out,))
            self._writing.add_done_callback(self._wrote)

    def _wrote(self, writing: asyncio.Future[None]) -> None:
        self._writing, error = None, writing.exception()
        if isinstance(error, OSError):
            self._errors.append(error)
        elif error is not None:
            raise error

    def give_up(self) -> None:
        """Do nothing of what waits."""
        self._waiting.clear()
        if self._soon is not None:
            self._soon.cancel()

    async def finish(self, last: Callable[[], object]) -> None:
        """Return when all that waits is written, and what is being written; after all, do `last`."""
        if self._soon is not None:
            self._soon.cancel()
        if self._writing is not None:
            await unbroken(self._writing)
        if self._waiting:
            self.add(last)
            await unbroken(self._group.write((self.write_out,)))

    def errors(self) -> list[OSError]:
        """What went wrong since this was last asked."""
        return [self._errors.popleft() for _ in range(len(self._errors))]
