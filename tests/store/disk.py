"""A disk under SQLite that remembers and can fail: it records every write and sync, or breaks at one of them.

`Disk` is an SQLite VFS on top of the real one. It has no shared memory, so a connection on it must lock the
file for itself alone; `Disk.connect` does that.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import apsw

SECTOR = 512


@dataclass(frozen=True, slots=True)
class Written:
    """Bytes handed to the disk. They may wait in its cache until the file is synced."""

    file: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncated:
    """The file was cut to `size` bytes; cached like a write."""

    file: str
    size: int


@dataclass(frozen=True, slots=True)
class Synced:
    """Everything written to the file so far survives a power cut."""

    file: str


@dataclass(frozen=True, slots=True)
class Deleted:
    """The file is gone; for good only if the directory was synced."""

    file: str
    is_synced: bool


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Somebody was told that this much is durable. Not the disk's business, but it has to keep it."""

    run_id: str
    seq: int
    hash: bytes


Happening = Written | Truncated | Synced | Deleted | Acknowledged


class Disk(apsw.VFS):
    """Records what happens to it. From number `fails_at` on, each write or sync raises `failure`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.happened: list[Happening] = []
        self.count = 0
        self.fails_at: int | None = None
        self.failure: type[apsw.Error] = apsw.IOError
        super().__init__(name, "")

    def connect(self, path: str, kind: type[apsw.Connection] = apsw.Connection) -> apsw.Connection:
        """A connection to a file on this disk, which checkpoints often, so that it has more to go wrong."""
        db = kind(path, vfs=self.name)
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA wal_autocheckpoint = 16")
        return db

    def note(self, happening: Happening) -> None:
        """Let it happen, or fail."""
        self.count += 1
        if self.fails_at is not None and self.count >= self.fails_at:
            raise self.failure(f"injected at operation {self.count}")
        self.happened.append(happening)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> DiskFile:
        return DiskFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.note(Deleted(filename, syncdir))
        super().xDelete(filename, syncdir)


class DiskFile(apsw.VFSFile):
    """A file on a `Disk`."""

    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else name or "temporary"
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:
        self._disk.note(Written(self._name, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._disk.note(Truncated(self._name, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        self._disk.note(Synced(self._name))  # and no more: the machine under the test does not fail


class Onlooker(apsw.Connection):
    """A connection that only looks at what was found, so nothing it does needs to last."""

    def execute(self, statements: str, *arguments: Any, **options: Any) -> apsw.Cursor:
        if statements.startswith("PRAGMA synchronous = "):
            statements = "PRAGMA synchronous = OFF"
        return super().execute(statements, *arguments, **options)


@dataclass
class Platter:
    """What is on the disk for good, and what is still in its cache."""

    durable: dict[str, bytearray] = field(default_factory=dict)
    cached: dict[str, list[Written | Truncated]] = field(default_factory=dict)
    doomed: set[str] = field(default_factory=set)

    def take(self, happening: Happening) -> None:
        match happening:
            case Written(file) | Truncated(file):
                if file in self.doomed:  # made anew under its old name
                    self.doomed.discard(file)
                    self.durable.pop(file, None)
                self.cached.setdefault(file, []).append(happening)
            case Synced(file):
                content = self.durable.setdefault(file, bytearray())
                for cached in self.cached.pop(file, []):
                    _apply(content, cached)
            case Deleted(file, is_synced):
                self.cached.pop(file, None)
                if is_synced:
                    self.durable.pop(file, None)
                else:
                    self.doomed.add(file)
            case Acknowledged():
                pass

    def after_power_cut(self, dice: random.Random) -> dict[str, bytes]:
        """The files as they might be found: any part of what was cached may be missing or torn."""
        found = {file: bytearray(content) for file, content in self.durable.items()}
        for file in sorted(self.doomed & found.keys()):
            if dice.random() < 0.5:
                del found[file]
        kept = dice.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        for file in sorted(self.cached):
            for cached in self.cached[file]:
                for part in _torn(cached, dice, kept):
                    _apply(found.setdefault(file, bytearray()), part)
        return {file: bytes(content) for file, content in found.items()}


def _torn(cached: Written | Truncated, dice: random.Random, kept: float) -> Iterator[Written | Truncated]:
    """The sectors of a write that made it."""
    if isinstance(cached, Truncated):
        if dice.random() < kept:
            yield cached
        return
    start, end = cached.offset, cached.offset + len(cached.data)
    for sector in range(start - start % SECTOR, end, SECTOR):
        if dice.random() < kept:
            low, high = max(sector, start), min(sector + SECTOR, end)
            yield Written(cached.file, low, cached.data[low - start : high - start])


def _apply(content: bytearray, change: Written | Truncated) -> None:
    if isinstance(change, Truncated):
        del content[change.size :]
        return
    missing = change.offset + len(change.data) - len(content)
    if missing > 0:
        content.extend(bytes(missing))
    content[change.offset : change.offset + len(change.data)] = change.data


def power_cuts(
    happened: Iterable[Happening], dice: random.Random, *, share: float
) -> Iterator[tuple[dict[str, bytes], list[Acknowledged]]]:
    """Cut the power behind a share of all happenings: the files then found, and what had been promised."""
    platter, promised = Platter(), list[Acknowledged]()
    for happening in happened:
        platter.take(happening)
        if isinstance(happening, Acknowledged):
            promised.append(happening)
        if dice.random() < share:
            yield platter.after_power_cut(dice), list(promised)
