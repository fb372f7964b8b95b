"""Group commit for files: what several steps leave at the same time is synced together.

A thread for each sync makes the threads fight for the interpreter's lock. Files that wait together go to the
disk as one batch in one thread. The next batch waits for the one under way, unless that takes long: the cause
may be that batch's alone, and others do not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

from onward.receipts.syncing import sync_files

SLOW_S = 0.02


class SyncGroup:
    """Syncs files in `threads`."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._waiting: list[tuple[Sequence[int], asyncio.Future[None]]] = []
        self._under_way = 0
        self._hurry: asyncio.TimerHandle | None = None

    def sync(self, files: Sequence[int]) -> asyncio.Future[None]:
        """Done when the disk has these files, whose descriptors are closed then; OSError if it may not."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[None] = loop.create_future()
        self._waiting.append((files, answer))
        if not self._under_way:
            self._begin()
        elif self._hurry is None:
            self._hurry = loop.call_later(SLOW_S, self._begin)
        return answer

    def _begin(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()
            self._hurry = None
        batch, self._waiting = self._waiting, []
        if not batch:
            return
        self._under_way += 1
        files = [file for files, _ in batch for file in files]
        syncing = asyncio.get_running_loop().run_in_executor(self._threads, sync_files, files)
        syncing.add_done_callback(partial(self._ended, batch))

    def _ended(
        self,
        batch: Sequence[tuple[Sequence[int], asyncio.Future[None]]],
        syncing: asyncio.Future[Mapping[int, OSError]],
    ) -> None:
        self._under_way -= 1
        defect = syncing.exception()
        failures = {} if defect is not None else syncing.result()
        for files, answer in batch:
            failure = defect or next((failures[file] for file in files if file in failures), None)
            if answer.done():
                continue  # its caller was cancelled
            if failure is None:
                answer.set_result(None)
            else:
                answer.set_exception(failure)
        if not self._under_way:
            self._begin()
