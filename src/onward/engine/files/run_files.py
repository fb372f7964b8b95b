"""Runs on disk: which steps have a directory, and what is written there when something has happened.

All of it is derived from the log and none of it is read back, so a disk that fails costs a warning and never
a step. A run without any directory costs nothing here but a look into an empty table.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from onward.engine.files.run_on_disk import RunOnDisk
from onward.engine.files.sync_group import SyncGroup, Write
from onward.errors import WorkspaceFailed
from onward.machine.definition import AGENT, TOOL, Definition, is_simulated
from onward.model.events import AttemptFailed, Event, StepFinished
from onward.model.ids import Identity, called
from onward.model.run import Run
from onward.read.view import instant
from onward.receipts import run_directory
from onward.receipts.folder import (
    ARTIFACTS,
    CHECKPOINT,
    RESPONSE,
    STATUS,
    HeldDirectories,
    Path,
    artifact_name,
)
from onward.receipts.run_directory import Homes

WARNED_MAX = 1_000
BATCHES_AT_ONCE = 16
"""A disk that hangs keeps a thread for each batch that it has."""


class RunFiles:
    """The directories of all runs of a database, below `root`."""

    def __init__(
        self, root: str, identity: Identity, *, mode: str | None = None, warn: Callable[[str], None]
    ) -> None:
        self.folder = Homes(os.path.abspath(root), identity, held=HeldDirectories())
        # Threads of its own: handlers that use up other threads of the process hold up no file.
        self.group = SyncGroup(ThreadPoolExecutor(BATCHES_AT_ONCE, thread_name_prefix="onward-sync"))
        self._mode, self._warn = mode, warn
        self._on_disk: dict[str, RunOnDisk] = {}
        self._warned: set[tuple[str, str]] = set()
        self._entering = threading.Lock()

    def mode_of(self, definition: Definition, node_id: str, run: Run) -> str:
        """How a step is kept: as was set, as its node or graph says, or as suits its kind."""
        asked = self._mode or definition.file_modes[node_id]
        if asked:
            return asked
        kind = definition.kind(node_id)
        is_kept = kind in (AGENT, TOOL) and not is_simulated(run.simulation, kind)
        return "full" if is_kept else "lazy"

    def open(self, definition: Definition, run: Run) -> None:
        """A run begins or continues: if it has a directory, that is kept up to date from now on.

        It has one even if none of its steps asks for one: with files in full, and if no step of its pipeline
        has a handler that could ask.
        """
        if self._mode == "off":
            return
        asked = self._mode or definition.graph.text("files") or ("lazy" if definition.handlers else "full")
        # A first life has no directory to continue.
        if asked == "full" or (run.token > 1 and os.path.isdir(self.folder.path(run.id))):
            self._enter(run)

    # -- while a step is executed --------------------------------------------------------------------

    def register(self, run: Run, step: str, path: Path) -> RunOnDisk:
        """Keep the files of an attempt from now on. Nothing is written yet."""
        found = self._enter(run)
        found.paths[step] = path
        found.made.discard(step)
        return found

    def begin(self, run: Run, step: str, path: Path) -> str | None:
        """Have a new directory for an attempt, and say its path; None, and a warning, if that cannot be.

        All files of the steps before are there by then, so that the attempt can read them.
        """
        found = self.register(run, step, path)
        try:
            found.write_out()
            made = self.folder.make_new((run.id, *path))
        except OSError as error:
            self.tell(run.id, error)
            return None
        finally:
            self.tell_late(run.id)
        found.made.add(step)
        return made

    def write(self, run_id: str, path: Path, name: str, content: bytes) -> None:
        """Put a file there; a disk that does not take it is warned of."""
        try:
            self.folder.write((run_id, *path), name, content)
        except OSError as error:
            self.tell(run_id, error)

    def is_on_disk(self, run_id: str) -> bool:
        """Whether the run has a directory that this process keeps up to date."""
        found = self._on_disk.get(run_id)
        return found is not None and not found.is_refused

    def tell(self, run_id: str, error: OSError) -> None:
        """Warn, once for each thing that can be wrong with a run's files."""
        self.tell_why(run_id, error.strerror or str(error))

    def tell_why(self, run_id: str, why: str) -> None:
        """The same, with the reason in words."""
        if (run_id, why) in self._warned:
            return
        if len(self._warned) >= WARNED_MAX:
            self._warned.clear()
        self._warned.add((run_id, why))
        self._warn(
            f"the files of run {called(run_id)} cannot be written: {why}. The run continues without "
            f"them; `onward files {called(run_id)}` writes them from its log."
        )

    def tell_late(self, run_id: str) -> None:
        """Warn of what went wrong in a thread."""
        found = self._on_disk.get(run_id)
        for error in () if found is None else found.errors():
            self.tell(run_id, error)

    def _enter(self, run: Run) -> RunOnDisk:
        with self._entering:  # a handler's thread may ask for its directory
            found = self._on_disk.get(run.id)
            if found is not None and found.token == run.token and not found.is_refused:
                return found
            if found is not None:
                found.give_up()
            make = partial(self._have_directory, run)
            found = self._on_disk[run.id] = RunOnDisk(run.token, make, self.group)
            return found

    def _have_directory(self, run: Run) -> None:
        start_time, database = instant(run.created_at_us) or "", self.folder.identity.name
        manifest = run_directory.manifest(run, start_time=start_time, database=database)
        self.folder.move_in(
            run.id,
            manifest,
            lambda said: run_directory.is_of(said, run, start_time=start_time, database=database),
        )

    def own(self, run: Run) -> None:
        """Have a directory for something that is not a step's, such as the work tree.

        This is before anything of the run is executed, so no thread writes its files meanwhile.
        """
        try:
            self._have_directory(run)
        except OSError as error:
            raise WorkspaceFailed(f"{self.folder.path(run.id)}: {error.strerror or error}.") from error

    def settled(self, run_id: str, step: str, updates: Mapping[str, Any], *, response: str) -> None:
        """Keep what a step answered, and what it sets: its branch may be gone when that is recorded."""
        found = self._on_disk.get(run_id)
        if found is None:
            return
        found.updates[step] = updates
        if response and step in found.paths:
            parts = run_id, *found.paths[step]
            if step not in found.made:
                found.made.add(step)
                found.add(lambda: self.folder.make_new(parts))
            found.add(lambda: self.folder.write(parts, RESPONSE, response.encode()))

    def upto(self, run_id: str) -> int:
        """The event up to which it is known what the run has finished."""
        found = self._on_disk.get(run_id)
        return 0 if found is None else found.upto

    def learn(self, run_id: str, seq: int, event: Event) -> None:
        """What the log says that was written before this process kept the run's directory, or by others."""
        found = self._on_disk.get(run_id)
        if found is not None:
            found.learn(seq, event)

    # -- when something was recorded -----------------------------------------------------------------

    def observe(self, run: Run, events: Sequence[Event]) -> None:
        """Have written what was just recorded, if the run has a directory: soon, and in this order."""
        found = self._on_disk.get(run.id)
        if found is None:
            return
        for seq, event in enumerate(events, run.head - len(events) + 1):
            found.learn(seq, event)
            if isinstance(event, StepFinished):
                updates = found.updates.pop(event.step, {})
                self._end(run.id, found, event.step, partial(run_directory.finished_status, event, updates))
                self._remove_artifacts(run.id, found, event)
            elif isinstance(event, AttemptFailed):
                found.updates.pop(event.step, None)
                self._end(run.id, found, event.step, partial(run_directory.failed_status, event))
        if run.worker is None:
            self.add_checkpoint(run)

    def add_checkpoint(self, run: Run) -> None:
        """Have every finished step in the checkpoint.

        It has a line for each of them and replaces the one before, so it is written after several steps.
        """
        found = self._on_disk.get(run.id)
        if found is not None and found.upto == run.head and found.told < len(found.finished):
            found.told = len(found.finished)
            finished, timestamp = tuple(found.finished), instant(run.updated_at_us) or ""
            found.add(lambda: self._write_checkpoint(run, finished, timestamp))

    def _write_checkpoint(self, run: Run, finished: Sequence[run_directory.Told], timestamp: str) -> None:
        self.folder.write((run.id,), CHECKPOINT, run_directory.checkpoint(run, finished, timestamp=timestamp))

    def _end(self, run_id: str, found: RunOnDisk, step: str, status: Callable[[], bytes]) -> None:
        """An attempt is over: after this, nothing more is written to its directory."""
        path, is_made = found.paths.pop(step, None), step in found.made
        found.made.discard(step)
        if path is not None:
            found.add(partial(self._write_status, (run_id, *path), status, is_made))

    def _write_status(self, parts: Path, status: Callable[[], bytes], is_made: bool) -> None:
        if is_made:
            self.folder.write(parts, STATUS, status())
            self.folder.let_go(parts)
        else:
            self.folder.write_in_new(parts, STATUS, status())

    def _remove_artifacts(self, run_id: str, found: RunOnDisk, event: StepFinished) -> None:
        for id, artifact in event.artifacts.items():
            if artifact is None:  # others were written before the commit, with the step's receipt
                found.add(partial(self.folder.remove, (run_id, ARTIFACTS), artifact_name(id)))

    # -- when it is written --------------------------------------------------------------------------

    def first(self, run_id: str) -> list[Write]:
        """What must be written before anything else of the run is."""
        found = self._on_disk.get(run_id)
        return [] if found is None else found.first()

    def write_soon(self, run_id: str) -> None:
        """Write what waits beside the event loop. The run waits for it when it is closed."""
        found = self._on_disk.get(run_id)
        if found is not None:
            found.write_soon()

    async def close(self, run: Run, *, is_ours: bool) -> None:
        """Return when all of the run is written, and let its directories go.

        If it may not be ours any more, what waits is dropped: the files may be the next holder's.
        """
        found = self._on_disk.get(run.id)
        if found is None or found.token != run.token:
            return
        if not is_ours:
            found.give_up()
        try:
            await found.finish(partial(self.folder.let_go, (run.id,), below=True))
        except OSError as error:
            self.tell(run.id, error)
        finally:
            self.tell_late(run.id)
            del self._on_disk[run.id]
            self.folder.let_go((run.id,) if self._on_disk else (), below=True)
