"""Receipts and handoffs of steps: written before the commit that they describe, or made from the log.

A receipt whose step was never committed is partial state: a reader checks the log, and the step replaces it
when it runs again. All that is written follows from the log alone, so a disk that fails costs a warning.

`rebuild` makes a run's files from its log: what lazy steps left to be made on demand, and what was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
from msgspec.structs import replace

from onward.engine.files.run_files import RunFiles, Write
from onward.engine.log import Folded
from onward.engine.persist import unbroken
from onward.engine.sources import Sources
from onward.errors import InvalidInput, OnwardError, RunNotFound, StoreCorrupt
from onward.machine.definition import AGENT, Definition
from onward.machine.lifecycle import apply
from onward.model.context import as_told, expand
from onward.model.events import AttemptFailed, Event, StepFinished, StepStarted
from onward.model.ids import branch_of
from onward.model.run import OpenStep, Run
from onward.read.lookup import log_pages
from onward.read.view import instant
from onward.receipts import folder as folders
from onward.receipts import run_directory
from onward.receipts.audit import Committed
from onward.receipts.receipt import BYTES_MAX, hash_of, written
from onward.receipts.run_directory import MANIFEST_BYTES_MAX, said_by
from onward.receipts.trail import Leaving, Trail
from onward.store.codec import check_chain, unseal
from onward.store.port.log import ORIGIN, RunLog
from onward.store.port.store import Store

WRITES_MAX = 32
Syncing = asyncio.Future[None]
"""Done when the disk has what was written; OSError if it may not have it."""


@dataclass(slots=True)
class Definitions:
    """The definitions that a run has had, each prepared once."""

    sources: Sources
    _known: dict[str, Definition] = field(default_factory=dict)

    async def of(self, run: Run, pipeline_hash: str) -> Definition:
        """The definition with this hash, out of the store."""
        found = self._known.get(pipeline_hash)
        if found is None:
            pipeline = await self.sources.stored(replace(run, pipeline_hash=pipeline_hash))
            found = self._known[pipeline_hash] = Definition(pipeline.graph)
        return found


async def leavings(
    log: RunLog,
    definitions: Definitions,
    run: Run,
    trail: Trail,
    *,
    upto: int | None = None,
    learn: Callable[[int, Event], None] | None = None,
) -> AsyncIterator[Leaving]:
    """What the events after `trail` leave, up to event `upto`; of a step only what counts in the end.

    `learn` gets every event.
    """
    held: dict[str, Leaving] = {}
    async for page in log_pages(log, run.id, after=trail.head):
        for record in page:
            if upto is not None and record.seq > upto:
                break
            event = unseal(record)
            trail.learn(event)
            if learn is not None:
                learn(record.seq, event)
            definition = await definitions.of(run, trail.pipeline_hash)
            left = trail.take(event, definition, at_us=record.at_us, recorded_in=record.run_id)
            if left is None:
                continue
            held.pop(left.name, None)
            if left.handoff is None:
                held[left.name] = left
            else:
                yield left
    for left in held.values():
        yield left


def put(
    folder: folders.Folder,
    at: folders.Path,
    left: Leaving,
    *,
    is_new: bool = False,
    unsynced: folders.Unsynced | None = None,
) -> list[str]:
    """Have the receipt and then the handoff of a step in the run's directory `at`; which were written there.

    What is there already is not written again, unless the step `is_new` and nothing can be there. With
    `unsynced`, what was written is handed over there, to be synced.
    """
    flow, done = folders.flow_name(left.receipt.flow_key), list[str]()
    handoff = None if left.handoff is None else written(left.handoff)
    for kind, content in ((folders.RECEIPTS, left.content), (folders.HANDOFFS, handoff)):
        parts = (*at, flow, kind)
        if content is None:
            folder.remove(parts, left.name)  # of an outcome that was never committed
        elif is_new or folder.read(parts, left.name, limit=BYTES_MAX) != content:
            folder.write(parts, left.name, content, unsynced=unsynced)
            done.append("/".join((flow, kind, left.name)))
    return done


class _Prepared(msgspec.Struct, frozen=True):
    """What the log will have been taken in to once exactly these events are committed, and no others."""

    trail: Trail
    events: tuple[Event, ...]

    def became(self, run: Run, events: Sequence[Event]) -> bool:
        # Others may have taken these places in the log, so that the head alone says nothing.
        return self.trail.head == run.head and [*map(id, self.events)] == [*map(id, events)]


class StepReceipts:
    """Writes what steps leave, for the runs of this process that have a directory.

    It is written and synced together with what other runs leave at that moment, and the step waits for it.
    """

    def __init__(self, files: RunFiles, log: RunLog, sources: Sources) -> None:
        self._files, self._log, self._sources = files, log, sources
        self._trails: dict[str, Trail] = {}
        self._ahead: dict[str, _Prepared] = {}
        # How the runs began that this process started: their logs need not be read for that.
        self._begun: dict[str, Sequence[Event]] = {}

    def is_kept(self, run_id: str) -> bool:
        """Whether anything is to be written for a run. This is all that a run without a directory costs."""
        return self._files.is_on_disk(run_id)

    async def before(
        self, definition: Definition, folded: Folded, events: Sequence[Event], at_us: int
    ) -> Syncing | None:
        """Write what `events` leave, which are about to be appended after `folded`: artifacts first.

        The disk has artifacts when this returns: only a receipt and a handoff are written again by a resume.
        They have their names then, and `synced` waits until the disk has them, too.
        """
        run, writes, syncing = folded.run, self._files.first(folded.run.id), None
        self._ahead.pop(run.id, None)  # of an append that was refused
        try:
            if self._leave_artifacts(definition, run, events, writes):
                await self._write(writes)
            ahead = (await self._caught_up(definition, folded, writes)).copy()
            self._ahead[run.id] = _Prepared(ahead, tuple(events))
            for left in _taken(ahead, definition, events, at_us):
                self._leave(definition, run, left, writes, is_new=True)
            if writes:
                _, written, syncing = self._files.group.ask(tuple(writes))
                if not await unbroken(written):
                    await unbroken(syncing)  # which says why, before anything is committed
        except OSError as error:
            self._files.tell(run.id, error)
        except OnwardError as error:
            self._files.tell_why(run.id, str(error).rstrip("."))
        except asyncio.CancelledError:
            await self.synced(run.id, syncing)
            raise
        return syncing

    async def synced(self, run_id: str, syncing: Syncing | None) -> None:
        """Return when the disk has what `before` wrote."""
        if syncing is not None:
            try:
                await unbroken(syncing)
            except OSError as error:
                self._files.tell(run_id, error)
        self._files.tell_late(run_id)

    async def write_all(self, definition: Definition, folded: Folded) -> None:
        """Write what a run left that is over, if it has a directory, and let the directory go."""
        run = folded.run
        if not self.is_kept(run.id):
            return
        try:
            writes = self._files.first(run.id)
            await self._caught_up(definition, folded, writes)
            await self._write(writes)
            self._files.add_checkpoint(run)
        except OSError as error:
            self._files.tell(run.id, error)
        await self.close(run, is_ours=True)

    def after(self, run: Run, events: Sequence[Event]) -> None:
        """What was written ahead is committed, if these are the events it was written for.

        What else the run's files say of them is written soon.
        """
        self._files.observe(run, events)
        ahead = self._ahead.pop(run.id, None)
        if run.head == len(events) and run.worker is not None:
            self._begun[run.id] = events
        elif ahead is not None and ahead.became(run, events):
            self._trails[run.id] = ahead.trail

    def write_soon(self, run_id: str) -> None:
        """Have written what steps leave after their commit; the run does not wait for it."""
        self._files.write_soon(run_id)

    def write_checkpoint(self, run: Run) -> None:
        """Have every finished step of a run in its `checkpoint.json`."""
        self._files.add_checkpoint(run)
        self._files.write_soon(run.id)

    async def close(self, run: Run, *, is_ours: bool) -> None:
        """Return when all that the run left is written; what waits is dropped unless the run `is_ours`."""
        for known in (self._ahead, self._trails, self._begun):
            known.pop(run.id, None)
        await self._files.close(run, is_ours=is_ours)

    async def _write(self, writes: list[Write]) -> None:
        """A caller that is cancelled ends when all is written: the run may be another's after that."""
        if writes:
            await unbroken(self._files.group.write(tuple(writes)))
            writes.clear()

    async def _caught_up(self, definition: Definition, folded: Folded, writes: list[Write]) -> Trail:
        """All that is committed; what others wrote, and what came before the directory, is written now."""
        run = folded.run
        trail = self._trails.get(run.id)
        head = folded.position.seq
        if trail is None or trail.head > head or trail.head > self._files.upto(run.id):
            trail = self._from_the_beginning(definition, run, writes)
        if trail.head < head:
            trail = trail.copy()
            definitions = Definitions(self._sources, {run.pipeline_hash: definition})
            learn = partial(self._files.learn, run.id)
            async for left in leavings(self._log, definitions, run, trail, upto=head, learn=learn):
                self._leave(definition, run, left, writes)
                if len(writes) >= WRITES_MAX:
                    await self._write(writes)
            await self._write(writes)
            self._trails[run.id] = trail
        return trail

    def _from_the_beginning(self, definition: Definition, run: Run, writes: list[Write]) -> Trail:
        """A trail with what the run began with, as far as that is known."""
        trail, begun = Trail(run.id, run.pipeline), self._begun.pop(run.id, ())
        for seq, event in enumerate(begun, 1):
            self._files.learn(run.id, seq, event)
        for left in _taken(trail, definition, begun, run.created_at_us):
            self._leave(definition, run, left, writes, is_new=True)
        return trail

    def _leave(
        self, definition: Definition, run: Run, left: Leaving, writes: list[Write], *, is_new: bool = False
    ) -> None:
        mode = self._mode(definition, run, left.node)
        if mode != "off":
            writes.append(partial(self._put, run.id, left, is_new, mode == "full"))

    def _put(
        self, run_id: str, left: Leaving, is_new: bool, is_synced: bool, unsynced: folders.Unsynced
    ) -> None:
        put(self._files.folder, (run_id,), left, is_new=is_new, unsynced=unsynced if is_synced else None)

    def _leave_artifacts(
        self, definition: Definition, run: Run, events: Sequence[Event], writes: list[Write]
    ) -> bool:
        """Whether there are any."""
        before = len(writes)
        for event in events:
            if not isinstance(event, StepFinished) or not event.artifacts:
                continue
            is_synced = self._mode(definition, run, event.node) == "full"
            for id, artifact in event.artifacts.items():
                if artifact is not None:
                    content = event.contents[artifact.hash]
                    writes.append(
                        partial(self._put_artifact, run.id, folders.artifact_name(id), content, is_synced)
                    )
        return len(writes) > before

    def _put_artifact(
        self, run_id: str, name: str, content: bytes, is_synced: bool, unsynced: folders.Unsynced
    ) -> None:
        path, to_sync = (run_id, folders.ARTIFACTS), unsynced if is_synced else None
        self._files.folder.write(path, name, content, unsynced=to_sync)

    def _mode(self, definition: Definition, run: Run, node_id: str) -> str:
        if node_id not in definition.graph.nodes:  # of an older definition
            return "lazy"
        return self._files.mode_of(definition, node_id, run)


