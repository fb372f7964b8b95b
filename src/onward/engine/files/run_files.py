"""Runs on disk: which steps have a directory, and what is written there when something has happened.

All of it is derived from the log and none of it is read back, so a disk that fails costs a warning and never
a step. A run without any directory costs nothing here but a look into an empty table.

`RunOnDisk` is one held run that has a directory: what is known of its files, and what waits to be written.
The event loop adds writes; a thread does them. Each time, it does all that wait, in order and under the
run's lock, so no two threads change the order of one run's files.

`SyncGroup` is group commit for files: what several steps leave at the same time is written and synced
together. A thread for each file makes the threads fight for the interpreter's lock. What waits together goes
to the disk as one batch in one thread. The next batch is written while the one before is synced, which needs
no interpreter. It waits while that one is still being written, unless that takes long: the cause may be that
batch's alone, and others do not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from onward.engine.persist import unbroken
from onward.errors import WorkspaceFailed
from onward.machine.definition import AGENT, TOOL, Definition, is_simulated
from onward.model.events import AttemptFailed, Event, StepFinished
from onward.model.ids import Identity, called
from onward.model.run import Run
from onward.read.view import instant
from onward.receipts import folder as folders
from onward.receipts import run_directory
from onward.receipts.run_directory import Homes

WARNED_MAX = 1_000
BATCHES_AT_ONCE = 16
"""A disk that hangs keeps a thread for each batch that it has."""


class RunFiles:
    """The directories of all runs of a database, below `root`."""

    def __init__(
        self, root: str, identity: Identity, *, mode: str | None = None, warn: Callable[[str], None]
    ) -> None:
        self.folder = Homes(os.path.abspath(root), identity, held=folders.HeldDirectories())
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

    def register(self, run: Run, step: str, path: folders.Path) -> RunOnDisk:
        """Keep the files of an attempt from now on. Nothing is written yet."""
        found = self._enter(run)
        found.paths[step] = path
        found.made.discard(step)
        return found

    def begin(self, run: Run, step: str, path: folders.Path) -> str | None:
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

    def write(self, run_id: str, path: folders.Path, name: str, content: bytes) -> None:
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
        start_time, database = instant(run.created_at_us), self.folder.identity.name
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
            found.add(lambda: self.folder.write(parts, folders.RESPONSE, response.encode()))

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
            finished, timestamp = tuple(found.finished), instant(run.updated_at_us)
            found.add(lambda: self._write_checkpoint(run, finished, timestamp))

    def _write_checkpoint(self, run: Run, finished: Sequence[run_directory.Told], timestamp: str) -> None:
        self.folder.write(
            (run.id,), folders.CHECKPOINT, run_directory.checkpoint(run, finished, timestamp=timestamp)
        )

    def _end(self, run_id: str, found: RunOnDisk, step: str, status: Callable[[], bytes]) -> None:
        """An attempt is over: after this, nothing more is written to its directory."""
        path, is_made = found.paths.pop(step, None), step in found.made
        found.made.discard(step)
        if path is not None:
            found.add(partial(self._write_status, (run_id, *path), status, is_made))

    def _write_status(self, parts: folders.Path, status: Callable[[], bytes], is_made: bool) -> None:
        if is_made:
            self.folder.write(parts, folders.STATUS, status())
            self.folder.let_go(parts)
        else:
            self.folder.write_in_new(parts, folders.STATUS, status())

    def _remove_artifacts(self, run_id: str, found: RunOnDisk, event: StepFinished) -> None:
        for id, artifact in event.artifacts.items():
            if artifact is None:  # others were written before the commit, with the step's receipt
                found.add(partial(self.folder.remove, (run_id, folders.ARTIFACTS), folders.artifact_name(id)))

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


SOON_S = 0.01
"""How long a file that is written after its commit waits for the run's next receipts."""


