"""A process that collects and kills itself: `python -m tests.crash.forgetter DB RUNS AT`.

On SQLite it dies before its statement number AT, most of which are in the middle of a transaction; on
PostgreSQL before or behind a call to the store, as AT is odd or even.
If it never gets there, it ends by itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

import apsw

from onward.clock import SystemClock
from onward.engine.control.retention import Collector, Policy
from onward.receipts.run_directory import Homes
from onward.store.port.store import Store
from onward.store.sqlite.adapter import SqliteStore
from onward.wiring import POSTGRES, open_store


class Countdown:
    """Dies at the count it was given."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, *_: object) -> bool:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return True


class Doomed:
    """A store whose parts' calls are counted, each before and after."""

    def __init__(self, store: Store, count: Countdown) -> None:
        self._store, self._count = store, count

    def __getattr__(self, name: str) -> Any:
        return DoomedPart(getattr(self._store, name), self._count)


class DoomedPart:
    def __init__(self, part: object, count: Countdown) -> None:
        self._part, self._count = part, count

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)

        async def counted(*arguments: Any, **named: Any) -> Any:
            self._count()
            try:
                return await cast("Callable[..., Awaitable[Any]]", found)(*arguments, **named)
            finally:
                self._count()

        return counted


async def main(db: str, runs: str, at: int) -> None:
    count = Countdown(at)
    if db.startswith(POSTGRES):
        opened = await open_store(db)
        store, identity = cast(Store, Doomed(opened, count)), opened.identity
    else:

        def connect(path: str) -> apsw.Connection:
            connection = apsw.Connection(path)
            connection.exec_trace = count
            return connection

        store = SqliteStore(db, connect=connect)
        identity = store.identity

    def warn(text: str) -> None:
        print(text, file=sys.stderr)

    await Collector(store, SystemClock(), Homes(runs, identity), warn).collect(Policy())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
