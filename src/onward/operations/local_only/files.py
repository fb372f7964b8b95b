"""The files of a run, written on this machine from its log."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from onward.clock import Clock
from onward.engine.control.sources import Sources
from onward.engine.files.rebuild import rebuild
from onward.engine.files.receipts import committed
from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.errors import InvalidInput
from onward.operations.local_only.replies import FilesWritten, FindingShown, ReceiptsWritten
from onward.operations.local_only.requests import WriteFiles, WriteReceipts
from onward.read.lookup import find_run
from onward.receipts.folder import Folder
from onward.receipts.homes import Homes
from onward.receipts.names import Path
from onward.receipts.places import HANDOFFS, RECEIPTS, flow_name, is_finished_file
from onward.receipts.reading import Finding, Found, read_receipts
from onward.receipts.resume_point import find_resume_point
from onward.store.port.store import Store

LAZY = "missing"  # what was never written is no problem: it is written now


class RunDirectories(msgspec.Struct, frozen=True):
    """Writes files of runs. `runs` is where runs have their own directories; None if nowhere."""

    store: Store
    clock: Clock
    sources: Sources
    runs: str | None

    async def write_files(self, request: WriteFiles) -> FilesWritten:
        """Write what is missing; what a step left itself stays as it is."""
        run = (await self._load(request.run)).run
        folder, at = self._target(request.directory, run.id)
        with _writing(folder.path(*at)):
            written = await rebuild(self.store, self.sources, run, folder, at)
        return {
            "run": run.id,
            "directory": folder.path(*at),
            "written": len(written),
            "files": _paths(folder, at, written),
        }

    async def write_receipts(self, request: WriteReceipts) -> ReceiptsWritten:
        """Make the receipts on disk agree with the log.

        One that does not agree is moved aside, unless a process holds the run.
        """
        folded = await self._load(request.run)
        run, is_held = folded.run, folded.holder is not None and folded.holder.is_alive
        folder, at = self._target(request.directory, run.id)
        flow = flow_name(run.pipeline)
        with _writing(folder.path(*at)):
            expected = dict(await committed(self.store.log, self.sources, run))
            before = read_receipts(folder, at, flow, expected) if folder.names(at) else Found()
            written = await rebuild(self.store, self.sources, run, folder, at)
            if not is_held:
                _put_aside(folder, (*at, flow), expected)
            after = read_receipts(folder, at, flow, expected)
        graph = (await self.sources.stored(run)).graph
        point = find_resume_point(folder.path(*at, flow, RECEIPTS), graph, committed=expected)
        kept = sorted(after.trusted.items(), key=lambda item: item[1].sequence)
        return {
            "run": run.id,
            "directory": folder.path(*at, flow),
            "written": len(written),
            "files": _paths(folder, at, written),
            "receipts": [{"file": name, **msgspec.to_builtins(receipt)} for name, receipt in kept],
            "found": _view([finding for finding in before.findings if finding.kind != LAZY]),
            "left": _view(after.findings),
            "resume_point": {"step": point.step, "action": point.action, "reason": point.reason},
        }

    async def _load(self, wanted: str) -> Folded:
        run_id = (await find_run(self.store.runs, wanted)).row.id
        return await Journal(self.store.log, self.clock).load(run_id)

    def _target(self, directory: str | None, run_id: str) -> tuple[Folder, Path]:
        """Where a run's files go: the directory that was named, or the run's own."""
        if directory is not None:
            return Folder(os.path.abspath(directory)), ()
        if self.runs is None:
            raise InvalidInput("this database has no directory for runs; name one with --out.")
        return Homes(os.path.abspath(self.runs), self.store.identity), (run_id,)


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # Ours say themselves what to do about what is in the way.
        what = f"{error.strerror}; name another directory with --out" if error.strerror else str(error)
        raise InvalidInput(f"{path} cannot be written: {what}.") from None


def _paths(folder: Folder, at: Path, names: Sequence[str]) -> list[str]:
    return [os.path.join(folder.path(*at), name) for name in names]


def _put_aside(folder: Folder, flow: Path, expected: Collection[str]) -> None:
    for kind in (RECEIPTS, HANDOFFS):
        for name in folder.names((*flow, kind)):
            if is_finished_file(name) and name not in expected:
                folder.put_aside(name, (*flow, kind))


def _view(findings: Sequence[Finding]) -> list[FindingShown]:
    return [{"kind": one.kind, "file": one.file, "says": one.says} for one in findings]
