"""The directories of runs on this machine: written, read, compared with the logs, and deleted.

The files of a run are written from its log. What its steps printed is read bit by bit from their
directories, and otherwise from the log. `verify_runs` proves that what is stored, in the database and in
directories, is what the logs say. `collect_runs` deletes runs that have ended, with their directories and
work trees.
"""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import msgspec

from onward.clock import Clock
from onward.engine.control.retention import Collector, Policy
from onward.engine.files.receipts import committed, rebuild
from onward.engine.journal import Journal
from onward.engine.log import Folded
from onward.engine.sources import Sources
from onward.entry import closing
from onward.errors import InvalidInput, Refused
from onward.model.events import STDERR, STDOUT, AttemptFailed, Event, LastOutput, StepFinished, StepStarted
from onward.model.ids import called, display_id
from onward.model.run import Run, RunStatus
from onward.operations.here.requests import CollectRuns, ReadLogs, VerifyRuns, WriteFiles, WriteReceipts
from onward.operations.here.verify import verify_run
from onward.operations.local.lists import LocalLists
from onward.operations.local.look import has_stopped
from onward.operations.requests import ALL, ListRuns, ReadPrinted
from onward.read.log import Projection, Step, Try
from onward.read.lookup import find_run, get_steps, log_pages, matching_steps, read_projection
from onward.receipts import folder as folders
from onward.receipts.audit import Finding, ReceiptsFound, find_resume_point, read_receipts
from onward.receipts.run_directory import Homes
from onward.store.codec import unseal
from onward.store.owner import other_host
from onward.store.port.store import Store

if TYPE_CHECKING:
    from onward.operations.here.replies import (
        FilesWritten,
        ReceiptsWritten,
        RunsCollected,
        RunVerified,
    )
    from onward.replies.steps import FindingShown, LogPiece, PrintedShown, ReceiptList

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
        flow = folders.flow_name(run.pipeline)
        with _writing(folder.path(*at)):
            expected = dict(await committed(self.store.log, self.sources, run))
            before = read_receipts(folder, at, flow, expected) if folder.names(at) else ReceiptsFound()
            written = await rebuild(self.store, self.sources, run, folder, at)
            if not is_held:
                _put_aside(folder, (*at, flow), expected)
            after = read_receipts(folder, at, flow, expected)
        graph = (await self.sources.stored(run)).graph
        point = find_resume_point(folder.path(*at, flow, folders.RECEIPTS), graph, committed=expected)
        kept = sorted(after.trusted.items(), key=lambda item: item[1].sequence)
        return {
            "run": run.id,
            "directory": folder.path(*at, flow),
            "written": len(written),
            "files": _paths(folder, at, written),
            "receipts": [{"file": name, **msgspec.to_builtins(receipt)} for name, receipt in kept],
            "found": _view_findings([finding for finding in before.findings if finding.kind != LAZY]),
            "left": _view_findings(after.findings),
            "resume_point": {"step": point.step, "action": point.action, "reason": point.reason},
        }

    async def _load(self, wanted: str) -> Folded:
        run_id = (await find_run(self.store.runs, wanted)).row.id
        return await Journal(self.store.log, self.clock).load(run_id)

    def _target(self, directory: str | None, run_id: str) -> tuple[folders.Folder, folders.Path]:
        """Where a run's files go: the directory that was named, or the run's own."""
        if directory is not None:
            return folders.Folder(os.path.abspath(directory)), ()
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


def _paths(folder: folders.Folder, at: folders.Path, names: Sequence[str]) -> list[str]:
    return [os.path.join(folder.path(*at), name) for name in names]


def _put_aside(folder: folders.Folder, flow: folders.Path, expected: Collection[str]) -> None:
    for kind in (folders.RECEIPTS, folders.HANDOFFS):
        for name in folder.names((*flow, kind)):
            if folders.is_finished_file(name) and name not in expected:
                folder.put_aside(name, (*flow, kind))


def _view_findings(findings: Sequence[Finding]) -> list[FindingShown]:
    return [{"kind": one.kind, "file": one.file, "says": one.says} for one in findings]


