"""New runs: what is asked for is checked, and becomes the first event of a log.

`Submitting` leaves them in the queue, one or very many. Quick commands do this without an engine, so nothing
here imports what executes runs.

A simulation script must fit its pipeline: every entry is for a node that can be played.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Protocol

import msgspec

from onward.clock import Clock, Ids
from onward.engine.child import is_steering
from onward.engine.control.limits import LimitChanges
from onward.engine.control.requests import StartRequest
from onward.engine.definitions import DefinitionCache, check_workdir
from onward.engine.journal import Creation, Journal
from onward.engine.log import Folded, applied, redacted_event
from onward.engine.sources import Sources, beside
from onward.errors import InvalidInput, InvalidPipeline, InvalidScript, OnwardError, Refused, RefusedInList
from onward.handlers.simulate import check_fields, check_script
from onward.machine.definition import AGENT, EXIT, GATE, MANAGER, START, TOOL, Definition, is_simulated
from onward.machine.path import likely_path
from onward.model.context import check_given, copied
from onward.model.events import IN_PLACE, Event, RunCreated, Workspace
from onward.model.ids import check_run_id, is_display_id
from onward.model.limits import raised_visits
from onward.model.row import with_directory
from onward.model.run import Run, Simulation
from onward.model.values import INSTANT, PRIORITY, checked_tags, shown
from onward.pipeline.build import Pipeline
from onward.pipeline.inputs import take_inputs
from onward.store.port.runs import Runs
from onward.version import VERSION

ON_OWNER_LOSS = ("requeue", "interrupt")
"""When the process that holds a run dies: another continues it, or a person decides."""


class NewWorkspaces(Protocol):
    """Finds the workspaces of new runs. A run without one never asks."""

    async def asked(self, pipeline: Pipeline, start: StartRequest, run_id: str) -> Workspace | None:
        """The workspace that a new run is asked to have; refuses one that could not be used."""
        ...


async def check_new_id(runs: Runs, run_id: str) -> str:
    """The id that a caller chose for a new run; InvalidInput if people already call another run by it.

    Ids of the same form stay possible: `parent` has it, and no later run can take the name from it, since an
    id is looked up before a display id.
    """
    check_run_id(run_id)
    for listed in await runs.find(run_id) if is_display_id(run_id) else ():
        if listed.row.id != run_id and listed.row.display_id == run_id:
            raise InvalidInput(
                f"{run_id!r} cannot be the id of a new run: it is the display id of another run (`onward "
                f"show {run_id}`); choose another id."
            )
    return run_id


class Creating(msgspec.Struct, frozen=True):
    """Prepares new runs; nothing is written."""

    journal: Journal
    clock: Clock
    ids: Ids
    definitions: DefinitionCache
    sources: Sources
    workspaces: NewWorkspaces
    runs: Runs
    limits: LimitChanges

    def definition(self, pipeline: Pipeline, start: StartRequest) -> Definition:
        """The planner's view of the pipeline; a simulation script that does not fit it is refused."""
        definition = self.definitions.definition(pipeline)
        if start.simulation is not None and start.managed_by is None:  # a child plays its manager's script
            check_script_fits(pipeline, definition, start.simulation, self.sources.read)
        return definition

    def creation(
        self, run: Run, events: Sequence[Event], at_us: int, pipeline: Pipeline, start: StartRequest
    ) -> Creation:
        """The first write of a run, ready to be stored."""
        return self.journal.creation(
            run,
            events,
            at_us=at_us,
            # An id that was created for this run needs no append id; the caller's own may be sent twice.
            append_id=None if start.run_id is None else self.ids.unique(),
            blobs={pipeline.hash: pipeline.source.encode()},
            terms=start.terms,
        )

    async def raise_limits(self, creation: Creation, start: StartRequest) -> None:
        """Raise the limits that a new run is to have, before it exists: its first call may need them."""
        if start.raises:
            await self.journal.check_free(creation)
            await self.limits.raise_for(creation.folded.run, start.raises, by="user")

    async def first_event(
        self, pipeline: Pipeline, definition: Definition, start: StartRequest, variables: tuple[str, ...] = ()
    ) -> tuple[str, RunCreated]:
        """The id of the new run, and the event that creates it, without secrets.

        `variables` are those that its commands get, if they are known.
        """
        check_given(start.inputs)
        by = start.managed_by
        # A managing step hands all of its context on; a flow says what it means.
        inputs = take_inputs(pipeline.graph, start.inputs, may_be_more=by is not None and not by.call)
        PRIORITY.check(start.priority, "priority")
        if start.on_owner_loss not in ON_OWNER_LOSS:
            raise InvalidInput(
                f"on_owner_loss is {shown(start.on_owner_loss)}; write {' or '.join(ON_OWNER_LOSS)}."
            )
        if start.wake_at_us is not None:
            INSTANT.check(start.wake_at_us, "the time at which the run is due, in microseconds,")
        run_id = (
            self.ids.run_id(self.clock.now_us())
            if start.run_id is None
            else await check_new_id(self.runs, start.run_id)
        )
        is_asked = start.workspace is not None or definition.workspace != ""
        workspace = await self.workspaces.asked(pipeline, start, run_id) if is_asked else None
        in_place = workspace is not None and workspace.mode == IN_PLACE
        graph, simulation = pipeline.graph, start.simulation
        assert graph.start_id is not None  # a pipeline without errors has one
        context = {**definition.mirrored, **copied(inputs)}
        created = RunCreated(
            pipeline=pipeline.name,
            pipeline_hash=pipeline.hash,
            start_node=graph.start_id,
            path=pipeline.path,
            context=context,
            on_owner_loss=start.on_owner_loss,
            exclusive_key=start.exclusive_key or (workspace.repository if workspace and in_place else None),
            simulation=None if simulation is None else dict(simulation.script),
            simulates_tools=simulation is not None and not simulation.real_tools,
            version=VERSION,
            priority=start.priority,
            needs=with_directory(self.definitions.needs(definition, simulation), start.workdir),
            max_running=definition.max_running,
            managed_by=start.managed_by,
            chat=start.chat,
            project=start.project,
            charged_to=start.charged_to,
            workdir=start.workdir,
            workspace=workspace,
            trims_output=True,
            variables=variables,
            tags=checked_tags(start.tags),
            wake_at_us=start.wake_at_us,
            pipeline_version=pipeline.version,
            max_visits=raised_visits(start.raises),
            plan=likely_path(definition, graph.start_id, context),
        )
        return run_id, redacted_event(self.journal.redactor, created)


