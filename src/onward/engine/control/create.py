"""New runs: what is asked for is checked, and becomes the first event of a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from onward.clock import Clock, Ids
from onward.engine.control.requests import Start
from onward.engine.control.sources import Sources
from onward.engine.log.journal import Creation, Journal
from onward.engine.loop.definitions import Definitions
from onward.engine.redacted import redacted_event
from onward.errors import InvalidInput
from onward.machine.definition import Definition
from onward.model.context import check_given, copied
from onward.model.events import IN_PLACE, Event, RunCreated, Workspace
from onward.model.ids import check_run_id
from onward.model.row import with_directory
from onward.model.run import Run
from onward.model.values import INSTANT, PRIORITY, checked_tags, shown
from onward.pipeline.build import Pipeline
from onward.version import VERSION

ON_OWNER_LOSS = ("requeue", "interrupt")
"""When the process that holds a run dies: another continues it, or a person decides."""


class NewWorkspaces(Protocol):
    """Finds the workspaces of new runs. A run without one never asks."""

    async def asked(self, pipeline: Pipeline, start: Start, run_id: str) -> Workspace | None:
        """The workspace that a new run is asked to have; refuses one that could not be used."""
        ...


class Creating(msgspec.Struct, frozen=True):
    """Prepares new runs; nothing is written."""

    journal: Journal
    clock: Clock
    ids: Ids
    definitions: Definitions
    sources: Sources
    workspaces: NewWorkspaces

    def definition(self, pipeline: Pipeline, start: Start) -> Definition:
        """The planner's view of the pipeline; a simulation script that does not fit it is refused."""
        definition = self.definitions.definition(pipeline)
        if start.simulation is not None and start.managed_by is None:  # a child plays its manager's script
            from onward.engine.control.script import check_script_fits

            check_script_fits(pipeline, definition, start.simulation, self.sources.read)
        return definition

    def creation(
        self, run: Run, events: Sequence[Event], at_us: int, pipeline: Pipeline, start: Start
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

    async def first_event(
        self, pipeline: Pipeline, definition: Definition, start: Start, variables: tuple[str, ...] = ()
    ) -> tuple[str, RunCreated]:
        """The id of the new run, and the event that creates it, without secrets.

        `variables` are those that its commands get, if they are known.
        """
        check_given(start.inputs)
        PRIORITY.check(start.priority, "priority")
        if start.on_owner_loss not in ON_OWNER_LOSS:
            raise InvalidInput(
                f"on_owner_loss is {shown(start.on_owner_loss)}; write {' or '.join(ON_OWNER_LOSS)}."
            )
        if start.wake_at_us is not None:
            INSTANT.check(start.wake_at_us, "the time at which the run is due, in microseconds,")
        run_id = self.ids.run_id(self.clock.now_us()) if start.run_id is None else check_run_id(start.run_id)
        is_asked = start.workspace is not None or definition.workspace != ""
        workspace = await self.workspaces.asked(pipeline, start, run_id) if is_asked else None
        in_place = workspace is not None and workspace.mode == IN_PLACE
        graph, simulation = pipeline.graph, start.simulation
        assert graph.start_id is not None  # a pipeline without errors has one
        created = RunCreated(
            pipeline=pipeline.name,
            pipeline_hash=pipeline.hash,
            start_node=graph.start_id,
            path=pipeline.path,
            context={**definition.mirrored, **copied(start.inputs)},
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
        )
        return run_id, redacted_event(self.journal.redactor, created)
