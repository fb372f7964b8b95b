"""A directory that others can write to as well, and below which nothing is done through a link.

A step's program has its own directory here, so it can put anything in the way: a link to elsewhere, a file
where a directory should be, a pipe. Every path is therefore walked from the top, one name at a time, and a
name that is not what it should be is an error, never a way out. Only what asks for it is synced to the disk:
all that is written can be made again from the log.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from onward.receipts.names import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not make anybody wait
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_IN_THE_WAY = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
DEPTH_MAX = 16


class InTheWay(OSError):
    """Something stands where a plain file or directory of ours should be."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The directory `root`, which is made when it is first needed."""

    root: str

    def path(self, *parts: str) -> str:
        """How others are told of a place in here."""
        return os.path.join(self.root, *parts)

    def make(self, parts: Path = ()) -> None:
        """Have these directories."""
        os.close(self._open(parts, make=True))

    def make_new(self, parts: Path) -> None:
        """Have a last directory that is empty; one that is there already is moved aside, never used."""
        above = self._open(parts[:-1], make=True)
        try:
            try:
                os.mkdir(parts[-1], 0o700, dir_fd=above)
            except FileExistsError:
                _move_aside(above, parts[-1])
                os.mkdir(parts[-1], 0o700, dir_fd=above)
        finally:
            os.close(above)

    def put_aside(self, name: str, parts: Path = ()) -> None:
        """Give the name free again, whatever has it."""
        with contextlib.suppress(FileNotFoundError), self._at(parts) as directory:
            os.stat(name, dir_fd=directory, follow_symlinks=False)
            _move_aside(directory, name)

    def write(
        self, parts: Path, name: str, content: bytes, *, only_new: bool = False, synced: bool = False
    ) -> bool:
        """Put a file there whole or not at all; with `only_new`, one that is there stays as it is.

        With `synced` it is on the disk when this returns, under its name.
        """
        directory = self._open(parts, make=True)
        try:
            if only_new and _exists(directory, name):
                return False
            part = f".{name}.{os.getpid()}.part"
            try:
                _create(directory, part, content, synced=synced)
                os.replace(part, name, src_dir_fd=directory, dst_dir_fd=directory)
                if synced:
                    os.fsync(directory)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(part, dir_fd=directory)
                raise
            return True
        finally:
            os.close(directory)

    def write_new(self, parts: Path, name: str, content: bytes) -> bool:
        """Put a file there whole, unless one of this name is there: of several who try, one does."""
        directory = self._open(parts, make=True)
        part = f".{name}.{os.getpid()}.part"
        try:
            _create(directory, part, content, synced=False)
            try:
                os.link(part, name, src_dir_fd=directory, dst_dir_fd=directory)
            except FileExistsError:
                return False
            finally:
                os.unlink(part, dir_fd=directory)
            return True
        finally:
            os.close(directory)

    def read(self, parts: Path, name: str, *, limit: int) -> bytes | None:
        """A plain file's content, one byte more than `limit` at most; None if there is none."""
        try:
            with self._at(parts) as directory:
                return _content(directory, name, self.path(*parts, name), limit)
        except FileNotFoundError:
            return None

    def remove(self, parts: Path, name: str) -> None:
        """Have no file there."""
        with contextlib.suppress(FileNotFoundError), self._at(parts) as directory:
            os.unlink(name, dir_fd=directory)

    def remove_all(self, name: str) -> bool:
        """Have nothing of this name, and say if there was. A link goes; what it names stays."""
        try:
            with self._at(()) as root:
                if stat.S_ISDIR(os.stat(name, dir_fd=root, follow_symlinks=False).st_mode):
                    shutil.rmtree(name, dir_fd=root)  # which follows no link either
                else:
                    os.unlink(name, dir_fd=root)
        except FileNotFoundError:
            return False
        return True

    def names(self, parts: Path) -> list[str]:
        """What is in a directory; nothing if it is not there."""
        try:
            with self._at(parts) as directory:
                return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def files(self, parts: Path) -> Iterator[Path]:
        """Every plain file below, by the names that lead to it; what is none is an error."""
        try:
            with self._at(parts) as directory:
                found = sorted(os.listdir(directory))
                kinds = [os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode for name in found]
        except FileNotFoundError:
            return
        for name, mode in zip(found, kinds, strict=True):
            if stat.S_ISDIR(mode) and len(parts) < DEPTH_MAX:
                yield from self.files((*parts, name))
            elif stat.S_ISREG(mode):
                yield (*parts, name)
            else:
                raise _in_the_way(self.path(*parts, name), "a plain file")

    @contextlib.contextmanager
    def _at(self, parts: Path) -> Iterator[int]:
        directory = self._open(parts, make=False)
        try:
            yield directory
        finally:
            os.close(directory)

    def _open(self, parts: Path, *, make: bool) -> int:
        """A descriptor of the directory that `parts` lead to, none of them a link."""
        if make:
            os.makedirs(self.root, mode=0o700, exist_ok=True)
        here = _directory(self.root, None, self.root)
        for depth, name in enumerate(parts):
            above = here
            try:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=above)
                here = _directory(name, above, self.path(*parts[: depth + 1]))
            finally:
                os.close(above)
        return here


def _directory(name: str, above: int | None, path: str) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=above)
    except OSError as error:
        if error.errno in _IN_THE_WAY:
            raise _in_the_way(path, "a directory") from None
        raise


def _create(directory: int, name: str, content: bytes, *, synced: bool) -> None:
    try:
        file = os.open(name, _CREATE, 0o600, dir_fd=directory)
    except FileExistsError:  # left by a process of this number that died, or put there: it is not ours
        os.unlink(name, dir_fd=directory)
        file = os.open(name, _CREATE, 0o600, dir_fd=directory)
    with open(file, "wb") as opened:
        opened.write(content)
        if synced:
            opened.flush()
            os.fsync(opened.fileno())


def _content(directory: int, name: str, path: str, limit: int) -> bytes:
    try:
        file = os.open(name, _READ, dir_fd=directory)
    except OSError as error:
        if error.errno in (*_IN_THE_WAY, errno.ENXIO):
            raise _in_the_way(path, "a plain file") from None
        raise
    with open(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise _in_the_way(path, "a plain file")
        return opened.read(limit + 1)


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _move_aside(directory: int, name: str) -> None:
    number = 1
    while _exists(directory, f"{name}.before-{number}"):
        number += 1
    os.rename(name, f"{name}.before-{number}", src_dir_fd=directory, dst_dir_fd=directory)


def _in_the_way(path: str, wanted: str) -> InTheWay:
    why = f"{path} is not {wanted} (a link is not followed); remove it"
    return InTheWay(errno.ELOOP, why)
