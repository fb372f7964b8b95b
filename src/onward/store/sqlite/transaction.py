"""Transactions on one connection: begun by polling, ended before the event loop continues.

From BEGIN to COMMIT nothing is awaited, so nothing comes between. Only waiting for another process's lock
gives the loop away: a busy holder elsewhere can neither starve a request nor stop this process's clock.

`SharedLock` is a lock of our own which says that the database is in use, and which no other code in this
process drops. Whoever closes a SQLite database asks for an exclusive lock on the file. If it gets one, no one
else has the file open: it moves the write-ahead log into the database and deletes the log. SQLite's own lock
against that is a POSIX lock, and those belong to the process. When any code in the process closes the file
(`sqlite3` of Python is another copy of the library), they are all dropped. The next to close then deletes the
log, and all that is committed afterwards goes to a file without a name. So a store holds a second lock on the
same bytes, one that belongs to an open file and ends with that file alone. It conflicts with the locks of
every other process, and of every other library in this one. It costs nothing once the database is open. Only
Linux has such locks; elsewhere `Whereabouts` notices that the log is gone.

`Whereabouts` tells whether the files are still where they were: what is written into a deleted file is lost.
A file can be deleted or replaced while a process has it open, and SQLite then continues as if nothing had
happened. The same is true of the write-ahead log (`-wal`), which has what was committed last, and of its
index (`-shm`), by which processes exclude each other. SQLite itself deletes these two only when the last
connection closes. A look costs about a microsecond for each file, so every transaction takes it: after the
commit, since what was in its place then was acknowledged rightly.

A look asks for a file's number and not for its times. Linux (from 6.13) writes the times of a file anew with
the next change after they were asked for. For the log that is the next commit, which takes a fifth longer
after `os.stat` or `os.fstat`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import apsw

from onward.clock import Clock
from onward.errors import StoreGone, StoreUnavailable
from onward.store.sqlite.connection import Connect, Stamp, is_fixed, open_database, translate, translated
from onward.store.sqlite.presence import CAUSES, FLOCK

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

    async def glance(self, read: Callable[[apsw.Connection], T]) -> T:
        """One read without a transaction."""

        def reading() -> T:
            found = read(self._db)
            self._whereabouts.check()
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


# SQLite's file format fixes the bytes of which every connection locks a share while it has the file open.
SHARED_FIRST, SHARED_SIZE = 0x4000_0002, 510


class SharedLock:
    """A share of the database file, held from the end of opening it until it is released or closed."""

    def __init__(self, path: str) -> None:
        self._fd = -1
        if sys.platform == "linux":
            try:
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                # Refused only when our own connection has the file for itself: then no one else can open it.
                with contextlib.suppress(BlockingIOError):
                    self._set(fcntl.F_RDLCK)
            except OSError as error:
                cause = CAUSES.get(error.errno, StoreUnavailable)
                raise cause(f"{path} cannot be locked: {error.strerror}; put it on a local disk.") from None

    def release(self) -> None:
        """Let the connection of this process close the database for good, if it is the last one."""
        if self._fd >= 0:
            self._set(fcntl.F_UNLCK)

    def close(self) -> None:
        """Close the file, when the connection is closed: this drops what POSIX locks it still had."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _set(self, kind: int) -> None:
        asked = FLOCK.pack(kind, os.SEEK_SET, SHARED_FIRST, SHARED_SIZE, 0)
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, asked)


Number = tuple[int, int, int]
"""What a file is on this machine, whatever its name: its inode, and the two parts of its device."""
_AT_FDCWD, _STATX_INO = -100, 0x100


class Whereabouts:
    """The files that the paths named when they were opened. While one is open, no other has its number."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)  # whatever becomes of the current directory
        self._database = File(self._path)
        self._files = (self._database, *self._sides())

    def check(self) -> None:
        """Raise `StoreGone` if one of the paths names another file now, or none."""
        _check_in_place(self._files)

    def is_well(self) -> bool:
        """Whether all of them are there."""
        try:
            self.check()
        except StoreGone:
            return False
        return True

    def check_closed(self) -> None:
        """The same for the database alone: a connection that closes may delete the other two."""
        _check_in_place((self._database,))

    def reopened(self) -> None:
        """Note the side files of a new connection to the same database."""
        self._files = (self._database, *self._sides())

    def _sides(self) -> list[File]:
        """The side files that are there; a connection that has the database for itself needs no index."""
        return [File(path) for path in (f"{self._path}-wal", f"{self._path}-shm") if os.path.exists(path)]


class _Statx(ctypes.Structure):
    """What the kernel fills in; its place for the times stays empty."""

    _fields_ = (
        ("before", ctypes.c_uint8 * 32),
        ("ino", ctypes.c_uint64),
        ("between", ctypes.c_uint8 * 96),
        ("dev_major", ctypes.c_uint32),
        ("dev_minor", ctypes.c_uint32),
        ("after", ctypes.c_uint8 * 112),
    )


class File:
    """A file of the database, and the number that it had when it was opened."""

    __slots__ = ("_found", "_into", "_name", "path", "seen")

    def __init__(self, path: str) -> None:
        # Kept as what the call takes: to convert the arguments costs as much as the call itself.
        self.path, self._name, self._found = path, ctypes.c_char_p(os.fsencode(path)), _Statx()
        self._into = ctypes.byref(self._found)
        self.seen = self.number()

    def number(self) -> Number:
        """The number of the file that has the path now."""
        if _statx(_AT_FDCWD, self._name, 0, _STATX_INO, self._into) == 0:
            found = self._found
            return found.ino, found.dev_major, found.dev_minor
        status = os.stat(self.path)  # raises what is wrong, unless only `statx` itself is not to be had
        return status.st_ino, os.major(status.st_dev), os.minor(status.st_dev)


def _check_in_place(files: Sequence[File]) -> None:
    path = ""
    try:
        for file in files:
            path = file.path
            if file.number() != file.seen:
                raise StoreGone(path)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreGone(path) from None
    except OSError:
        pass  # this cannot be told just now, and SQLite will tell if it matters


def _no_statx(*arguments: object) -> int:
    """Where the system has no such call."""
    return -1


_statx = getattr(ctypes.CDLL(None), "statx", _no_statx) if sys.platform == "linux" else _no_statx