def _taken(trail: Trail, definition: Definition, events: Sequence[Event], at_us: int) -> Iterator[Leaving]:
    """What the next events of a log leave, which are written at `at_us`."""
    for event in events:
        trail.learn(event)
        left = trail.take(event, definition, at_us=at_us)
        if left is not None:
            yield left


async def committed(log: RunLog, sources: Sources, run: Run) -> Mapping[str, Committed]:
    """Every receipt that the log stands for, by the name of its file."""
    found = leavings(log, Definitions(sources), run, Trail(run.id, run.pipeline))
    return {
        left.name: Committed(left.receipt.step_id, hash_of(left.content), left.receipt.sequence)
        async for left in found
    }


async def rebuild(
    store: Store, sources: Sources, known: Run, folder: folders.Folder, at: folders.Path
) -> list[str]:
    """Write the files of a run below `at`, and say which, in their order of names.

    A file of a step that is there already stays as it is: it is what really was. Receipts and handoffs are
    what the log says, whatever is there.
    """
    database = store.identity.name
    _check_free(folder, at, known, database)
    definitions = Definitions(sources)
    work = _Work(definitions, folder, at, database)
    work.sign(known)
    run: Run | None = None
    position = ORIGIN
    async for page in log_pages(store.log, known.id):
        position = check_chain(position, page)
        for record in page:
            event = unseal(record)
            run = apply(run, event, run_id=known.id, at_us=record.at_us, token=record.token)
            await work.take(run, event)
    if run is None:
        raise RunNotFound(known.id)
    work.finish(run)
    async for left in leavings(store.log, definitions, run, Trail(run.id, run.pipeline)):
        work.written.update(put(folder, at, left))
    for id, artifact in run.artifacts.items():
        content = await store.blobs.find(artifact.hash)
        if content is None:
            raise StoreCorrupt(f"the content of artifact {id!r} ({artifact.hash}) is missing or damaged.")
        work.write((folders.ARTIFACTS,), folders.artifact_name(id), content, only_new=False)
    return sorted(work.written)


