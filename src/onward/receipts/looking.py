"""Looking at directories that a step may have changed: bounded, and through no link."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence

import msgspec

from onward.model.result import NOT_LEFT, LeftFile
from onward.receipts.folder import Folder
from onward.receipts.names import STATUS, Path, attempt_path

Entry = tuple[os.DirEntry[str], os.stat_result]
ENTRIES_MAX = 5_000
SKIPPED = frozenset({".git", ".onward"})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LATER = re.compile(r"(attempt|try)-[1-9][0-9]*(\.before-[0-9]+)?")
_TRY = re.compile(r"try-([1-9][0-9]*)")


class Seen(msgspec.Struct, frozen=True):
    """The files that were found, by their paths; `unseen` says where looking had to stop, and why."""

    files: tuple[LeftFile, ...] = ()
    unseen: tuple[str, ...] = ()


def changed_since(
    root: str, since_us: int, *, own: Collection[str] = (), entries_max: int = ENTRIES_MAX
) -> Seen:
    """What changed below `root` at `since_us` or later; `own` are paths that are not looked at.

    A file counts when its content, its name or its rights changed, whatever times it was given. A directory
    counts when nothing in it tells why it changed: something was removed from it, or it is new and empty.
    """
    walk = _Walk(root, entries_max, frozenset(own))
    found: list[LeftFile] = []
    for path, entries, is_judged in walk.directories():
        is_explained = False
        for entry, state in entries:
            if max(state.st_mtime_ns, state.st_ctime_ns) // 1000 < since_us:
                continue
            is_explained = True
            if not entry.is_dir(follow_symlinks=False):
                found.append(_file(path, entry.name, state.st_size))
        if is_judged and not is_explained and walk.changed_at_us(path) >= since_us:
            found.append(_file(path or ".", "", None))
    return Seen(tuple(sorted(found, key=lambda file: file.path)), tuple(walk.unseen))


def files_of_attempt(root: str, *, entries_max: int = ENTRIES_MAX) -> Seen:
    """Everything in the directory of one try of an attempt; that of later ones lies in it and is not its."""
    walk = _Walk(root, entries_max, frozenset())
    found = [
        _file(path, entry.name, state.st_size)
        for path, entries, _ in walk.directories(top_skipped=_LATER)
        for entry, state in entries
        if not entry.is_dir(follow_symlinks=False)
    ]
    return Seen(tuple(sorted(found, key=lambda file: file.path)), tuple(walk.unseen))


def files_named(root: str, names: Sequence[str]) -> tuple[LeftFile, ...]:
    """Files below `root` that the caller found, with their sizes."""
    found = []
    for name in names:
        try:
            size = os.lstat(os.path.join(root, name)).st_size
        except OSError:
            size = None
        found.append(_file("", name, size))
    return tuple(found)


def _file(path: str, name: str, size: int | None) -> LeftFile:
    """A name may be any bytes; what is told of it is text."""
    return LeftFile(os.fsencode(os.path.join(path, name)).decode(errors="replace"), size)


class _Walk:
    """A walk from the top, directory by directory, of so many entries at most."""

    def __init__(self, root: str, entries_max: int, own: Collection[str]) -> None:
        self._root, self._entries_max, self._own = root, entries_max, own
        self.unseen: list[str] = []

    def changed_at_us(self, path: str) -> int:
        """When something was last made in a directory, or removed from it."""
        try:
            return os.lstat(os.path.join(self._root, path)).st_mtime_ns // 1000
        except OSError:
            return 0  # it is gone, which its parent tells

    def directories(
        self, top_skipped: re.Pattern[str] | None = None
    ) -> Iterator[tuple[str, list[Entry], bool]]:
        """Each directory's path below the root, its entries, and whether a change of it is the step's."""
        ahead, left = [""], self._entries_max
        for path in ahead:
            entries: list[Entry] = []
            is_judged = True
            try:
                names = self._listed(path)
            except OSError as error:
                self.unseen.append(f"{os.path.join(self._root, path)}: {error.strerror or error}")
                continue
            for entry in names:
                full = os.path.join(self._root, path, entry.name)
                if full in self._own:
                    is_judged = False  # what we write there ourselves is no sign of the step
                    continue
                if entry.name in SKIPPED or (top_skipped and not path and top_skipped.fullmatch(entry.name)):
                    continue
                if left <= 0:
                    self.unseen.append(f"{self._root} has more than {self._entries_max:,} entries")
                    yield path, entries, False
                    return
                left -= 1
                try:
                    entries.append((entry, entry.stat(follow_symlinks=False)))
                except FileNotFoundError:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    ahead.append(os.path.join(path, entry.name))
            yield path, entries, is_judged

    def _listed(self, path: str) -> list[os.DirEntry[str]]:
        directory = os.path.join(self._root, path) if path else self._root
        os.close(os.open(directory, _DIRECTORY))  # it is one, and no link to one
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)


def attempts_before(folder: Folder, run_id: str, step: str, attempt: int, tries: int) -> Iterator[Path]:
    """The directories of a step's earlier tries that are there, the newest first, below the run's own."""
    for number in range(attempt, 0, -1):
        newest = tries - 1 if number == attempt else _newest_try(folder, run_id, step, number)
        for again in range(newest, 0, -1):
            path = attempt_path(step, number, again)
            if path[-1] in folder.names((run_id, *path[:-1])):
                yield path


def last_with_something(folder: Folder, run_id: str, paths: Iterator[Path]) -> Path | None:
    """The newest directory in which a step left something of its own; else the newest there is."""
    newest: Path | None = None
    for path in paths:
        newest = newest or path
        found = files_of_attempt(folder.path(run_id, *path)).files
        if any(file.path != STATUS and file.path not in NOT_LEFT for file in found):
            return path
    return newest


def _newest_try(folder: Folder, run_id: str, step: str, attempt: int) -> int:
    names = folder.names((run_id, *attempt_path(step, attempt)))
    return max((int(found[1]) for name in names if (found := _TRY.fullmatch(name))), default=1)
