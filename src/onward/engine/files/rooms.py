"""A step's own room, as the engine creates it: artifacts from the store, and a directory on disk.

What the previous attempt left is there for a step that continues with it, and read only when the step asks.

A stream is written to a file of a bounded size while it comes. The beginning is written as it comes, so that
`tail -f` shows it. What comes after `head_max` bytes is not written, except the last `tail_max` bytes, when
the file is closed. Lines of Onward say where that begins.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType

from onward.clock import Clock
from onward.engine.files.run_files import RunFiles
from onward.engine.log import redacted_result
from onward.entry import fill
from onward.errors import InvalidInput
from onward.handlers.room import NOTHING_LEFT, Artifacts, PreviousAttempt, Room
from onward.machine.definition import AGENT, Definition
from onward.model.events import ARTIFACT_BYTES_MAX, StepStarted, StepStatus
from onward.model.result import Result
from onward.model.run import OpenStep, Run
from onward.pipeline.graph import Node
from onward.receipts import folder as folders
from onward.receipts.run_directory import (
    STATUS_BYTES_MAX,
    as_reported,
    attempts_before,
    files_of_attempt,
    last_with_something,
    read_status,
)
from onward.redact.redactor import NOTHING_SECRET, Redactor
from onward.store.port.retention import Blobs
from onward.threads import in_thread


class Rooms:
    """Creates the rooms of steps."""

    def __init__(
        self, blobs: Blobs, clock: Clock, files: RunFiles | None, redactor: Redactor = NOTHING_SECRET
    ) -> None:
        self.blobs, self.clock, self._files, self.redactor = blobs, clock, files, redactor

    def of(
        self, definition: Definition, run: Run, started: StepStarted, loop: asyncio.AbstractEventLoop
    ) -> Room:
        """The room of an attempt that is about to begin. Creating it touches nothing."""
        files = self._files
        if files is not None:
            mode = files.mode_of(definition, started.node, run)
            if mode != "off":
                return RoomOnDisk(self, run, started, loop, files, is_full=mode == "full")
        return StoredRoom(self, run, started, loop)


class StoredRoom(Room):
    """A room whose artifacts are in the store."""

    def __init__(self, rooms: Rooms, run: Run, started: StepStarted, loop: asyncio.AbstractEventLoop) -> None:
        # The artifacts may be asked for in a handler's thread, which cannot find the loop by itself.
        self._rooms, self._run, self._started, self._loop = rooms, run, started, loop

    def _make_artifacts(self) -> Artifacts:
        return Artifacts(
            self._run.artifacts,
            step=self._started.step,
            now_us=self._rooms.clock.now_us,
            read=self._rooms.blobs.find,
            has_files=self.is_full,
            loop=self._loop,
            redactor=self._rooms.redactor,
        )


class RoomOnDisk(StoredRoom):
    """A room with a directory, which is created when the handler asks for it.

    That of an agent is created before the step, for its prompt. If the room is full and the handler does not
    ask, it is created when there is something to write.
    """

    _is_kept = _is_asked = False
    _output: Mapping[str, OutputFile] = MappingProxyType({})  # most attempts print nothing
    _unwritable: frozenset[str] = frozenset()

    def __init__(
        self,
        rooms: Rooms,
        run: Run,
        started: StepStarted,
        loop: asyncio.AbstractEventLoop,
        files: RunFiles,
        *,
        is_full: bool,
    ) -> None:
        # Not by way of the class above: every step has a room, and that way costs more than this.
        self._rooms, self._run, self._started, self._loop = rooms, run, started, loop
        self._files, self.is_full = files, is_full

    @cached_property
    def _path(self) -> folders.Path:
        opened = self._run.open_steps[self._started.step]
        return folders.attempt_path(opened.step, opened.attempt, opened.tries)

    @cached_property
    def _made(self) -> str | None:
        self._is_kept = True
        return self._files.begin(self._run, self._started.step, self._path)

    @property
    def directory(self) -> str | None:
        self._is_asked = True
        return self._made

    @property
    def run_directory(self) -> str | None:
        return None if self.directory is None else self._files.folder.path(self._run.id)

    @cached_property
    def left(self) -> PreviousAttempt:
        return left_before(self._files.folder, self._run.id, self._run.open_steps[self._started.step])

    def is_used(self) -> bool:
        return self._artifacts is not None or self._is_kept

    @property
    def _parts(self) -> folders.Path:
        return (self._run.id, *self._path)

    def keep_output(self, stream: str, data: bytes) -> None:
        if not self.is_full or self._made is None or stream in self._unwritable:
            return
        if stream not in self._output:
            name = stream + folders.OUTPUT_ENDING
            file = OutputFile(partial(self._files.folder.append, self._parts, name))
            self._output = {**self._output, stream: file}
        with self._warning(stream):
            self._output[stream].add(data)

    def end_output(self) -> None:
        for stream, file in self._output.items():
            with self._warning(stream):
                file.close()
        self._output = MappingProxyType({})

    @contextmanager
    def _warning(self, stream: str) -> Iterator[None]:
        """A disk that does not take the output costs a warning, and what follows is not written."""
        try:
            yield
        except OSError as error:
            self._unwritable |= {stream}
            self._files.tell(self._run.id, error)

    async def prepare(self, node: Node, prompt: str) -> None:
        if node.kind == AGENT:
            if self._made is not None:
                clean = self._rooms.redactor.redact(prompt)
                self._files.write(self._run.id, self._path, folders.PROMPT, clean.encode())
        else:
            self._is_kept = True
            self._files.register(self._run, self._started.step, self._path)

    async def settle(self, node: Node, result: Result) -> Result:
        if not self._is_kept:
            return await super().settle(node, result)
        if self._is_asked and self._made is not None:  # else the handler could not put anything there
            result = result if result.is_decided else self._reported(result)
            result = await self._with_files(result)
        self._files.settled(
            self._run.id, self._started.step, result.context_updates, response=result.response
        )
        return await super().settle(node, result)

    def _reported(self, result: Result) -> Result:
        """What the step's own `status.json` makes of a result that leaves it open.

        The directory was created for this attempt alone, so whatever is in it was written during it.
        """
        path = f"{self.directory}/{folders.STATUS}"
        try:
            content = self._files.folder.read(self._parts, folders.STATUS, limit=STATUS_BYTES_MAX)
            if content is None:
                return result
            return redacted_result(self._rooms.redactor, as_reported(result, read_status(content, path)))
        except InvalidInput as error:
            return _failed(result, self._rooms.redactor.redact(str(error)))
        except OSError as error:
            return _failed(result, f"{path} cannot be read: {error.strerror or error}.")

    async def _with_files(self, result: Result) -> Result:
        """Make artifacts of the files that the step put into its `artifacts/`."""
        parts = (*self._parts, folders.ARTIFACTS)
        try:
            found = list(self._files.folder.files(parts))
            if found:
                await in_thread(self._take, found, len(parts))
        except InvalidInput as error:
            return _failed(result, str(error))
        except OSError as error:
            return _failed(result, f"its artifacts cannot be read: {error.strerror or error}.")
        return result

    def _take(self, found: list[folders.Path], depth: int) -> None:
        for path in found:
            content = self._files.folder.read(path[:-1], path[-1], limit=ARTIFACT_BYTES_MAX)
            if content is None:
                continue
            clean = self._rooms.redactor.redact_bytes(content)
            if clean != content:
                self._files.folder.write(path[:-1], path[-1], clean)
            self.artifacts.store("/".join(path[depth:]), path[-1], clean)


def _failed(result: Result, reason: str) -> Result:
    """The attempt failed; a reason that it had before comes first."""
    before = result.failure_reason if result.status in (StepStatus.FAIL, StepStatus.RETRY) else ""
    status = result.status if before else StepStatus.FAIL
    reason = f"{before}; {reason}" if before else reason
    return replace(result, status=status, failure_reason=reason, is_decided=True)


TRANSCRIPTS = (folders.RESPONSE, "transcript.jsonl", "transcript.md", "transcript.txt")
RESPONSE_BYTES_MAX = 1024 * 1024


def left_before(folder: folders.Folder, run_id: str, opened: OpenStep) -> PreviousAttempt:
    """What the newest earlier try of this step left that left anything."""
    try:
        earlier = attempts_before(folder, run_id, opened.step, opened.attempt, opened.tries)
        path = last_with_something(folder, run_id, earlier)
        if path is None:
            return NOTHING_LEFT
        directory, response = folder.path(run_id, *path), _response(folder, (run_id, *path))
    except OSError:  # something else has that name, and is not followed
        return NOTHING_LEFT
    files = files_of_attempt(directory).files
    inside = f"{folders.ARTIFACTS}/"
    artifacts = {
        file.path.removeprefix(inside): f"{directory}/{file.path}"
        for file in files
        if file.path.startswith(inside)
    }
    return PreviousAttempt(directory, response, files, artifacts)


def _response(folder: folders.Folder, parts: folders.Path) -> str:
    for name in TRANSCRIPTS:
        content = folder.read(parts, name, limit=RESPONSE_BYTES_MAX)
        if content:
            return content.decode(errors="replace")
    return ""


HEAD_BYTES_MAX, TAIL_BYTES_MAX = 16 * 1024 * 1024, 1024 * 1024


class OutputFile:
    """Opened with the first byte; an OSError leaves it closed."""

    def __init__(
        self,
        open: Callable[[], int],
        *,
        head_max: int = HEAD_BYTES_MAX,
        tail_max: int = TAIL_BYTES_MAX,
    ) -> None:
        self._open, self._head_max, self._tail_max = open, head_max, tail_max
        self._file: int | None = None
        self._written = self._more = 0
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """Write it, or keep it for the end."""
        if self._file is None:
            self._file = self._open()
        room = self._head_max - self._written
        if room > 0:
            head, data = data[:room], data[room:]
            fill(self._file, head)
            self._written += len(head)
        if data:
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        assert self._file is not None
        if not self._more:
            fill(self._file, _note("the output continues; its end follows after the command has ended"))
        self._more += len(data)
        self._tail += data
        del self._tail[: -self._tail_max]

    def close(self) -> None:
        """Write the end of a long stream."""
        if self._file is None:
            return
        file, self._file = self._file, None
        try:
            if self._more:
                left_out = self._more - len(self._tail)
                fill(file, _note(f"{left_out:,} bytes were left out here") + self._tail)
        finally:
            os.close(file)


def _note(text: str) -> bytes:
    return f"\n[onward: {text}]\n".encode()
