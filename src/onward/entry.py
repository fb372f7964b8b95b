"""One name in a directory that is open: nothing here follows a link.

Receipts, and the tools of agents, work in directories that others write to. The search program of
agents runs without site-packages, so this imports the standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must make no reader wait
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NOT_PLAIN = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
READ_BYTES = 4096


class InTheWay(OSError):
    """Something stands where a plain file or directory of ours should be."""


class NotPlain(Exception):
    """The name belongs to something other than the plain file, or the directory, that was wanted."""


def in_the_way(path: str, wanted: str) -> InTheWay:
    """The error that names the place and says what to do."""
    why = f"{path} is not {wanted} (a link is not followed); remove it"
    return InTheWay(errno.ELOOP, why)


@contextlib.contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Close it in the end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class Directory:
    """An open directory. It is closed when its last user is done with it."""

    __slots__ = ("_identity", "descriptor", "path")

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor, self.path = descriptor, path
        self._identity: tuple[int, int] | None = None

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.descriptor)

    def is_there(self) -> bool:
        """Whether its path leads to it, and not to another directory or through a link."""
        if self._identity is None:
            state = os.fstat(self.descriptor)
            self._identity = state.st_ino, state.st_dev
        try:
            state = os.lstat(self.path)
        except OSError:
            return False
        return (state.st_ino, state.st_dev) == self._identity

    def within(self, name: str) -> Directory:
        """The directory of this name in it."""
        return directory_at(f"{self.path}{os.sep}{name}", name, self.descriptor)


def directory_at(path: str, name: str | None = None, above: int | None = None) -> Directory:
    """The directory with this path, which is to be opened by its `name` in the one `above`."""
    try:
        return Directory(os.open(name or path, _DIRECTORY, dir_fd=above), path)
    except OSError as error:
        if error.errno in _NOT_PLAIN:
            raise in_the_way(path, "a directory") from None
        raise


def created(directory: int, name: str, *, mode: int = 0o600) -> int:
    """A new file, open for writing."""
    try:
        return os.open(name, _CREATE, mode, dir_fd=directory)
    except FileExistsError:  # left by a process of this number that died, or put there: it is not ours
        os.unlink(name, dir_fd=directory)
        return os.open(name, _CREATE, mode, dir_fd=directory)


def appended(directory: int, name: str) -> int:
    """A plain file that is written at its end; it is created if it is not there."""
    return _plain(name, _APPEND, directory)


def fill(file: int, content: bytes | bytearray) -> None:
    """Write all of it."""
    done = os.write(file, content)
    while done < len(content):
        done += os.write(file, memoryview(content)[done:])


def readable(directory: int, name: str) -> int:
    """A plain file, open for reading."""
    return _plain(name, _READ, directory)


def content_of(directory: int, name: str, limit: int) -> bytes:
    """What a plain file holds, one byte more than `limit` at most."""
    with closing(readable(directory, name)) as file:
        return b"".join(_read(file, os.fstat(file).st_size, limit + 1))


def _plain(name: str, flags: int, directory: int) -> int:
    """A plain file, opened; NotPlain if something else has the name."""
    try:
        file = os.open(name, flags, 0o600, dir_fd=directory)
    except OSError as error:
        if error.errno in (*_NOT_PLAIN, errno.ENXIO, errno.EISDIR):
            raise NotPlain from None
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotPlain
    return file


def _read(file: int, size: int, limit: int) -> Iterator[bytes]:
    """All that is there, up to `limit` bytes; the size may be wrong, as another may be writing."""
    while limit > 0 and (read := os.read(file, min(limit, max(size, READ_BYTES)))):
        limit -= len(read)
        yield read


def exists(directory: int, name: str) -> bool:
    """Whether anything has this name."""
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def move_aside(directory: int, name: str) -> None:
    """Give the name free; what had it is `<name>.before-1` from now on, or the next number."""
    number = 1
    while exists(directory, f"{name}.before-{number}"):
        number += 1
    os.rename(name, f"{name}.before-{number}", src_dir_fd=directory, dst_dir_fd=directory)