TOGETHER = 1_024
"""How many creations wait at a time; the store commits as many of them together as it can."""


class Submitting(msgspec.Struct, frozen=True):
    """Creates runs and executes none; whichever worker claims them does. Directories may be elsewhere."""

    creating: Creating
    journal: Journal
    clock: Clock

    async def submit(self, pipeline: Pipeline, start: StartRequest) -> Folded:
        """Create a run and leave it queued."""
        creation = await self._creation(pipeline, start)
        await self.creating.raise_limits(creation, start)
        return await self.journal.put(creation)

    async def submit_many(self, asked: Sequence[tuple[Pipeline, StartRequest]]) -> list[Folded]:
        """Create runs, and answer in the same order. All are checked before the first is created.

        RefusedInList says which one cannot be. If the store fails halfway, some are created and some are not;
        those with a key can be sent again.
        """
        creations: list[Creation] = []
        for number, (pipeline, start) in enumerate(asked):
            try:
                creations.append(await self._creation(pipeline, start))
            except OnwardError as error:
                raise RefusedInList(number, error) from error
        _check_different(creations)
        await self._check_free(creations)
        for creation, (_, start) in zip(creations, asked, strict=True):
            await self.creating.raise_limits(creation, start)
        return await self._put(creations)

    async def _creation(self, pipeline: Pipeline, start: StartRequest) -> Creation:
        check_workdir(start.workdir, is_here=False)
        definition = self.creating.definition(pipeline, start)
        run_id, created = await self.creating.first_event(pipeline, definition, start)
        now_us = self.clock.now_us()
        run, events = applied(None, (created,), run_id=run_id, at_us=now_us)
        return self.creating.creation(run, events, now_us, pipeline, start)

    async def _check_free(self, creations: Sequence[Creation]) -> None:
        """Refuse ids of the caller's own that other runs have; no other process can choose the rest."""
        for number, creation in enumerate(creations):
            if creation.append_id is not None:
                try:
                    await self.journal.check_free(creation)
                except OnwardError as error:
                    raise RefusedInList(number, error) from error

    async def _put(self, creations: Sequence[Creation]) -> list[Folded]:
        """Store them, as many in one transaction as the store allows. If one fails, the others are stored."""
        folded: list[Folded] = []
        for first in range(0, len(creations), TOGETHER):
            some = creations[first : first + TOGETHER]
            answers = await asyncio.gather(*map(self.journal.put, some), return_exceptions=True)
            for number, answer in enumerate(answers, first):
                if isinstance(answer, Refused):  # another process took the id since it was checked
                    raise RefusedInList(number, answer, is_any_created=True) from answer
                if isinstance(answer, BaseException):
                    raise answer
                folded.append(answer)
        return folded


