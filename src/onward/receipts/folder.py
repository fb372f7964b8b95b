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
    NotPlain,
    closing,
    content_of,
    created,
    directory_in,
    exists,
    fill,
    in_the_way,
    move_aside,
)
from onward.receipts.held import Held
from onward.receipts.names import Path
from onward.receipts.syncing import Unsynced

DEPTH_MAX = 16


@dataclass(frozen=True, slots=True)
class Folder:
    """The directory `root`, which is made when it is first needed.

    With `held`, directories that are written to stay open until they are let go.
    """

    root: str
    held: Held | None = field(default=None, kw_only=True, compare=False)

    def path(self, *parts: str) -> str:
        """How others are told of a place in here."""
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
        os.close(self._open(parts, make=True, keep=True))

    def make_new(self, parts: Path) -> None:
        """Have a last directory that is empty; one that is there already is moved aside, never used."""
        above = self._open(parts[:-1], make=True)
        try:
            try:
                os.mkdir(parts[-1], 0o700, dir_fd=above)
            except FileExistsError:
                move_aside(above, parts[-1])
                os.mkdir(parts[-1], 0o700, dir_fd=above)
            if self.held is not None:
                with closing(self._below(above, parts)) as directory:
                    self.held.keep(parts, self.path(*parts), directory)
        finally:
            os.close(above)

    def put_aside(self, name: str, parts: Path = ()) -> None:
        """Give the name free again, whatever has it."""
        with contextlib.suppress(FileNotFoundError), closing(self._open(parts)) as directory:
            os.stat(name, dir_fd=directory, follow_symlinks=False)
            move_aside(directory, name)

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
        directory = self._open(parts, make=True, keep=True)
        try:
            if only_new and exists(directory, name):
                return False
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
        finally:
            os.close(directory)
        if unsynced is None:
            os.close(file)
        else:
            unsynced.add(file)
        return True

    def write_new(self, parts: Path, name: str, content: bytes) -> bool:
        """Put a file there whole, unless one of this name is there: of several who try, one does."""
        with closing(self._open(parts, make=True)) as directory:
            part = f".{name}.{os.getpid()}.part"
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

    def read(self, parts: Path, name: str, *, limit: int) -> bytes | None:
        """A plain file's content, one byte more than `limit` at most; None if there is none."""
        try:
            with closing(self._open(parts)) as directory:
                return content_of(directory, name, limit)
        except NotPlain:
            raise in_the_way(self.path(*parts, name), "a plain file") from None
        except FileNotFoundError:
            return None

    def remove(self, parts: Path, name: str) -> None:
        """Have no file there."""
        with contextlib.suppress(FileNotFoundError), closing(self._open(parts)) as directory:
            os.unlink(name, dir_fd=directory)

    def remove_all(self, name: str) -> bool:
        """Have nothing of this name, and say if there was. A link goes; what it names stays."""
        try:
            with closing(self._open(())) as root:
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
            with closing(self._open(parts)) as directory:
                return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def files(self, parts: Path) -> Iterator[Path]:
        """Every plain file below, by the names that lead to it; what is none is an error."""
        try:
            with closing(self._open(parts)) as directory:
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
                raise in_the_way(self.path(*parts, name), "a plain file")

    def _open(self, parts: Path, *, make: bool = False, keep: bool = False) -> int:
        """A descriptor of the directory that `parts` lead to, none of them a link."""
        here, depth = self._nearest(parts)
        if here is not None and depth == len(parts):
            return here
        names = parts if depth else self._named(parts)
        if here is None:
            here = self._top(make)
        for number, name in enumerate(names[depth:], depth + 1):
            above = here
            try:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=above)
                here = self._below(above, names[:number])
            finally:
                os.close(above)
        if keep and self.held is not None:
            self.held.keep(parts, self.path(*parts), here)
        return here

    def _nearest(self, parts: Path) -> tuple[int | None, int]:
        """The last directory on the way that is held open, and how deep it is."""
        if self.held is not None:
            for depth in range(len(parts), 0, -1):
                found = self.held.again(parts[:depth])
                if found is not None:
                    return found, depth
        return None, 0

    def _top(self, make: bool) -> int:
        if make:
            os.makedirs(self.root, mode=0o700, exist_ok=True)
        return self._below(None, ())

    def _below(self, above: int | None, names: Path) -> int:
        """The directory with the last of these names, in `above`; the top has none."""
        try:
            return directory_in(above, names[-1] if names else self.root)
        except NotPlain:
            raise in_the_way(os.path.join(self.root, *names), "a directory") from None
