"""The directories of one database's runs, in a folder that other databases may use as well.

A run's directory has the run's id for a name, and its manifest says whose it is. If the directory of another
database or program has that name, the run's directory is `<run>.of-<database>`. What is not ours is never
written to, moved or removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

import msgspec

from onward.model.ids import Identity
from onward.model.values import rfc3339
from onward.receipts.entry import exists
from onward.receipts.folder import Folder
from onward.receipts.names import MANIFEST, Path

OF, ASIDE = ".of-", ".before-"
MANIFEST_BYTES_MAX = 1024 * 1024


class Said(TypedDict, total=False):
    """What a manifest says about whose it is; one from before databases had an identity names none."""

    run_id: str
    start_time: str
    database: str


def said_by(content: bytes | None) -> Said | None:
    """A manifest, as far as it matters here; None if it is none."""
    try:
        return msgspec.json.decode(content or b"", type=Said)
    except msgspec.DecodeError:
        return None


def run_of(name: str) -> str:
    """The run that a directory is named after."""
    return name.partition(ASIDE)[0].partition(OF)[0]


@dataclass(frozen=True, slots=True)
class Homes(Folder):
    """A folder in which every path begins with a run's id, and leads to what is `identity`'s."""

    identity: Identity

    def _named(self, parts: Path) -> Path:
        return (self.home(parts[0]), *parts[1:]) if parts else parts

    @property
    def plain(self) -> Folder:
        """The same folder with all that is in it, by the names as they are. It holds nothing open."""
        return Folder(self.root)

    def home(self, run_id: str) -> str:
        """The name of the run's directory, whether it is there yet or not."""
        if OF in run_id:
            return run_id  # a name that was found here before
        held = None if self.held is None else self.held.again((run_id,))
        if held is not None:
            return os.path.basename(held.path)  # found to be ours before, and still the same directory
        other = self._other(run_id)
        if os.path.lexists(os.path.join(self.root, other)):
            return other
        return run_id if self._is_free(run_id) or self.is_ours(run_id) else other

    def _other(self, run_id: str) -> str:
        return f"{run_id}{OF}{self.identity.short}"

    def _is_free(self, name: str) -> bool:
        """Whether nothing is there, or only what a process left that died while it made the directory."""
        try:
            return all(found.startswith(".") for found in self.plain.names((name,)))
        except OSError:
            return True  # what is in the way is reported when the directory is used

    def is_ours(self, name: str) -> bool:
        """Whether a directory is one of this database's runs; if it does not say, by its age."""
        mark = name.partition(ASIDE)[0].partition(OF)[2]
        if mark:
            return mark == self.identity.short
        said = self.said(name)
        if said is None or said.get("run_id") != run_of(name):
            return False
        if "database" in said:
            return said["database"] == self.identity.name
        return said.get("start_time", "~") <= rfc3339(self.identity.unmarked_until_us)

    def said(self, name: str) -> Said | None:
        """What the manifest in a directory says."""
        try:
            return said_by(self.plain.read((name,), MANIFEST, limit=MANIFEST_BYTES_MAX))
        except OSError:
            return None

    def move_in(self, run_id: str, manifest: bytes, is_of: Callable[[Said], bool]) -> None:
        """Have the run's directory, with its manifest, and nothing in it that is another run's."""
        if self._is_made(run_id):
            self._hold(run_id, run_id)
            if self.write_new((run_id,), MANIFEST, manifest):
                return
            self.let_go((run_id,))
        name, folder = self.home(run_id), self.plain
        there = folder.read((name,), MANIFEST, limit=MANIFEST_BYTES_MAX)
        said = said_by(there)
        if said is not None and is_of(said):
            folder.write((name,), MANIFEST, manifest)
            self._hold(run_id, name)
            return
        if said is not None and said.get("database") != self.identity.name:
            name = self._other(run_id)  # its owner is unknown, or another database was faster
        elif said is not None or (name != run_id and not self._is_free(name)):
            folder.put_aside(name)  # ours, from a run of this id that was forgotten
        if not folder.write_new((name,), MANIFEST, manifest):
            name = self._other(run_id)
            folder.write((name,), MANIFEST, manifest)
        self._hold(run_id, name)

    def _is_made(self, run_id: str) -> bool:
        """Make the directory of a new run, for which nothing is there; else there is more to look at."""
        top = self._open((), make=True)
        if exists(top.descriptor, self._other(run_id)):
            return False
        try:
            os.mkdir(run_id, 0o700, dir_fd=top.descriptor)
        except FileExistsError:
            return False
        return True

    def _hold(self, run_id: str, name: str) -> None:
        """The directory is ours, and stays it while it is held: that is not looked up for every file."""
        if self.held is not None:
            self.held.keep((run_id,), self._open(()).within(name))
