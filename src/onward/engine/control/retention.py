"""Deleting runs (gc): which runs may be deleted, and in which order.

If it is killed and started again, the result is the same: a run is deleted in one transaction, content that
nothing refers to is found by a search, and the directories of runs are noted before the runs are deleted, so
that the next gc finds what is left of them.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence

import msgspec

from onward.clock import Clock
from onward.errors import InvalidInput, WorkspaceFailed
from onward.model.ids import check_run_id
from onward.model.run import RunStatus
from onward.model.values import DURATION_S_MAX, KEPT, Seconds, rfc3339
from onward.receipts.folder import WORKSPACE
from onward.receipts.run_directory import Homes, run_of
from onward.store.port.retention import NOTHING_SWEPT, Expiry, Kin, Swept
from onward.store.port.store import Store
from onward.threads import in_thread
from onward.workspace.port import OldTrees

FINAL = (RunStatus.COMPLETED, RunStatus.CANCELLED)
COLLECTABLE = (*FINAL, RunStatus.FAILED)
# What an import stores ahead of its run is left alone for so long. If it takes longer, the import is refused.
UNTOUCHED_US = 3_600 * 1_000_000
RUNS_AT_ONCE = 50
EVENTS_AT_ONCE = 5_000
BLOBS_AT_ONCE = 10_000
AGE = Seconds(-DURATION_S_MAX)  # below zero: with runs that change while it collects
COLLECTING = ".collecting."
LIST_BYTES_MAX = 1024 * 1024


class Policy(msgspec.Struct, frozen=True):
    """What to delete: runs in these statuses, unchanged for so long, except the newest `keep`."""

    statuses: tuple[RunStatus, ...] = FINAL
    older_than_s: float = 0.0
    keep: int = 0

    def __post_init__(self) -> None:
        AGE.check(self.older_than_s, "older_than_s")
        KEPT.check(self.keep, "keep")

    def at(self, now_us: int) -> Expiry:
        return Expiry(self.statuses, now_us - int(self.older_than_s * 1_000_000), self.keep)


class Unmerged(msgspec.Struct, frozen=True):
    """A run that stays because of work that is only in its work tree."""

    run: str
    directory: str
    why: str


class Collected(msgspec.Struct):
    """What was deleted. `needed` runs have expired but stay for others, `unmerged` because of files."""

    runs: list[str]
    events: int = 0
    needed: int = 0
    unmerged: tuple[Unmerged, ...] = ()
    directories: int = 0
    swept: Swept = NOTHING_SWEPT


def collectable(expired: Sequence[Kin], attached: Sequence[Kin]) -> list[Kin]:
    """The expired runs that no other run needs, the youngest first: forks are deleted before their parents.

    A fork needs its parent. A run that is not final needs its manager, its children, and the runs before and
    after it in a chain of restarts. A run that is kept may need further ones.
    """
    left = {kin.id: kin for kin in expired}
    keepers = [kin for kin in attached if kin.id not in left]
    while keepers:
        unfinished = {kin.id for kin in keepers if not kin.is_final}
        named = {kin.parent for kin in keepers}
        named |= {name for kin in keepers if not kin.is_final for name in _relatives(kin)}
        keepers = [
            kin for kin in left.values() if kin.id in named or not unfinished.isdisjoint(_relatives(kin))
        ]
        for kin in keepers:
            del left[kin.id]
    return list(left.values())[::-1]


def _relatives(kin: Kin) -> Iterator[str]:
    return (name for name in (kin.manager, kin.restart_of, kin.successor) if name is not None)


class Collector:
    """Deletes runs of one database, and their directories in `homes`, on this machine.

    Without homes, files are left alone. Without `trees`, work trees are directories like any other.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        homes: Homes | None,
        warn: Callable[[str], None],
        trees: OldTrees | None = None,
    ) -> None:
        self._store, self._clock, self._homes, self._warn = store, clock, homes, warn
        self._trees = trees

    async def preview(self, policy: Policy) -> Collected:
        """What would be deleted; nothing is changed."""
        expired, chosen, unmerged = await self._chosen(policy)
        runs, events = [kin.id for kin in chosen], sum(kin.head for kin in chosen)
        return Collected(runs, events, len(expired) - len(chosen), unmerged)

    async def collect(self, policy: Policy) -> Collected:
        """Delete every run that the policy names and no other run needs, and unused content."""
        expired, chosen, unmerged = await self._chosen(policy)
        done = Collected([], directories=await self._finish_what_was_begun(), unmerged=unmerged)
        for batch in _batches(chosen):
            gone = await self._delete(batch, done)
            done.runs += gone
            done.events += sum(kin.head for kin in batch if kin.id in gone)
        done.needed = len(expired) - len(done.runs)
        while True:
            swept = await self._store.blobs.sweep(self._clock.now_us() - UNTOUCHED_US, BLOBS_AT_ONCE)
            done.swept = done.swept.plus(swept)
            if swept.blobs == 0:
                return done

    async def _chosen(self, policy: Policy) -> tuple[Sequence[Kin], list[Kin], tuple[Unmerged, ...]]:
        found = await self._store.retention.expired(policy.at(self._clock.now_us()))
        homes = await self._homes_of([kin.id for kin in found])
        looked = [await in_thread(self._unmerged, name) for name in homes]
        unmerged = {one.run: one for one in looked if one is not None}
        expired = [kin for kin in found if kin.id not in unmerged]
        chosen = collectable(expired, await self._store.retention.attached()) if expired else []
        return expired, chosen, tuple(unmerged.values())

    async def _homes_of(self, run_ids: Sequence[str]) -> list[str]:
        """The directories that certainly belong to these runs, and not to runs of another database."""
        if self._homes is None:
            return []
        named, wanted = self._homes.names(()), set(run_ids)
        return [name for name in named if run_of(name) in wanted and await self._is_of_run(name)]

    async def _is_of_run(self, name: str) -> bool:
        assert self._homes is not None
        said = self._homes.said(name)
        if said is None or "database" in said or not self._homes.is_ours(name):
            return self._homes.is_ours(name)
        # Older than database identities: of two runs with the same id, it belongs to the one created then.
        listed = await self._store.runs.find(run_of(name))
        return said.get("start_time") in {rfc3339(one.row.created_at_us) for one in listed}

    def _unmerged(self, name: str) -> Unmerged | None:
        """The first work tree in a run's directory with work that is not stored anywhere else."""
        if self._trees is None:
            return None
        run_id = run_of(name)
        looked = ((tree, self._trees.work_in(run_id, tree)) for tree in self._work_trees(name))
        return next((Unmerged(run_id, tree, why) for tree, why in looked if why), None)

    def _work_trees(self, name: str) -> list[str]:
        """The work trees in a run's directory; links are not followed."""
        assert self._homes is not None
        folder = self._homes.plain
        if not _is_directory(folder.path(name)):
            return []
        names = [found for found in folder.names((name,)) if found.startswith(WORKSPACE)]
        return [path for path in (folder.path(name, found) for found in names) if _is_directory(path)]

    async def _delete(self, batch: Sequence[Kin], done: Collected) -> Sequence[str]:
        named = await self._homes_of([kin.id for kin in batch])
        if self._homes is None or not named:
            return await self._store.retention.delete(batch)
        # Each batch has its own note: one that could not be finished is there for the next gc.
        note = f"{self._notes}{os.getpid()}.{named[0]}"
        self._homes.write((), note, json.dumps(named).encode(), synced=True)
        gone = await self._store.retention.delete(batch)
        removed = [name for name in named if run_of(name) in gone]
        done.directories += await in_thread(self._clear, note, removed)
        return gone

    @property
    def _notes(self) -> str:
        """The prefix of this database's notes: another database cannot judge them."""
        assert self._homes is not None
        return f"{COLLECTING}{self._homes.identity.short}."

    async def _finish_what_was_begun(self) -> int:
        """Remove the directories that a gc which was killed had noted, if their runs were deleted."""
        removed = 0
        for note in self._homes.names(()) if self._homes is not None else ():
            if note.startswith(self._notes):
                gone = [name for name in self._noted(note) if not await self._is_there(run_of(name))]
                removed += await in_thread(self._clear, note, gone)
        return removed

    def _noted(self, note: str) -> Iterator[str]:
        assert self._homes is not None
        content = self._homes.read((), note, limit=LIST_BYTES_MAX) or b"[]"
        try:
            for name in json.loads(content):
                check_run_id(run_of(name))
                # Without a manifest it is half removed; with another one, another database uses the name.
                name = os.path.basename(name)
                if self._homes.said(name) is None or self._homes.is_ours(name):
                    yield name
        except (ValueError, TypeError, AttributeError, InvalidInput):
            self._warn(f"{self._homes.path()}/{note} is not a list of runs; remove it.")

    async def _is_there(self, run_id: str) -> bool:
        return bool(await self._store.log.read(run_id, after=0, limit=1))

    def _clear(self, note: str, names: Sequence[str]) -> int:
        """Remove these directories, and then the note about them."""
        assert self._homes is not None
        removed, failed = 0, False
        for name in names:
            try:
                removed += self._remove(name)
            except (OSError, WorkspaceFailed) as error:
                failed = True
                why = getattr(error, "strerror", None) or str(error).rstrip(".")
                path = self._homes.plain.path(name)
                self._warn(f"{path} cannot be removed: {why}; the next gc tries again.")
        if not failed:
            self._homes.remove((), note)
        return removed

    def _remove(self, name: str) -> bool:
        assert self._homes is not None
        unmerged = self._unmerged(name)  # again: another process may have deleted its run, or a gc long ago
        if unmerged is not None:
            raise WorkspaceFailed(f"{unmerged.directory} {unmerged.why}")
        if self._trees is not None:
            for tree in self._work_trees(name):
                self._trees.remove(tree)
        return self._homes.remove_all(name)


def _is_directory(path: str) -> bool:
    return os.path.lexists(path) and stat.S_ISDIR(os.lstat(path).st_mode)


def _batches(runs: Sequence[Kin]) -> Iterator[Sequence[Kin]]:
    """Batches of so many runs, or events: other processes wait for no more than one batch."""
    batch: list[Kin] = []
    for kin in runs:
        if batch and (len(batch) >= RUNS_AT_ONCE or sum(one.head for one in batch) >= EVENTS_AT_ONCE):
            yield batch
            batch = []
        batch.append(kin)
    if batch:
        yield batch
