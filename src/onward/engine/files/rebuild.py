"""A run's files, made from its log: what lazy steps left to be made on demand, and what was lost."""

from __future__ import annotations

import msgspec

from onward.engine.control.sources import Sources
from onward.engine.files.receipts import Definitions, leavings, put
from onward.errors import InvalidInput, RunNotFound, StoreCorrupt
from onward.machine.definition import AGENT
from onward.machine.fold.apply import apply
from onward.model.context import as_told, expand
from onward.model.events import AttemptFailed, Event, StepFinished, StepStarted
from onward.model.ids import branch_of
from onward.model.run import OpenStep, Run
from onward.read.lookup import log_pages
from onward.read.view import instant
from onward.receipts import run_directory
from onward.receipts.folder import (
    ARTIFACTS,
    CHECKPOINT,
    MANIFEST,
    PROMPT,
    RESPONSE,
    STATUS,
    Folder,
    Path,
    artifact_name,
    attempt_path,
)
from onward.receipts.run_directory import MANIFEST_BYTES_MAX, said_by
from onward.receipts.trail import Trail
from onward.store.codec import check_chain, unseal
from onward.store.port.log import ORIGIN
from onward.store.port.store import Store


async def rebuild(store: Store, sources: Sources, known: Run, folder: Folder, at: Path) -> list[str]:
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
        work.write((ARTIFACTS,), artifact_name(id), content, only_new=False)
    return sorted(work.written)


def _check_free(folder: Folder, at: Path, run: Run, database: str) -> None:
    """Refuse a directory in which other things are than files of this run."""
    if not folder.names(at):
        return
    said = said_by(folder.read(at, MANIFEST, limit=MANIFEST_BYTES_MAX))
    start_time = instant(run.created_at_us) or ""
    if not run_directory.is_of(said, run, start_time=start_time, database=database):
        raise InvalidInput(f"{folder.path(*at)} holds files that are not this run's; name another directory.")


class _Work(msgspec.Struct):
    """Files being made while a log is read."""

    definitions: Definitions
    folder: Folder
    at: Path
    database: str
    written: set[str] = msgspec.field(default_factory=set)
    _paths: dict[str, Path] = msgspec.field(default_factory=dict)
    _finished: list[run_directory.Told] = msgspec.field(default_factory=list)

    def sign(self, run: Run) -> None:
        """Write the manifest first: the directory must say whose it is even if this is cut off."""
        manifest = run_directory.manifest(
            run, start_time=instant(run.created_at_us) or "", database=self.database
        )
        if self.folder.write_new(self.at, MANIFEST, manifest):
            self.written.add(MANIFEST)
        else:
            self.write((), MANIFEST, manifest, only_new=False)

    async def take(self, run: Run, event: Event) -> None:
        """What one event leaves; `run` is the state after it."""
        match event:
            case StepStarted():
                opened = run.open_steps[event.step]
                path = self._paths[event.step] = attempt_path(event.step, event.attempt, opened.tries)
                prompt = await self._prompt(run, opened)
                if prompt is not None:
                    self.write(path, PROMPT, prompt.encode())
            case AttemptFailed() if event.step in self._paths:
                self.write(self._paths[event.step], STATUS, run_directory.failed_status(event))
            case StepFinished():
                self._finished.append(run_directory.told(event))
                path = self._paths.pop(event.step, ())
                if path:
                    self._outcome(run, event, path)

    def _outcome(self, run: Run, event: StepFinished, path: Path) -> None:
        if event.response:
            self.write(path, RESPONSE, event.response.encode())
        self.write(
            path, STATUS, run_directory.finished_status(event, run.branches[branch_of(event.step)].context)
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
        start, now = instant(run.created_at_us) or "", instant(run.updated_at_us) or ""
        manifest = run_directory.manifest(run, start_time=start, database=self.database)
        self.write((), MANIFEST, manifest, only_new=False)
        if self._finished:
            content = run_directory.checkpoint(run, self._finished, timestamp=now)
            self.write((), CHECKPOINT, content, only_new=False)

    def write(self, path: Path, name: str, content: bytes, *, only_new: bool = True) -> None:
        where = (*self.at, *path)
        if not only_new and self.folder.read(where, name, limit=len(content)) == content:
            return
        if self.folder.write(where, name, content, only_new=only_new):
            self.written.add("/".join((*path, name)))
