"""Runs on disk: which steps have a directory, and what is written there when something has happened.

All of it is derived from the log and none of it is read back, so a disk that fails costs a warning and never
a step. A run without any directory costs nothing here but a look into an empty table.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onward.errors import WorkspaceFailed
from onward.machine.definition import AGENT
from onward.model.event import AttemptFailed, Event, StepFinished
from onward.model.identity import Identity
from onward.model.ids import display_id
from onward.model.run import Run
from onward.pipeline.graph import Graph, Node
from onward.read.view import instant
from onward.receipts import pages
from onward.receipts.held import Held
from onward.receipts.homes import Homes
from onward.receipts.names import ARTIFACTS, CHECKPOINT, STATUS, Path, artifact_name

TOOL = "tool"
WARNED_MAX = 1_000


@dataclass(slots=True)
class _OnDisk:
    """A run that this process holds and that has a directory; `finished` is known up to event `upto`."""

    token: int
    paths: dict[str, Path] = field(default_factory=dict)
    updates: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    finished: list[pages.Told] = field(default_factory=list)
    upto: int = 0
    told: int = 0

    def learn(self, seq: int, event: Event) -> None:
        """Take in an event, if it is the next one."""
        if seq == self.upto + 1:
            self.upto = seq
            if isinstance(event, StepFinished):
                self.finished.append(pages.told(event))


class RunFiles:
    """The directories of all runs of a database, below `root`."""

    def __init__(
        self, root: str, identity: Identity, *, mode: str | None = None, warn: Callable[[str], None]
    ) -> None:
        self.folder = Homes(os.path.abspath(root), identity, held=Held())
        self._mode, self._warn = mode, warn
        self._on_disk: dict[str, _OnDisk] = {}
        self._warned: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def mode_of(self, graph: Graph, node: Node, kind: str, run: Run) -> str:
        """How a step is kept: as was set, as its node or graph says, or as suits its kind."""
        asked = self._mode or node.text("files") or graph.text("files")
        if asked:
            return asked
        return "full" if kind == TOOL or (kind == AGENT and run.simulation is None) else "lazy"

    # -- while a step is made ------------------------------------------------------------------------

    def begin(self, run: Run, step: str, path: Path) -> str | None:
        """Have a new directory for an attempt, and say its path; None, and a warning, if that cannot be."""
        try:
            with self._lock:  # a handler's thread may ask for its directory
                self._enter(run).paths[step] = path
                return self.folder.make_new((run.id, *path))
        except OSError as error:
            self.tell(run.id, error)
            return None

    def write(self, run_id: str, path: Path, name: str, content: bytes) -> None:
        """Put a file there; a disk that does not take it is warned of."""
        try:
            self.folder.write((run_id, *path), name, content)
        except OSError as error:
            self.tell(run_id, error)

    def is_on_disk(self, run_id: str) -> bool:
        """Whether the run has a directory that this process keeps up to date."""
        return run_id in self._on_disk

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
            f"the files of run {display_id(run_id)} cannot be written: {why}. The run continues without "
            f"them; `onward files {display_id(run_id)}` writes them from its log."
        )

    def _enter(self, run: Run) -> _OnDisk:
        found = self._on_disk.get(run.id)
        if found is not None and found.token == run.token:
            return found
        self._have_directory(run)
        found = self._on_disk[run.id] = _OnDisk(run.token)
        return found

    def _have_directory(self, run: Run) -> None:
        start_time, database = instant(run.created_at_us) or "", self.folder.identity.name
        manifest = pages.manifest(run, start_time=start_time, database=database)
        self.folder.move_in(
            run.id, manifest, lambda said: pages.is_of(said, run, start_time=start_time, database=database)
        )

    def own(self, run: Run) -> None:
        """Have a directory for something that is not a step's, such as the work tree."""
        try:
            with self._lock:
                self._have_directory(run)
        except OSError as error:
            raise WorkspaceFailed(f"{self.folder.path(run.id)}: {error.strerror or error}.") from error

    def settled(self, run_id: str, step: str, updates: Mapping[str, Any]) -> None:
        """Remember what a step sets, until it is recorded: its branch may be gone by then."""
        found = self._on_disk.get(run_id)
        if found is not None:
            found.updates[step] = updates

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

    def go_on(self, run: Run) -> None:
        """A run is driven on: if it has a directory already, that is kept up to date from now on."""
        if self._mode == "off" or not os.path.isdir(self.folder.path(run.id)):
            return
        try:
            with self._lock:
                self._enter(run)
        except OSError as error:
            self.tell(run.id, error)

    def observe(self, run: Run, events: Sequence[Event]) -> None:
        """Write down what was just recorded, if the run has a directory."""
        found = self._on_disk.get(run.id)
        if found is None:
            return
        for seq, event in enumerate(events, run.head - len(events) + 1):
            found.learn(seq, event)
            if isinstance(event, StepFinished):
                self._step_finished(run, event, found)
            elif isinstance(event, AttemptFailed) and event.step in found.paths:
                found.updates.pop(event.step, None)
                self._end(run.id, found.paths.pop(event.step), pages.failed_status(event))
        if run.worker is None:
            self.write_checkpoint(run)
            del self._on_disk[run.id]
            self.folder.let_go((run.id,) if self._on_disk else (), below=True)

    def write_checkpoint(self, run: Run) -> None:
        """Have every finished step in the checkpoint.

        It has a line for each of them and replaces the one before, so it is written after several steps.
        """
        found = self._on_disk.get(run.id)
        if found is not None and found.upto == run.head and found.told < len(found.finished):
            found.told = len(found.finished)
            timestamp = instant(run.updated_at_us) or ""
            self.write(run.id, (), CHECKPOINT, pages.checkpoint(run, found.finished, timestamp=timestamp))

    def _end(self, run_id: str, path: Path, status: bytes) -> None:
        """An attempt is over: nothing more is written to its directory."""
        self.write(run_id, path, STATUS, status)
        self.folder.let_go((run_id, *path))

    def _step_finished(self, run: Run, event: StepFinished, found: _OnDisk) -> None:
        path, updates = found.paths.pop(event.step, None), found.updates.pop(event.step, {})
        if path is not None:
            self._end(run.id, path, pages.finished_status(event, updates))
        for id, artifact in event.artifacts.items():
            if artifact is not None:
                continue  # written before the commit, with the step's receipt
            try:
                self.folder.remove((run.id, ARTIFACTS), artifact_name(id))
            except OSError as error:
                self.tell(run.id, error)
