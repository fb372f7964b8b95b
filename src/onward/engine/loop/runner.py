"""Driving runs that this process owns: until they stop, and on with what a restart began."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from onward.clock import Clock, Ids
from onward.engine.control.interview import Interviewer
from onward.engine.control.sources import Sources
from onward.engine.files.run_files import RunFiles
from onward.engine.lease.claims import Claims
from onward.engine.log.journal import Folded, Journal
from onward.engine.loop.ports import Tools
from onward.engine.loop.run_loop import Drive
from onward.engine.loop.serving import Serving
from onward.engine.loop.stop import StopSwitch
from onward.errors import LeaseLost
from onward.handlers.port import Handler
from onward.machine.decide.requests import decide_claim
from onward.machine.definition import Definition
from onward.machine.plan.action import Action
from onward.model.event import Event
from onward.model.run import Run, RunStatus
from onward.store.port import Held, Leases

WORTH_HOLDING_S = 5.0
Handlers = Mapping[str, Handler]


@dataclass(frozen=True, slots=True)
class Driving:
    """What every way to a driven run comes to: started, resumed, answered or taken from the queue."""

    leases: Leases
    journal: Journal
    claims: Claims
    clock: Clock
    ids: Ids
    serving: Serving
    sources: Sources
    tools: Tools
    files: RunFiles | None

    async def served(self, run: Run, interviewer: Interviewer | None) -> tuple[Definition, Handlers]:
        """What a run that goes on as it is needs: its stored source, and a handler for every node."""
        definition = self.serving.definition(await self.sources.stored(run))
        return definition, self.serving.handlers_for(definition, run.simulation, interviewer)

    async def drive(
        self,
        folded: Folded,
        definition: Definition,
        handlers: Handlers,
        claimed_s: float,
        stop: StopSwitch | None,
    ) -> Folded:
        """Drive a run, if it is this process's to drive, and whatever a restart makes of it."""
        if folded.run.status is not RunStatus.RUNNING or folded.run.worker != self.leases.me:
            return folded
        stop = stop or StopSwitch(clock=self.clock)
        ended = await self.drive_one(folded, definition, handlers, claimed_s, stop)
        return await self.follow(ended, definition, handlers, stop)

    async def drive_one(
        self,
        folded: Folded,
        definition: Definition,
        handlers: Handlers,
        claimed_s: float,
        stop: StopSwitch,
        action: Action | None = None,
        patience_s: float | None = None,
    ) -> Folded:
        """Drive one run until it stops; if that ends before the run stopped, let go of it."""
        drive = Drive(self._tools_with(handlers), definition, folded, stop, patience_s)
        try:
            if self.files is not None and folded.run.token > 1:  # a first life has no files to go on with
                self.files.go_on(folded.run)
            ended = await drive.run(claimed_s=claimed_s, action=action)
            if ended.run.workspace is not None and ended.run.is_final:
                await self.tools.workspaces.close(ended.run)
        except LeaseLost:
            raise
        except (Exception, asyncio.CancelledError) as error:
            self.claims.dropped.drop(folded.lease, error)
            raise
        return ended

    def _tools_with(self, handlers: Handlers) -> Tools:
        return self.tools if handlers is self.tools.handlers else replace(self.tools, handlers=handlers)

    async def follow(
        self, ended: Folded, definition: Definition, handlers: Handlers, stop: StopSwitch
    ) -> Folded:
        """Go on with the run that a loop_restart began, unless this process stops or somebody else has it."""
        while ended.run.restarted_as is not None:
            run_id, claimed_s = ended.run.restarted_as, self.clock.awake_s()
            if stop.reason is not None:
                return await self.journal.load(run_id)
            ended, has_claimed = await self.claims.request(
                run_id, self._claiming_a_new_run, append_id=self.ids.unique()
            )
            if not has_claimed:
                break
            ended = await self.drive_one(ended, definition, handlers, claimed_s, stop)
        return ended

    def _claiming_a_new_run(self, current: Folded, held: Held) -> Sequence[Event]:
        if current.run.status is not RunStatus.QUEUED or current.run.token:
            return ()
        return decide_claim(current.run, self.claims.standing(current, held))

    async def go_on(self, folded: Folded, claimed_s: float, stop: StopSwitch) -> Folded:
        """Drive a run that was taken from the queue, as it is stored; a long wait goes back there."""
        try:
            definition = self.serving.definition(await self.sources.stored(folded.run))
            handlers = self.serving.handlers_for(definition, folded.run.simulation)
        except (Exception, asyncio.CancelledError) as error:
            self.claims.dropped.drop(folded.lease, error)
            raise
        # The run that a restart begins is queued: whoever has room takes it.
        return await self.drive_one(folded, definition, handlers, claimed_s, stop, patience_s=WORTH_HOLDING_S)
