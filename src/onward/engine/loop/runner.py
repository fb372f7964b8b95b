"""Executing runs that this process holds until they stop, and then the runs that restarts created."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from onward.engine.control.interview import Interviewer
from onward.engine.control.sources import Sources
from onward.engine.files.run_files import RunFiles
from onward.engine.lease.claims import Claims, Reply
from onward.engine.log.reader import Folded
from onward.engine.loop.parts import EngineParts
from onward.engine.loop.run_loop import RunLoop
from onward.engine.loop.serving import Serving
from onward.engine.loop.stop import StopSwitch
from onward.errors import LeaseLost
from onward.handlers.port import Handler
from onward.machine.decide.requests import HolderView, decide_claim
from onward.machine.definition import Definition
from onward.machine.lifecycle import RUNNING
from onward.machine.plan.action import Action
from onward.model.events import Event
from onward.model.run import Frozen, Run, RunStatus

WORTH_HOLDING_S = 5.0


class Served(Frozen, frozen=True):
    """A definition, and a handler for every node of it."""

    definition: Definition
    handlers: Mapping[str, Handler]


class Runner(msgspec.Struct, frozen=True):
    """Executes claimed runs, whether they were started, resumed, answered or taken from the queue."""

    claims: Claims
    serving: Serving
    sources: Sources
    parts: EngineParts
    files: RunFiles | None

    async def served(self, run: Run, interviewer: Interviewer | None = None) -> Served:
        """What executing a run needs: its stored definition, and handlers."""
        definition = self.serving.definition(await self.sources.stored(run))
        return Served(definition, self.serving.handlers_for(definition, run.simulation, interviewer))

    async def run(
        self, claimed: Reply, served: Served, stop: StopSwitch, action: Action | None = None
    ) -> Folded:
        """Execute a run, if the request claimed it, and the runs that restarts create.

        `action` is what was planned together with the claim, if anything was.
        """
        folded = claimed.folded
        # Only what this very request claimed: another task of this process may be executing the run.
        if claimed.claimed_s is None or folded.run.status is not RUNNING:
            return folded
        ended = await self._run(folded, claimed.claimed_s, served, stop, action=action)
        while ended.run.restarted_as is not None:
            if stop.reason is not None:
                return await self.parts.journal.load(ended.run.restarted_as)
            successor = await self.claims.request_observed(ended.run.restarted_as, _claim_a_new_run)
            if successor.claimed_s is None:
                return successor.folded
            ended = await self._run(successor.folded, successor.claimed_s, served, stop)
        return ended

    async def leave_files(self, definition: Definition, folded: Folded) -> None:
        """Write the files of a run that has ended in the append that created it."""
        if self.files is not None and self.parts.receipts is not None:
            self.files.open(definition, folded.run)
            await self.parts.receipts.write_all(definition, folded)

    async def run_from_queue(self, folded: Folded, claimed_s: float, stop: StopSwitch) -> Folded:
        """Execute a run that was taken from the queue, as it is stored; a long wait goes back there."""
        with self.claims.dropping(folded.lease):
            served = await self.served(folded.run)
        # The run that a restart creates is queued: any worker may take it.
        return await self._run(folded, claimed_s, served, stop, patience_s=WORTH_HOLDING_S)

    async def _run(
        self,
        folded: Folded,
        claimed_s: float,
        served: Served,
        stop: StopSwitch,
        *,
        action: Action | None = None,
        patience_s: float | None = None,
    ) -> Folded:
        """Execute one run until it stops; if that ends before the run stopped, drop its lease."""
        try:
            if self.files is not None:
                self.files.open(served.definition, folded.run)
            loop = RunLoop(
                self._parts_with(served.handlers),
                served.definition,
                folded,
                stop,
                claimed_s=claimed_s,
                patience_s=patience_s,
            )
            ended = await loop.run(action)
            if ended.run.workspace is not None and ended.run.is_final:
                await self.parts.workspaces.close(ended.run)
        except LeaseLost:
            raise
        except (Exception, asyncio.CancelledError) as error:
            self.claims.dropped.drop(folded.lease, error)
            raise
        return ended

    def _parts_with(self, handlers: Mapping[str, Handler]) -> EngineParts:
        return self.parts if handlers is self.parts.handlers else replace(self.parts, handlers=handlers)


def _claim_a_new_run(run: Run, holder_view: HolderView) -> Sequence[Event]:
    """Unless another process was first."""
    return decide_claim(run, holder_view) if run.status is RunStatus.QUEUED and not run.token else ()