def _check_different(creations: Sequence[Creation]) -> None:
    seen: dict[str, int] = {}
    for number, creation in enumerate(creations):
        first = seen.setdefault(creation.write.run_id, number)
        if first != number:
            what = (
                f"the run id {creation.write.run_id!r}"
                if creation.terms.key is None
                else (f"the key {creation.terms.key!r}")
            )
            raise RefusedInList(number, InvalidInput(f"{what} belongs to an earlier run in the list."))


CHILD = "stack.child_dotfile"
Read = Callable[[str], Pipeline]
"""Reads a pipeline from a file."""
_WHY = {
    START: "is the start of the run; nothing is executed there",
    EXIT: "is the exit of the run; nothing is executed there",
    GATE: "is a gate, which --answers answers",
    MANAGER: "manages another run; write entries for the nodes of that pipeline",
}


def check_script_fits(pipeline: Pipeline, definition: Definition, simulation: Simulation, read: Read) -> None:
    """Refuse a script with an entry that no node of the pipeline, or of one that it manages, would play."""
    script = check_script(simulation.script)
    if not script:
        return
    cast = cast_of(pipeline, definition, read)
    for node, entries in script.items():
        kinds = cast.kinds.get(node)
        if kinds is None:
            if cast.is_whole:
                raise _unknown(node, cast)
            continue
        played = {kind for kind in kinds if is_simulated(simulation, kind)}
        if not played:
            raise InvalidScript((node,), _why_not(kinds, simulation))
        for number, entry in enumerate(entries):
            if len(played) == 1:
                check_fields(entry, (node, number), is_tool=played == {TOOL})


def _unknown(node: str, cast: Cast) -> InvalidScript:
    near = get_close_matches(node, cast.kinds, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return InvalidScript((node,), f"there is no such node{hint}")


def _why_not(kinds: set[str], simulation: Simulation) -> str:
    kind = min(kinds)
    if is_simulated(Simulation(script=simulation.script), kind):
        return "is executed with --real-tools; leave it out of the script"
    return _WHY.get(kind, f"is a {kind} node, which executes nothing")


class Cast(msgspec.Struct):
    """The nodes of a pipeline and of those that it manages, with their kinds.

    A manager that asks a model for instructions counts as an agent. `is_whole`: every file could be read.
    """

    kinds: dict[str, set[str]] = msgspec.field(default_factory=dict)
    is_whole: bool = True


def cast_of(pipeline: Pipeline, definition: Definition, read: Read) -> Cast:
    """All nodes that a simulation of the pipeline may come to."""
    cast = Cast()
    _add(cast, pipeline, definition, read, {pipeline.path})
    return cast


def _add(cast: Cast, pipeline: Pipeline, definition: Definition, read: Read, known: set[str | None]) -> None:
    for node_id, node in definition.graph.nodes.items():
        kind = definition.kind(node_id)
        is_asking = kind == MANAGER and is_steering(node)
        cast.kinds.setdefault(node_id, set()).add(AGENT if is_asking else kind)
    for path in _children(pipeline, definition):
        if path in known:
            continue
        known.add(path)
        try:
            child = read(path)
        except (InvalidInput, InvalidPipeline):
            cast.is_whole = False  # it may be written while the run runs
            continue
        _add(cast, child, Definition(child.graph), read, known)


def _children(pipeline: Pipeline, definition: Definition) -> Iterator[str]:
    for node in definition.managers:
        written = node.text(CHILD) or definition.graph.text(CHILD)
        if written:
            yield beside(pipeline.path, written)
