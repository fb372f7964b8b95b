"""Where the pipeline of a run comes from: the store, a file, or the registry.

A run continues with the definition it started with, unless a person accepted another. Registered pipelines
are checked when they are added, and found by name when runs are created.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches

import msgspec
from msgspec.structs import replace

from onward.errors import HistoryCorrupt, InvalidInput, InvalidPipeline, PipelineNotFound, Refused
from onward.model.gate import Choice
from onward.model.ids import Wanted, node_of
from onward.model.run import Run
from onward.model.values import Variables
from onward.pipeline.build import Pipeline, Transform, build, changed_nodes
from onward.pipeline.flow_source import flow_place
from onward.pipeline.purpose import Purpose, purpose_of
from onward.pipeline.rules.check import REGISTERED, RULES, Rule
from onward.pipeline.source import SOURCE_BYTES_MAX, decode
from onward.pipeline.vocabulary import is_near
from onward.store.port.retention import Blobs, RegisteredPipeline, RegisteredVersion
from onward.store.port.store import Store

STORED_MAX = 64


class Sources(msgspec.Struct, frozen=True):
    """Where definitions come from, and how they are prepared: the same way for run, resume and replay."""

    blobs: Blobs
    transforms: Sequence[Transform]
    known_types: Collection[str]
    rules: Sequence[Rule] = RULES
    _stored: dict[tuple[str, str], Pipeline] = msgspec.field(default_factory=dict)

    def prepare(self, source: str, file: str, variables: Variables | None = None) -> Pipeline:
        """A pipeline from its text. `variables` are those of this process, if it is to run it."""
        return build(
            source,
            file=file,
            transforms=self.transforms,
            known_types=self.known_types,
            rules=self.rules,
            variables=variables,
        )

    def read(self, path: str) -> Pipeline:
        """A pipeline from a file."""
        # The path is kept absolute, so that a resume finds the file from another directory.
        return replace(self.prepare(read_source(path), path), path=os.path.abspath(path))

    async def stored(self, run: Run) -> Pipeline:
        """The definition that is stored with the run, read once for all of its runs.

        It was checked when the run was created. Rules that were added since, or that only this process has,
        do not apply.
        """
        file = run.path or f"<{run.pipeline}>"
        found = self._stored.get((run.pipeline_hash, file))
        if found is None:
            content = await self.blobs.find(run.pipeline_hash)
            if content is None:
                why = f"the pipeline source {run.pipeline_hash} is missing or damaged"
                raise HistoryCorrupt(run.id, 1, why)
            found = build(content.decode(), file=file, transforms=self.transforms, rules=())
            if len(self._stored) >= STORED_MAX:
                self._stored.clear()
            self._stored[run.pipeline_hash, file] = found
        return found

    async def to_continue(
        self,
        run: Run,
        *,
        accept_changes: bool,
        original: bool,
        verb: str = "resume",
        keeps_gates: bool = True,
    ) -> tuple[Pipeline, str]:
        """The definition to continue with, and a notice for the person, or an empty string.

        `verb` is what a refusal tells the person to do again: resume or replay. Without `keeps_gates` the
        open questions of the run are withdrawn, and it does not matter where their answers lead.
        """
        if original or run.path is None or flow_place(run.path) is not None:
            return await self.stored(run), _kept(run) if accept_changes else ""
        try:
            current = _read_if_there(run.path)
        except InvalidPipeline as error:
            raise _unusable(run, error, verb) from None
        if current is None:
            notice = f"{run.path} no longer exists; continuing with the source stored with the run."
            return await self.stored(run), notice
        if current.encode() == await self.blobs.find(run.pipeline_hash):
            return await self.stored(run), ""
        try:
            new = self.prepare(current, run.path)
        except InvalidPipeline as error:
            raise _unusable(run, error, verb) from None
        check_change(
            run, await self.stored(run), new, accepted=accept_changes, verb=verb, keeps_gates=keeps_gates
        )
        return new, ""


def _unusable(run: Run, error: InvalidPipeline, verb: str) -> InvalidPipeline:
    """The errors of a changed file, with the way to do without it."""
    changed = f"{run.path} changed since run {run.id} started and cannot be used as it is; correct it"
    return InvalidPipeline(error.diagnostics, f"{changed}, or {verb} with --original for the stored source.")


def _kept(run: Run) -> str:
    """Says to whoever accepts changes that a registered pipeline has none; else empty."""
    if run.pipeline_version is None:
        return ""
    kept = f"{run.pipeline}@{run.pipeline_version}"
    return f"the run keeps {kept}, the version that it started with; start a new run for another version."


def check_change(
    run: Run, old: Pipeline, new: Pipeline, *, accepted: bool, verb: str, keeps_gates: bool = True
) -> None:
    """Refuse a change that no one has accepted, or that lacks a node which the run still needs."""
    changed = changed_nodes(old.graph, new.graph)
    what = ", ".join(changed) or "only comments, layout or graph attributes"
    if not accepted:
        raise Refused(
            "pipeline_changed",
            f"{run.path} changed since run {run.id} started (was {old.hash[:12]}, is {new.hash[:12]}; "
            f"changed: {what}); {verb} with --accept-changes, or with --original for the stored source.",
            details={"was": old.hash, "is": new.hash, "changed": list(changed)},
        )
    ahead = [branch.next_node for branch in run.branches.values() if branch.next_node]
    ahead += [parallel.join for parallel in run.parallels.values() if parallel.join]
    if keeps_gates:
        ahead += [choice.to for choice in _ahead_of_gates(run) if choice.to]
    recorded = dict.fromkeys((*map(node_of, (*run.visits, *run.outcomes)), *ahead))
    gone = [node for node in recorded if node not in new.graph.nodes]
    if gone:
        raise Refused(
            "pipeline_changed",
            f"{run.path} no longer has nodes that run {run.id} needs: {', '.join(gone)}; put them back, or "
            f"{verb} with --original.",
            details={"was": old.hash, "is": new.hash, "missing": gone},
        )


def _ahead_of_gates(run: Run) -> Iterator[Choice]:
    """The choices of open questions, and those that were taken."""
    for gate in run.gates.values():
        yield from gate.choices if gate.decided is None else (gate.decided,)


def is_source(text: str) -> bool:
    """Whether it is the text of a pipeline, and not the path of a file."""
    return "{" in text or "\n" in text or not text.strip()


def beside(path: str | None, written: str) -> str:
    """A path as the pipeline file at `path` means it: from the directory that the file is in."""
    return os.path.abspath(os.path.join(os.path.dirname(path) if path else "", written))


def read_source(path: str) -> str:
    """The text of a pipeline file."""
    if path.endswith(".py") and os.path.isfile(path):
        raise InvalidInput(
            f"{path} is a Python file, not a graph; to run one of its flows, write {path}:FLOW."
        )
    if (place := flow_place(path)) is not None and os.path.isfile(place.file):
        raise InvalidInput(f"{path} is a flow, but this command takes graphs; name a DOT file.")
    found = _read_if_there(path)
    if found is None:
        meant = "".join(f"; did you mean {near}?" for near in near_file(path)) or "."
        raise InvalidInput(f"cannot read the pipeline {path}: there is no such file{meant}")
    return found


def near_file(path: str) -> Sequence[str]:
    """The file beside it that a path without a file nearly names, if there is one."""
    directory, name = os.path.split(path)
    try:
        names = sorted(os.listdir(directory or "."))
    except OSError:
        return ()
    near = [one for one in names if one == f"{name}.dot" or is_near(name, one)]
    return [os.path.join(directory, one) for one in near[:1]]


def _read_if_there(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            # One byte more than allowed: an endless file is refused without being read to its end.
            return decode(file.read(SOURCE_BYTES_MAX + 1), path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"cannot read the pipeline {path}: {error.strerror}.") from None


NEAR_MAX = 3
LOOKED_AT_MAX = 10_000
PURPOSES_MAX = 1_000


class Registry(msgspec.Struct, frozen=True):
    """The registered pipelines of a store, prepared as every definition is."""

    store: Store
    sources: Sources
    _purposes: dict[str, Purpose] = msgspec.field(default_factory=dict)

    def check(self, source: str, file: str) -> Pipeline:
        """A pipeline that can be registered; it is refused for what it refers to beside its file."""
        rules = [*self.sources.rules, *REGISTERED]
        return replace(self.sources, rules=rules).prepare(source, file)

    async def find(self, wanted: Wanted, variables: Variables | None = None) -> Pipeline:
        """The definition of a new run. `variables` are those of this process, if it is to run it."""
        version = await self.version(wanted)
        pipeline = self.sources.prepare(await self.source(version), _named(version), variables)
        return replace(pipeline, name=version.name, path=None, version=version.version)

    async def pipeline(self, name: str) -> RegisteredPipeline:
        """The name, which is registered."""
        found = await self.store.pipelines.find(name)
        if found is None:
            raise PipelineNotFound(name, near=await self._near(name))
        if found.enabled is None:
            raise PipelineNotFound(name, removed_by=found.changed_by)
        return found

    async def version(self, wanted: Wanted) -> RegisteredVersion:
        """The version that is meant; without a number, the enabled one."""
        pipeline = await self.pipeline(wanted.name)
        number = pipeline.enabled if wanted.version is None else wanted.version
        found = await self.store.pipelines.versions(wanted.name, upto=number, limit=1)
        if not found or found[0].version != number:
            raise PipelineNotFound(str(wanted), newest=pipeline.newest)
        return found[0]

    async def source(self, version: RegisteredVersion) -> str:
        """The source of a version."""
        content = await self.store.blobs.find(version.hash)
        if content is None:
            raise InvalidInput(
                f"the source of {_named(version)} is missing or damaged; add it again with "
                f"`onward pipelines add FILE --name {version.name}`."
            )
        return content.decode()

    async def purpose(self, version: RegisteredVersion) -> Purpose:
        """Which messages a version is for, read once for all messages. It was checked when it was added."""
        found = self._purposes.get(version.hash)
        if found is None:
            source = await self.source(version)
            pipeline = build(source, file=_named(version), transforms=self.sources.transforms, rules=())
            if len(self._purposes) >= PURPOSES_MAX:
                self._purposes.clear()
            found = self._purposes[version.hash] = purpose_of(pipeline.graph)
        return found

    async def _near(self, name: str) -> list[str]:
        names = [one.name for one in await self.store.pipelines.list(limit=LOOKED_AT_MAX)]
        return get_close_matches(name, names, n=NEAR_MAX)


def _named(version: RegisteredVersion) -> str:
    return str(Wanted(version.name, version.version))