CHUNK_BYTES = 1 << 16
STREAMS = (STDOUT, STDERR)
Source = Literal["file", "log", "context"]
Text = tuple[str, str, Source]
"""The stream, what it printed, and where that was kept."""


class PrintedTry:
    """Reads the files of one try as they grow; without files, what the log has of it when it has ended.

    `streams` are those that are wanted; if there are none, all are, with the traceback and the lines that the
    handler logged (`log`). `printed` is the standard output that became a context value.
    """

    def __init__(self, runs: folders.Folder | None, parts: folders.Path, streams: Sequence[str]) -> None:
        self._runs, self._parts, self._streams = runs, parts, streams
        self._decoders = {
            stream: codecs.getincrementaldecoder("utf-8")(errors="replace") for stream in STREAMS
        }
        self._read_upto = dict.fromkeys(STREAMS, 0)
        self._has_files = self._is_done = False
        self.log: Sequence[str] = ()
        self.printed = ""

    def is_elsewhere(self, found: Sequence[LogPiece]) -> bool:
        """Whether what it printed, of which `found` is known, is in files that this machine does not have.

        A try without files of its own may have printed nothing, if the directory of its run is here.
        """
        if self._has_files:
            return False
        has_run = self._runs is not None and bool(self._runs.names(self._parts[:1]))
        return not has_run or any(piece["stream"] in STREAMS for piece in found)

    def skip_to_last(self, size: int) -> bool:
        """Read only the last bytes of each stream; returns whether there is more before them."""
        is_cut = False
        for stream in STREAMS:
            self._read_upto[stream] = max(0, self._size_of(stream) - size)
            is_cut = is_cut or (self._read_upto[stream] > 0 and self._is_wanted(stream))
        return is_cut

    def _size_of(self, stream: str) -> int:
        file = self._opened(stream)
        if file is None:
            return 0
        with closing(file):
            return os.fstat(file).st_size

    def more(self, output: LastOutput | None, *, is_ended: bool) -> Iterator[Text]:
        """What came since this was last asked; `output` is what the log has of it."""
        if self._is_done:
            return
        for stream in STREAMS:
            for text in self._from_file(stream, is_ended):
                if self._is_wanted(stream):
                    yield stream, text, "file"
        if is_ended:
            self._is_done = True
            yield from self._from_log(output)

    def _is_wanted(self, stream: str) -> bool:
        return not self._streams or stream in self._streams

    def _from_file(self, stream: str, is_ended: bool) -> Iterator[str]:
        decode = self._decoders[stream].decode
        for data in self._new_bytes(stream):
            self._has_files = True
            if text := decode(data):
                yield text
        if is_ended and (text := decode(b"", final=True)):
            yield text

    def _new_bytes(self, stream: str) -> Iterator[bytes]:
        file = self._opened(stream)
        if file is None:
            return
        with closing(file):
            while data := os.pread(file, CHUNK_BYTES, self._read_upto[stream]):
                self._read_upto[stream] += len(data)
                yield data

    def _opened(self, stream: str) -> int | None:
        """The file of a stream. If something else is in the way, it is not followed; the log has the end."""
        if self._runs is None:
            return None
        try:
            return self._runs.open_plain(self._parts, stream + folders.OUTPUT_ENDING)
        except OSError:
            return None

    def _from_log(self, output: LastOutput | None) -> Iterator[Text]:
        if not self._has_files:
            yield from self._last_lines(output)
        if self._streams:
            return
        for line in self.log:
            yield "log", f"{line}\n", "log"
        if output is not None and output.traceback:
            yield "traceback", f"{output.traceback}\n", "log"

    def _last_lines(self, output: LastOutput | None) -> Iterator[Text]:
        if output is None or not output.lines:
            if self.printed and self._is_wanted(STDOUT):
                yield STDOUT, self.printed, "context"
            return
        for line in output.lines:
            if self._is_wanted(line.stream):
                yield line.stream, f"{line.text}\n", "log"


POLL_S = 0.2
TOOL_OUTPUT = "tool.output"


