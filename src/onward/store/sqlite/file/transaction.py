"""Transactions on one connection: begun by polling, ended before the event loop goes on.

From BEGIN to COMMIT nothing is awaited, so nothing comes between. Only waiting for another process's lock
gives the loop away: a busy holder elsewhere can neither starve a request nor stop this process's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

import apsw

from onward.clock import Clock
from onward.errors import StoreUnavailable
from onward.store.sqlite.file.connection import Connect, open_database, translate, translated
from onward.store.sqlite.file.fixed import Stamp, is_fixed
from onward.store.sqlite.file.shared_lock import SharedLock
from onward.store.sqlite.file.whereabouts import Whereabouts

T = TypeVar("T")
BUSY_POLL_S = 0.0005


class Transactions:
    """The connection of one process, and the only ways to use it."""

    def __init__(self, path: str, *, clock: Clock, busy_s: float, connect: Connect) -> None:
        self.path, self._clock, self._busy_s, self._connect = path, clock, busy_s, connect
        self._is_closed = False
        self._db = self._open()
        try:
            self._lock = SharedLock(path)
            self._whereabouts = Whereabouts(path)
        except BaseException:
            self._db.close(True)
            raise

    def _open(self) -> apsw.Connection:
        self._stamp = Stamp.of(self.path) if is_fixed(self.path) else None
        return open_database(self.path, busy_s=self._busy_s, connect=self._connect)

    def at_once(self, read: Callable[[apsw.Connection], T]) -> T:
        """A read at the beginning, before there is anybody whom waiting could hold up."""
        with translated(self.path):
            self._db.set_busy_timeout(int(self._busy_s * 1000))
            found = read(self._db)
            self._db.set_busy_timeout(0)
            return found

    async def look(self, read: Callable[[apsw.Connection], T]) -> T:
        """Several reads of one instant."""

        def reading() -> T:
            if self._has_changed():
                self._drop()  # and open it as it is now
            self._db.execute("BEGIN")
            try:
                self._whereabouts.check()
                found = read(self._db)
            except apsw.CorruptError as error:
                if self._has_changed():
                    raise apsw.BusyError("it was written while it was read") from error
                raise
            finally:
                self._rollback()
            if self._has_changed():
                raise apsw.BusyError("it was written while it was read")
            return found

        return await self._patiently(reading)

    def _has_changed(self) -> bool:
        """Whether another process wrote to a file that this one reads without its locks."""
        return self._stamp is not None and not self._stamp.has_log and self._stamp != Stamp.of(self.path)

    async def transact(self, work: Callable[[apsw.Connection], T]) -> T:
        """All of `work` or nothing, durable when this returns."""
        await self._patiently(self._begin)
        try:
            result = work(self._db)
            self._db.execute("COMMIT")
        except (apsw.Error, UnicodeDecodeError) as error:
            self._abandon(error)
            raise translate(self.path, error) from error
        except BaseException:
            self._rollback()
            raise
        self._whereabouts.check()
        return result

    def _begin(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    async def _patiently(self, attempt: Callable[[], T]) -> T:
        """Try again while somebody else has the lock, as long as that is worth it."""
        deadline_s: float | None = None
        while True:
            try:
                return attempt()
            except apsw.BusyError as error:
                now_s = self._clock.awake_s()
                deadline_s = now_s + self._busy_s if deadline_s is None else deadline_s
                if now_s >= deadline_s:
                    raise translate(self.path, error) from error
                await asyncio.sleep(BUSY_POLL_S)
            except apsw.ConnectionClosedError:
                self._reopen()
            except (apsw.Error, UnicodeDecodeError) as error:
                raise translate(self.path, error) from error

    def _rollback(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except apsw.Error:
            self._drop()

    def _abandon(self, error: Exception) -> None:
        """After a failed write or sync the connection's idea of the file cannot be trusted."""
        if isinstance(error, apsw.IOError):
            self._drop()
        else:
            self._rollback()

    def _drop(self) -> None:
        """Close the connection, which undoes what it had begun; the next one to need it opens another."""
        with contextlib.suppress(apsw.Error):  # the same trouble again; the first is the one to tell
            self._db.close(True)

    def _reopen(self) -> None:
        if self._is_closed:
            raise StoreUnavailable(f"the store on {self.path} was closed; open it again.")
        self._whereabouts.check_closed()
        self._db = self._open()
        self._whereabouts.reopened()

    def close(self) -> None:
        """Let go of the file."""
        self._is_closed = True
        if self._whereabouts.is_well():
            # Else the connection stays in company while it closes: what is in a log that was deleted must not
            # be copied over what others wrote since.
            self._lock.release()
        self._db.close(True)
        self._lock.close()
