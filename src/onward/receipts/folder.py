"""A directory that others can write to as well, and below which nothing is done through a link.

A step's program has its own directory here, so it can put anything in the way: a link to elsewhere, a file
where a directory should be, a pipe. Every path is therefore walked one name at a time, from the top or from
a directory that is held open, and a name that is not what it should be is an error, never a way out. Only
what asks for it is synced to the disk: all that is written can be written again from the log.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from onward.receipts.entry import (
    Directory,
    NotPlain,
    appended,
    closing,
    content_of,
    created,
    directory_at,
    exists,
    fill,
    in_the_way,
    move_aside,
    readable,
)
from onward.receipts.held import Held
from onward.receipts.names import Path
from onward.receipts.syncing import Unsynced

DEPTH_MAX = 16


@dataclass(frozen=True, slots=True)
class Folder:
    """The directory `root`, which is made when it is first needed.

    With `held`, directories that are written to stay open until `let_go`.
    """

    root: str
    held: Held | None = field(default=None, kw_only=True, compare=False)

    def path(self, *parts: str) -> str:
        """The path of a place in here, for messages and for programs."""
        return os.path.join(self.root, *self._named(parts))

    def _named(self, parts: Path) -> Path:
        """The names on disk that these parts stand for. Only the first can be another."""
        return parts

    def let_go(self, parts: Path, *, below: bool = False) -> None:
        """Nothing more is written to this directory for now, nor to those `below` it."""
        if self.held is not None:
            self.held.let_go(parts, below=below)

    def make(self, parts: Path = ()) -> None:
        """Have these directories."""
        self._open(parts, make=True, keep=True)

    def make_new(self, parts: Path) -> str:
        """Have a last directory that is empty, and say its path; what has the name is moved aside first."""
        directory = self._made_new(parts)
        if self.held is not None:
            self.held.keep(parts, directory)
        return directory.path

    def write_in_new(self, parts: Path, name: str, content: bytes) -> None:
        """The same, with this file in it. The directory is not held open."""
        directory = self._made_new(parts)  # which is closed when no name is left for it
        os.close(_put(directory.descriptor, name, content))

    def _made_new(self, parts: Path) -> Directory:
        above, name = self._open(parts[:-1], make=True), parts[-1]
        try:
            os.mkdir(name, 0o700, dir_fd=above.descriptor)
        except FileExistsError:
            move_aside(above.descriptor, name)
            os.mkdir(name, 0o700, dir_fd=above.descriptor)
        return above.within(name)

    def put_aside(self, name: str, parts: Path = ()) -> None:
        """Free the name, whatever has it."""
        with contextlib.suppress(FileNotFoundError):
            opened = self._open(parts)
            os.stat(name, dir_fd=opened.descriptor, follow_symlinks=False)
            move_aside(opened.descriptor, name)

    def write(
        self,
        parts: Path,
        name: str,
        content: bytes,
        *,
        only_new: bool = False,
        synced: bool = False,
        unsynced: Unsynced | None = None,
    ) -> bool:
        """Put a file there whole or not at all; with `only_new`, one that is there stays as it is.

        With `synced` it is on the disk when this returns, under its name. With `unsynced` it is handed over
        there, to be synced later: it has its name before its content is on the disk.
        """
        opened = self._open(parts, make=True, keep=True)
        directory = opened.descriptor
        if only_new and exists(directory, name):
            return False
        file = _put(directory, name, content, synced=synced)
        if unsynced is None:
            os.close(file)
        else:
            unsynced.add(file)
        return True

    def write_new(self, parts: Path, name: str, content: bytes) -> bool:
        """Put a file there whole, unless one of this name is there: of several who try, one does."""
        opened = self._open(parts, make=True)
        directory, part = opened.descriptor, f".{name}.{os.getpid()}.part"
        try:
            with closing(created(directory, part)) as file:
                fill(file, content)
            os.link(part, name, src_dir_fd=directory, dst_dir_fd=directory)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part, dir_fd=directory)
        return True

    def append(self, parts: Path, name: str) -> int:
        """A descriptor of a plain file in a directory that is there, to be written at its end."""
        opened = self._open(parts)
        try:
            return appended(opened.descriptor, name)
        except NotPlain:
            raise in_the_way(self.path(*parts, name), "a plain file") from None

    def read(self, parts: Path, name: str, *, limit: int) -> bytes | None:
        """A plain file's content, one byte more than `limit` at most; None if there is none."""
        try:
            opened = self._open(parts)
            return content_of(opened.descriptor, name, limit)
        except NotPlain:
            raise in_the_way(self.path(*parts, name), "a plain file") from None
        except FileNotFoundError:
            return None

    def open_plain(self, parts: Path, name: str) -> int | None:
        """A descriptor of a plain file, to be read; None if there is none."""
        try:
            opened = self._open(parts)
            return readable(opened.descriptor, name)
        except NotPlain:
            raise in_the_way(self.path(*parts, name), "a plain file") from None
        except FileNotFoundError:
            return None

    def remove(self, parts: Path, name: str) -> None:
        """Have no file there."""
        with contextlib.suppress(FileNotFoundError):
            opened = self._open(parts)
            os.unlink(name, dir_fd=opened.descriptor)

    def remove_all(self, name: str) -> bool:
        """Have nothing of this name, and say if there was. A link goes; what it names stays."""
        try:
            opened = self._open(())
            root = opened.descriptor
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
            opened = self._open(parts)
            return sorted(os.listdir(opened.descriptor))
        except FileNotFoundError:
            return []

    def files(self, parts: Path) -> Iterator[Path]:
        """Every plain file below, by the names that lead to it. Anything else found there is an error."""
        try:
            opened = self._open(parts)
            found = sorted(os.listdir(opened.descriptor))
            kinds = [os.stat(name, dir_fd=opened.descriptor, follow_symlinks=False).st_mode for name in found]
        except FileNotFoundError:
            return
        for name, mode in zip(found, kinds, strict=True):
            if stat.S_ISDIR(mode) and len(parts) < DEPTH_MAX:
                yield from self.files((*parts, name))
            elif stat.S_ISREG(mode):
                yield (*parts, name)
            else:
                raise in_the_way(self.path(*parts, name), "a plain file")

    def _open(self, parts: Path, *, make: bool = False, keep: bool = False) -> Directory:
        """The directory that `parts` lead to, none of them a link. It is open for as long as it is used."""
        here, depth = self._nearest(parts)
        if here is None:
            here = self._top(make)
        elif depth == len(parts):
            return here
        for name in parts[depth:] if depth else self._named(parts):
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=here.descriptor)
            here = here.within(name)
        if keep and self.held is not None:
            self.held.keep(parts, here)
        return here

    def _nearest(self, parts: Path) -> tuple[Directory | None, int]:
        """The last directory on the way that is held open, and how deep it is."""
        if self.held is not None:
            for depth in range(len(parts), -1, -1):
                found = self.held.again(parts[:depth])
                if found is not None:
                    return found, depth
        return None, 0

    def _top(self, make: bool) -> Directory:
        if make:
            with contextlib.suppress(FileExistsError):  # what is no directory is named below
                os.makedirs(self.root, mode=0o700)
        top = directory_at(self.root)
        if self.held is not None:
            self.held.keep((), top)
        return top


def _put(directory: int, name: str, content: bytes, *, synced: bool = False) -> int:
    """Write a file there under another name and give it its own when it is whole; returns its descriptor."""
    part = f".{name}.{os.getpid()}.part"
    file = created(directory, part)
    try:
        fill(file, content)
        if synced:
            os.fsync(file)
        os.replace(part, name, src_dir_fd=directory, dst_dir_fd=directory)
        if synced:
            os.fsync(directory)
    except BaseException:
        os.close(file)
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=directory)
        raise
    return file
