"""Starting: a run is created, and either claimed in the same transaction or left in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from onward.clock import Clock, Ids
from onward.engine.control.requests import Start
from onward.engine.control.script import check_script_fits
from onward.engine.control.sources import Sources
from onward.engine.control.workdir import check_workdir
from onward.engine.files.workspaces import Workspaces
from onward.engine.lease.claims import Claims
from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.engine.log.write import applied
from onward.engine.loop.runner import Runner, Served
from onward.engine.loop.serving import Serving
from onward.engine.loop.stop import StopSwitch
from onward.machine.decide.claim import decide_claim
from onward.machine.definition import Definition
from onward.machine.plan.advance import advance
from onward.model.event import Event, RunCreated
from onward.model.ids import check_run_id
from onward.model.needs import with_directory
from onward.model.run import Run
from onward.model.values.bounds import PRIORITY
from onward.model.values.namespace import check_given
from onward.model.values.value import copied
from onward.model.workspace import IN_PLACE
from onward.pipeline.build import Pipeline
from onward.version import VERSION


@dataclass(frozen=True, slots=True)
class Starting:
    """Creates runs."""

    journal: Journal
    claims: Claims
    clock: Clock
    ids: Ids
    serving: Serving
    sources: Sources
    workspaces: Workspaces
    runner: Runner

    async def start(self, pipeline: Pipeline, start: Start, stop: StopSwitch | None = None) -> Folded:
        """Create a run, claim it and execute it until it stops."""
        definition = self._definition(pipeline, start)
        handlers = self.serving.handlers_for(definition, start.simulation, start.interviewer)
        check_workdir(start.workdir, is_here=True)
        run_id, created = await self._created(pipeline, definition, start)
        created = replace(created, variables=self.serving.variables)
        stop = stop or StopSwitch(clock=self.clock)
        now_us = self.clock.now_us()
        run, first = applied(None, (created,), run_id=run_id, at_us=now_us)
        claim = decide_claim(run, self.claims.holder_view())
        run, second = applied(run, claim, run_id=run_id, at_us=now_us)
        # The first step is planned now, so that creating, claiming and starting it are one append.
        ahead = advance(definition, run, (), now_us=now_us, stop_reason=stop.reason)
        stamped = [*first, *second, *((event, run.token) for event in ahead.events)]
        creation = self._create(ahead.run, stamped, now_us, pipeline, start)
        claimed = await self.claims.create(run_id, creation, [event for event, _ in stamped])
        if claimed.folded.run.is_final:  # no step of it needed more than a decision
            await self.runner.leave_files(definition, claimed.folded)
        return await self.runner.run(claimed, Served(definition, handlers), stop, ahead.action)

    async def submit(self, pipeline: Pipeline, start: Start) -> Folded:
        """Create a run and leave it queued for whichever worker claims it. Its directory may be elsewhere."""
        check_workdir(start.workdir, is_here=False)
        run_id, created = await self._created(pipeline, self._definition(pipeline, start), start)
        now_us = self.clock.now_us()
        run, stamped = applied(None, (created,), run_id=run_id, at_us=now_us)
        return await self._create(run, stamped, now_us, pipeline, start)

    def _definition(self, pipeline: Pipeline, start: Start) -> Definition:
        """The planner's view of the pipeline; a simulation script that does not fit it is refused."""
        definition = self.serving.definition(pipeline)
        if start.simulation is not None and start.managed_by is None:  # a child plays its manager's script
            check_script_fits(pipeline, definition, start.simulation, self.sources.read)
        return definition

    async def _create(
        self, run: Run, stamped: Sequence[tuple[Event, int]], at_us: int, pipeline: Pipeline, start: Start
    ) -> Folded:
        return await self.journal.create(
            run,
            stamped,
            at_us=at_us,
            # An id that was created for this run needs no append id; the caller's own may be sent twice.
            append_id=None if start.run_id is None else self.ids.unique(),
            blobs={pipeline.hash: pipeline.source.encode()},
            terms=start.terms,
        )

    async def _created(
        self, pipeline: Pipeline, definition: Definition, start: Start
    ) -> tuple[str, RunCreated]:
        check_given(start.inputs)
        PRIORITY.check(start.priority, "priority")
        run_id = self.ids.run_id(self.clock.now_us()) if start.run_id is None else check_run_id(start.run_id)
        is_asked = start.workspace is not None or definition.workspace != ""
        workspace = await self.workspaces.asked(pipeline, start, run_id) if is_asked else None
        in_place = workspace is not None and workspace.mode == IN_PLACE
        graph, simulation = pipeline.graph, start.simulation
        assert graph.start_id is not None  # a pipeline without errors has one
        return run_id, RunCreated(
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
            needs=with_directory(self.serving.needs(definition, simulation), start.workdir),
            max_running=definition.max_running,
            managed_by=start.managed_by,
            workdir=start.workdir,
            workspace=workspace,
            trims_output=True,
        )
