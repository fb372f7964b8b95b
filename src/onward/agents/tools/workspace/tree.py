"""A workspace, opened name by name: nothing in it is reached through a link, and nothing of Onward's."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from onward.agents.tools.workspace.paths import Path, PathRefused, check_parts, parts_of, shown
from onward.receipts.entry import (
    Directory,
    InTheWay,
    NotPlain,
    closing,
    created,
    directory_at,
    fill,
    readable,
)

Identity = tuple[int, int]
ENTRIES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Found:
    """A name in a directory: a plain file with its size, a directory, or something else with a note."""

    parts: Path
    is_directory: bool = False
    size: int = 0
    note: str = ""


class Tree:
    """The workspace at `root`; `own` are the paths of Onward's files, wherever they are."""

    def __init__(self, root: str, own: Sequence[str] = (), *, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self.root = os.path.realpath(root)
        self._given = os.path.abspath(root)
        self._own_paths = frozenset(os.path.realpath(path) for path in own)
        self._own = frozenset(filter(None, map(_identity_at, self._own_paths)))

    def parts(self, path: str, *, writes: bool = False) -> Path:
        """The names of a path as it was written; PathRefused if it is not for tools."""
        is_below = path == self._given or path.startswith(f"{self._given}/")
        parts = parts_of(path, self._given if is_below else self.root)
        check_parts(parts, writes=writes)
        for depth in range(len(parts)):
            if os.path.join(self.root, *parts[: depth + 1]) in self._own_paths:
                raise _ours(parts)
        return parts

    def directory(self, parts: Path, *, makes: bool = False) -> Directory:
        """The directory at these names, none of them a link; with `makes`, missing ones are made."""
        with _said(parts):
            here = directory_at(self.root)
            for depth, name in enumerate(parts):
                if makes:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=here.descriptor)
                here = here.within(name)
                if _identity(os.fstat(here.descriptor)) in self._own:
                    raise _ours(parts[: depth + 1])
            return here

    @contextlib.contextmanager
    def opened(self, parts: Path) -> Iterator[int]:
        """A plain file, open for reading."""
        if not parts:
            raise PathRefused("the path names the workspace itself; name a file in it.")
        directory = self.directory(parts[:-1])
        with _said(parts):
            self.state(directory, parts)
            file = readable(directory.descriptor, parts[-1])
        with closing(file):
            if _identity(os.fstat(file)) in self._own:
                raise _ours(parts)
            yield file

    def state(self, directory: Directory, parts: Path) -> os.stat_result:
        """The state of a plain file; PathRefused for anything else. A device is not even opened."""
        state = os.stat(parts[-1], dir_fd=directory.descriptor, follow_symlinks=False)
        if stat.S_ISDIR(state.st_mode):
            raise PathRefused(f"{shown(parts)} is a directory; use list.")
        if not stat.S_ISREG(state.st_mode):
            raise _not_plain(parts)
        if _identity(state) in self._own:
            raise _ours(parts)
        return state

    def replace(self, parts: Path, content: bytes, *, mark: str) -> bool:
        """Put a file there, whole or not at all, and on the disk; says whether it is new.

        A file that was there keeps its mode. `mark` names the half-written one, so that a repeated use
        removes what the first one left.
        """
        if not parts:
            raise PathRefused("the path names the workspace itself; name a file in it.")
        directory = self.directory(parts[:-1], makes=True)
        with _said(parts):
            try:
                mode: int | None = stat.S_IMODE(self.state(directory, parts).st_mode) & 0o777
            except FileNotFoundError:
                mode = None
            _put(directory.descriptor, parts[-1], content, part=f".onward-{mark}.part", mode=mode)
        return mode is None

    def entries(self, directory: Directory, parts: Path) -> list[Found]:
        """What is in a directory, by name, without what is Onward's."""
        with _said(parts), os.scandir(directory.descriptor) as entries:
            found = [
                self._found(entry, (*parts, entry.name)) for entry in islice(entries, self._entries_max + 1)
            ]
        if len(found) > self._entries_max:
            raise PathRefused(f"{shown(parts)} has more than {self._entries_max:,} entries; use a command.")
        return sorted(filter(None, found), key=lambda one: one.parts)

    def _found(self, entry: os.DirEntry[str], parts: Path) -> Found | None:
        try:
            check_parts(parts[-1:], writes=False)
            state = entry.stat(follow_symlinks=False)
        except (PathRefused, FileNotFoundError):
            return None
        if _identity(state) in self._own:
            return None
        if stat.S_ISREG(state.st_mode):
            return Found(parts, size=state.st_size)
        if stat.S_ISDIR(state.st_mode):
            return Found(parts, is_directory=True)
        return Found(
            parts, note="a link, not followed" if stat.S_ISLNK(state.st_mode) else "not a plain file"
        )


def _put(directory: int, name: str, content: bytes, *, part: str, mode: int | None) -> None:
    """Write under another name, and give the file its own when it is whole."""
    file = created(directory, part, mode=0o666)
    try:
        with closing(file):
            fill(file, content)
            if mode is not None:
                os.fchmod(file, mode)
            os.fsync(file)
        os.replace(part, name, src_dir_fd=directory, dst_dir_fd=directory)
        os.fsync(directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=directory)
        raise


@contextlib.contextmanager
def _said(parts: Path) -> Iterator[None]:
    """Turn what the system says into a sentence about the path."""
    try:
        yield
    except NotPlain:
        raise _not_plain(parts) from None
    except InTheWay:
        raise PathRefused(
            f"{shown(parts)} leads through something that is not a directory; links are not followed."
        ) from None
    except FileNotFoundError:
        if not parts:
            raise PathRefused("the workspace does not exist any more.") from None
        raise PathRefused(f"there is no {shown(parts)} in the workspace; list shows what there is.") from None
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise _not_plain(parts) from None
        raise PathRefused(f"{shown(parts)} cannot be used: {error.strerror or error}.") from None


def _not_plain(parts: Path) -> PathRefused:
    return PathRefused(f"{shown(parts)} is not a plain file; links are not followed.")


def _ours(parts: Path) -> PathRefused:
    return PathRefused(f"{shown(parts)} belongs to Onward, which no tool reads or writes.")


def _identity(state: os.stat_result) -> Identity:
    return state.st_dev, state.st_ino


def _identity_at(path: str) -> Identity | None:
    try:
        return _identity(os.lstat(path))
    except OSError:
        return None
