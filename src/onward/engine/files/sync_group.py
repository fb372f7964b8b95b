"""Group commit for files: what several steps leave at the same time is written and synced together.

A thread for each file makes the threads fight for the interpreter's lock. What waits together goes to the
disk as one batch in one thread. The next batch is written while the one before is synced, which needs no
interpreter. It waits while that one is still being written, unless that takes long: the cause may be that
batch's alone, and others do not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

from onward.receipts.folder import Unsynced, sync_files

SLOW_S = 0.02
Write = Callable[[Unsynced], object]
"""Writes files, and hands over those that are to be synced."""
Failures = Sequence[BaseException | None]
"""What went wrong with each member of a batch."""


class Asked(NamedTuple):
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
        self._waiting: list[Asked] = []
        self._being_written = 0
        self._hurry: asyncio.TimerHandle | None = None

    def write(self, writes: Sequence[Write]) -> asyncio.Future[None]:
        """Done when all is written, in this order, and the disk has what is to be synced; OSError if not."""
        return self.ask(writes).synced

    def ask(self, writes: Sequence[Write]) -> Asked:
        """The same, for a caller that has something to do between the two."""
        loop = asyncio.get_running_loop()
        asked = Asked(writes, loop.create_future(), loop.create_future())
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

    def _ended(self, batch: Sequence[Asked], working: asyncio.Future[Failures]) -> None:
        defect = working.exception()
        if defect is not None and not all(asked.written.done() for asked in batch):
            self._wrote(batch, [defect] * len(batch))  # the thread could not say so
        _answer(batch, working.result() if defect is None else [defect] * len(batch))

    def _wrote(self, batch: Sequence[Asked], failures: Failures) -> None:
        for asked, failure in zip(batch, failures, strict=True):
            if not asked.written.done():  # else its caller was cancelled
                asked.written.set_result(failure is None)
        self._being_written -= 1
        if not self._being_written:
            self._begin()


def _answer(batch: Sequence[Asked], failures: Failures) -> None:
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
        unsynced, failure = Unsynced(), None
        try:
            for write in writes:
                write(unsynced)
        except Exception as error:
            failure = error
        written.append((unsynced.take(), failure))
    with contextlib.suppress(RuntimeError):  # the loop is closed: no batch comes after this one
        wrote([failure for _, failure in written])
    unsure = sync_files([file for files, _ in written for file in files])
    return [
        failure or next((unsure[file] for file in files if file in unsure), None)
        for files, failure in written
    ]