class RunLogs(msgspec.Struct, frozen=True):
    """Reads what was printed. `runs` has the directories of runs; None if there are none here."""

    store: Store
    clock: Clock
    runs: folders.Folder | None

    async def read_logs(
        self, request: ReadLogs, *, stop: asyncio.Event | None = None
    ) -> AsyncGenerator[LogPiece]:
        """Pieces of text as they come; `stop` ends a wait for more."""
        run_id = (await find_run(self.store.runs, request.run)).row.id
        stop, reading, heard = stop or asyncio.Event(), _OutputReader(request, self.runs), 0
        while True:
            # Asked before reading, so that the last lines are read once more.
            is_over = (
                not request.follow
                or await has_stopped(self.store, self.clock, run_id)
                or reading.has_finished
            )
            async for page in log_pages(self.store.log, run_id, after=heard):
                heard = page[-1].seq
                for record in page:
                    reading.apply(unseal(record), at_us=record.at_us, run_id=record.run_id)
            for piece in reading.more(is_over=is_over):
                yield piece
            if is_over or stop.is_set():
                return
            await self.clock.wait_s(POLL_S, stop)


class _OutputReader(msgspec.Struct):
    """How far the output of the chosen steps has been read."""

    request: ReadPrinted
    runs: folders.Folder | None
    _log: Projection = msgspec.field(default_factory=Projection)
    _tries: dict[str, list[PrintedTry]] = msgspec.field(default_factory=dict)

    @property
    def has_finished(self) -> bool:
        """Whether the one step that was asked for has its outcome."""
        step = self._log.steps.get(self.request.step or "")
        return step is not None and step.outcome is not None

    def apply(self, event: Event, *, at_us: int, run_id: str) -> None:
        """Add the next event. `run_id` is the run that recorded it: a fork's steps are also its parent's."""
        step = self._log.apply(event, at_us=at_us)
        if step is None:
            return
        tries = self._tries.setdefault(step.step, [])
        match event:
            case StepStarted():
                one = step.tries[-1]
                parts = (run_id, *folders.attempt_path(step.step, one.attempt, one.number))
                tries.append(PrintedTry(self.runs, parts, self.request.streams))
            case AttemptFailed() if tries:
                tries[-1].log = event.log
            case StepFinished() if tries:
                tries[-1].log = event.log
                printed = event.context.get(TOOL_OUTPUT)
                tries[-1].printed = printed if isinstance(printed, str) else ""

    def more(self, *, is_over: bool) -> Iterator[LogPiece]:
        """What was printed since this was last asked."""
        for step, one, reader in self.chosen(is_over=is_over):
            yield from self.pieces(step, one, reader, is_over=is_over)

    def chosen(self, *, is_over: bool) -> Iterator[tuple[Step, Try, PrintedTry]]:
        """The tries that are wanted, in the order of their steps."""
        wanted, attempt = self.request.step, self.request.attempt
        if wanted is None:
            steps = [*self._log.steps.values()]
        else:
            steps = get_steps(self._log, wanted) if is_over else matching_steps(self._log, wanted)
        if is_over and attempt is not None:
            _check_attempt(steps, attempt)
        for step in steps:
            for one, reader in zip(step.tries, self._tries[step.step], strict=True):
                if attempt is None or one.attempt == attempt:
                    yield step, one, reader

    def pieces(self, step: Step, one: Try, reader: PrintedTry, *, is_over: bool) -> Iterator[LogPiece]:
        """What a try printed since it was last asked."""
        is_ended = is_over or one.ended_at_us is not None or one is not step.tries[-1]
        for stream, text, source in reader.more(one.output, is_ended=is_ended):
            yield {
                "step": step.step,
                "attempt": one.attempt,
                "number": one.number,
                "stream": stream,
                "text": text,
                "source": source,
            }


PRINTED_BYTES_MAX = 256 * 1024
"""How much of the end of what a run printed is shown to who asks from elsewhere."""