def _check_free(folder: folders.Folder, at: folders.Path, run: Run, database: str) -> None:
    """Refuse a directory in which other things are than files of this run."""
    if not folder.names(at):
        return
    said = said_by(folder.read(at, folders.MANIFEST, limit=MANIFEST_BYTES_MAX))
    start_time = instant(run.created_at_us)
    if not run_directory.is_of(said, run, start_time=start_time, database=database):
        raise InvalidInput(
            f"{folder.path(*at)} contains files that do not belong to this run; name another directory."
        )


class _Work(msgspec.Struct):
    """Files being made while a log is read."""

    definitions: Definitions
    folder: folders.Folder
    at: folders.Path
    database: str
    written: set[str] = msgspec.field(default_factory=set)
    _paths: dict[str, folders.Path] = msgspec.field(default_factory=dict)
    _finished: list[run_directory.Told] = msgspec.field(default_factory=list)

    def sign(self, run: Run) -> None:
        """Write the manifest first: the directory must say whose it is even if this is cut off."""
        manifest = run_directory.manifest(run, start_time=instant(run.created_at_us), database=self.database)
        if self.folder.write_new(self.at, folders.MANIFEST, manifest):
            self.written.add(folders.MANIFEST)
        else:
            self.write((), folders.MANIFEST, manifest, only_new=False)

    async def take(self, run: Run, event: Event) -> None:
        """What one event leaves; `run` is the state after it."""
        match event:
            case StepStarted():
                opened = run.open_steps[event.step]
                path = self._paths[event.step] = folders.attempt_path(event.step, event.attempt, opened.tries)
                prompt = await self._prompt(run, opened)
                if prompt is not None:
                    self.write(path, folders.PROMPT, prompt.encode())
            case AttemptFailed() if event.step in self._paths:
                self.write(self._paths[event.step], folders.STATUS, run_directory.failed_status(event))
            case StepFinished():
                self._finished.append(run_directory.told(event))
                path = self._paths.pop(event.step, ())
                if path:
                    self._outcome(run, event, path)

    def _outcome(self, run: Run, event: StepFinished, path: folders.Path) -> None:
        if event.response:
            self.write(path, folders.RESPONSE, event.response.encode())
        self.write(
            path,
            folders.STATUS,
            run_directory.finished_status(event, run.branches[branch_of(event.step)].context),
        )

    async def _prompt(self, run: Run, opened: OpenStep) -> str | None:
        """What an agent was asked, by the definition and context that the run had then; else None."""
        found = await self.definitions.of(run, run.pipeline_hash)
        node = found.graph.nodes.get(opened.node)
        if node is None or found.kind(opened.node) != AGENT:
            return None
        branch = run.branches[branch_of(opened.step)]
        told = as_told(branch.context, branch.response, node.id, opened.retries_spent)
        try:
            return expand(node.instruction, told).text
        except InvalidInput:
            return None  # the attempt failed for the same reason, and left no prompt

    def finish(self, run: Run) -> None:
        """The two files of the run as a whole, as they stand at the end of the log."""
        start, now = instant(run.created_at_us), instant(run.updated_at_us)
        manifest = run_directory.manifest(run, start_time=start, database=self.database)
        self.write((), folders.MANIFEST, manifest, only_new=False)
        if self._finished:
            content = run_directory.checkpoint(run, self._finished, timestamp=now)
            self.write((), folders.CHECKPOINT, content, only_new=False)

    def write(self, path: folders.Path, name: str, content: bytes, *, only_new: bool = True) -> None:
        where = (*self.at, *path)
        if not only_new and self.folder.read(where, name, limit=len(content)) == content:
            return
        if self.folder.write(where, name, content, only_new=only_new):
            self.written.add("/".join((*path, name)))
