"""Starting: a run is created, claimed in the same transaction, and executed."""

from __future__ import annotations

import msgspec

from onward.clock import Clock
from onward.engine.control.create import Creating
from onward.engine.control.requests import Start
from onward.engine.control.workdir import check_workdir
from onward.engine.lease.claims import Claims, Reply
from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.engine.log.write import applied
from onward.engine.loop.runner import Runner, Served
from onward.engine.loop.serving import Serving
from onward.engine.loop.stop import StopSwitch
from onward.machine.decide.requests import decide_claim
from onward.machine.definition import Definition
from onward.machine.plan.action import Action
from onward.machine.plan.planner import advance
from onward.pipeline.build import Pipeline


class Starting(msgspec.Struct, frozen=True):
    """Creates runs and executes them."""

    creating: Creating
    journal: Journal
    claims: Claims
    clock: Clock
    serving: Serving
    runner: Runner

    async def start(self, pipeline: Pipeline, start: Start, stop: StopSwitch | None = None) -> Folded:
        """Create a run, claim it and execute it until it stops."""
        definition = self.creating.definition(pipeline, start)
        handlers = self.serving.handlers_for(definition, start.simulation, start.interviewer)
        check_workdir(start.workdir, is_here=True)
        stop = stop or StopSwitch(clock=self.clock)
        claimed, action = await self._create(pipeline, definition, start, stop)
        if claimed.folded.run.is_final:  # no step of it needed more than a decision
            await self.runner.leave_files(definition, claimed.folded)
        return await self.runner.run(claimed, Served(definition, handlers), stop, action)

    async def _create(
        self, pipeline: Pipeline, definition: Definition, start: Start, stop: StopSwitch
    ) -> tuple[Reply, Action]:
        """Create a run and claim it; returns what to do first. The write is not kept while it runs.

        The first step is planned here, so that creating, claiming and starting it are one append.
        """
        variables = self.serving.variables
        run_id, created = await self.creating.first_event(pipeline, definition, start, variables)
        now_us = self.clock.now_us()
        run, _ = applied(None, (created,), run_id=run_id, at_us=now_us)
        claim = decide_claim(run, self.claims.holder_view())
        run, _ = applied(run, claim, run_id=run_id, at_us=now_us)
        ahead = advance(definition, run, (), now_us=now_us, stop_reason=stop.reason)
        events = (created, *claim, *ahead.events)
        creation = self.creating.creation(ahead.run, events, now_us, pipeline, start)
        claimed = await self.claims.create(run_id, self.journal.put(creation), events)
        return claimed, ahead.action