async def printed_here(store: Store, runs: folders.Folder | None, request: ReadPrinted) -> PrintedShown:
    """The end of what a run printed; refused if it was printed on another machine."""
    run_id = (await find_run(store.runs, request.run)).row.id
    reading = _OutputReader(request, runs)
    async for page in log_pages(store.log, run_id):
        for record in page:
            reading.apply(unseal(record), at_us=record.at_us, run_id=record.run_id)
    left, is_cut, elsewhere = PRINTED_BYTES_MAX, False, ""
    told: list[list[LogPiece]] = []
    for step, one, reader in reversed([*reading.chosen(is_over=True)]):
        is_cut = reader.skip_to_last(PRINTED_BYTES_MAX) or is_cut
        found = [*reading.pieces(step, one, reader, is_over=True)]
        if not elsewhere and reader.is_elsewhere(found):
            elsewhere = other_host(one.claim.worker)
        found, left, is_all = _last_of(found, left)
        told.append(found)
        if not is_all:
            is_cut = True
            break
    if elsewhere:
        raise _not_here(run_id, elsewhere)
    pieces = [piece for found in reversed(told) for piece in found]
    return {"run": run_id, "display_id": display_id(run_id), "is_cut": is_cut, "pieces": pieces}


def _last_of(pieces: Sequence[LogPiece], left: int) -> tuple[list[LogPiece], int, bool]:
    """The last of these pieces that have room, how much room is left then, and whether they are all."""
    kept: list[LogPiece] = []
    for piece in reversed(pieces):
        text = piece["text"].encode()
        if len(text) > left:
            kept.append({**piece, "text": text[len(text) - left :].decode(errors="ignore")})
            return [one for one in reversed(kept) if one["text"]], 0, False
        kept.append(piece)
        left -= len(text)
    return kept[::-1], left, True


async def receipts_here(store: Store, sources: Sources, runs: folders.Folder | None, run: Run) -> ReceiptList:
    """The receipts on this machine that the log stands for; refused if those of the run are on another."""
    flow, found = folders.flow_name(run.pipeline), ReceiptsFound()
    if runs is not None and runs.names((run.id,)):
        found = read_receipts(runs, (run.id,), flow, dict(await committed(store.log, sources, run)))
    elif host := other_host((await read_projection(store.log, run.id)).claim.worker):
        raise _not_here(run.id, host)
    kept = sorted(found.trusted.items(), key=lambda item: item[1].sequence)
    return {
        "run": run.id,
        "display_id": display_id(run.id),
        "receipts": [{"file": name, **msgspec.to_builtins(receipt)} for name, receipt in kept],
        "found": _view_findings(found.findings),
    }


def _not_here(run_id: str, host: str) -> Refused:
    return Refused(
        "not_here",
        f"the files of run {called(run_id)} are on {host}, where it was executed; run the command there.",
        details={"run": run_id, "host": host},
    )


def _check_attempt(steps: Sequence[Step], attempt: int) -> None:
    """Refuse the number of an attempt that none of these steps has had."""
    last = max((step.attempts for step in steps if step.tries), default=0)
    if attempt > last:
        named = ", ".join(step.step for step in steps[:20])
        raise InvalidInput(f"there is no attempt {attempt} of {named}; the last is {last}.")


async def verify_runs(store: Store, homes: Homes | None, request: VerifyRuns) -> AsyncIterator[RunVerified]:
    """Read logs whole, one run after another, and compare all that is stored with their fold."""
    for listed in (await LocalLists(store).list_runs(ListRuns(run=request.run, limit=ALL)))["runs"]:
        found = await verify_run(store, listed["id"], homes)
        yield {
            "run": found.run_id,
            "display_id": listed["display_id"],
            "events": found.events,
            "problems": list(found.problems),
        }


OLDER_THAN_S = 30 * 86_400.0


async def collect_runs(collector: Collector, request: CollectRuns) -> RunsCollected:
    """Delete what the request allows and no other run needs; with `dry_run`, only say what that is."""
    older_than_s = request.older_than_s
    if older_than_s is None:
        older_than_s = OLDER_THAN_S if request.keep is None else 0.0
    statuses = tuple(dict.fromkeys(map(RunStatus, request.statuses)))
    policy = Policy(statuses, older_than_s, request.keep or 0)
    done = await (collector.preview(policy) if request.dry_run else collector.collect(policy))
    return {
        "dry_run": request.dry_run,
        "runs": done.runs,
        "events": done.events,
        "needed": done.needed,
        "unmerged": [{"run": one.run, "directory": one.directory, "why": one.why} for one in done.unmerged],
        "blobs": done.swept.blobs,
        "blob_bytes": done.swept.bytes,
        "directories": done.directories,
    }