class RunOnDisk:
    """A run's attempts under way and its finished steps, which are known up to event `upto`.

    `make` makes the run's own directory. It is called before the first write.
    """

    def __init__(self, token: int, make: Callable[[], None], group: SyncGroup) -> None:
        self.token, self._make, self._group = token, make, group
        self.paths: dict[str, folders.Path] = {}
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

    def write_out(self, unsynced: folders.Unsynced | None = None) -> None:
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


SLOW_S = 0.02
Write = Callable[[folders.Unsynced], object]
"""Writes files, and hands over those that are to be synced."""
Failures = Sequence[BaseException | None]
"""What went wrong with each member of a batch."""


class SyncRequest(NamedTuple):
    """Files to be written, and what is done when others can read them and when the disk has them.

    `written` says whether they were written; if not, `synced` says why.
    """

    writes: Sequence[Write]
    written: asyncio.Future[bool]
    synced: asyncio.Future[None]


class SyncGroup:
    """Writes and syncs files in `threads`."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._waiting: list[SyncRequest] = []
        self._being_written = 0
        self._hurry: asyncio.TimerHandle | None = None

    def write(self, writes: Sequence[Write]) -> asyncio.Future[None]:
        """Done when all is written, in this order, and the disk has what is to be synced; OSError if not."""
        return self.ask(writes).synced

    def ask(self, writes: Sequence[Write]) -> SyncRequest:
        """The same, for a caller that has something to do between the two."""
        loop = asyncio.get_running_loop()
        asked = SyncRequest(writes, loop.create_future(), loop.create_future())
        self._waiting.append(asked)
        if not self._being_written:
            self._begin()
        elif self._hurry is None:
            self._hurry = loop.call_later(SLOW_S, self._begin)
        return asked

    def _begin(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()
            self._hurry = None
        batch, self._waiting = self._waiting, []
        if not batch:
            return
        works, loop = [asked.writes for asked in batch], asyncio.get_running_loop()

        def wrote(failures: Failures) -> None:
            loop.call_soon_threadsafe(self._wrote, batch, failures)

        try:
            working = loop.run_in_executor(self._threads, write_and_sync, works, wrote)
        except RuntimeError as error:  # no thread can be started
            _answer(batch, [error] * len(batch))
            return
        self._being_written += 1
        working.add_done_callback(partial(self._ended, batch))

    def _ended(self, batch: Sequence[SyncRequest], working: asyncio.Future[Failures]) -> None:
        defect = working.exception()
        if defect is not None and not all(asked.written.done() for asked in batch):
            self._wrote(batch, [defect] * len(batch))  # the thread could not say so
        _answer(batch, working.result() if defect is None else [defect] * len(batch))

    def _wrote(self, batch: Sequence[SyncRequest], failures: Failures) -> None:
        for asked, failure in zip(batch, failures, strict=True):
            if not asked.written.done():  # else its caller was cancelled
                asked.written.set_result(failure is None)
        self._being_written -= 1
        if not self._being_written:
            self._begin()


def _answer(batch: Sequence[SyncRequest], failures: Failures) -> None:
    for asked, failure in zip(batch, failures, strict=True):
        if not asked.written.done():
            asked.written.set_result(failure is None)
        if asked.synced.done():
            continue  # its caller was cancelled
        if failure is None:
            asked.synced.set_result(None)
        else:
            asked.synced.set_exception(failure)


def write_and_sync(works: Sequence[Sequence[Write]], wrote: Callable[[Failures], object]) -> Failures:
    """Do all of them, say so, then sync what they wrote; answers what went wrong with which."""
    written: list[tuple[Sequence[int], BaseException | None]] = []
    for writes in works:
        unsynced, failure = folders.Unsynced(), None
        try:
            for write in writes:
                write(unsynced)
        except Exception as error:
            failure = error
        written.append((unsynced.take(), failure))
    with contextlib.suppress(RuntimeError):  # the loop is closed: no batch comes after this one
        wrote([failure for _, failure in written])
    unsure = folders.sync_files([file for files, _ in written for file in files])
    return [
        failure or next((unsure[file] for file in files if file in unsure), None)
        for files, failure in written
    ]
