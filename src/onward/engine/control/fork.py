"""Forking a run: a new run that shares its log up to a checkpoint."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from onward.clock import Clock, Ids
from onward.engine.control.requests import Fork
from onward.engine.control.sources import Sources
from onward.engine.files.workspaces import Workspaces
from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.engine.log.write import applied
from onward.engine.loop.serving import Serving
from onward.engine.redacted import redacted_event
from onward.errors import InvalidInput
from onward.machine.decide.resume import pipeline_changed
from onward.model.context import check_given, copied
from onward.model.events import RunForked
from onward.model.ids import check_run_id
from onward.model.values import EVENT
from onward.read.lookup import CHECKPOINT_KINDS, checkpoint_before, no_place_named
from onward.store.port.log import RunLog


class Forking(msgspec.Struct, frozen=True):
    """Creates forks."""

    log: RunLog
    journal: Journal
    clock: Clock
    ids: Ids
    serving: Serving
    sources: Sources
    workspaces: Workspaces

    async def fork(
        self, run_id: str, fork: Fork, tell: Callable[[str], None] = lambda notice: None
    ) -> Folded:
        """A new run that shares another's log up to a checkpoint. The other run does not change.

        The definition is chosen as for a resume: the one at the checkpoint, unless a change is accepted.
        """
        check_given(fork.changes)
        now_us = self.clock.now_us()
        child = self.ids.run_id(now_us) if fork.new_id is None else check_run_id(fork.new_id)
        made = await self.journal.find_made(child, fork.terms)
        if made is not None:  # the first answer, whatever became of the file since
            return made
        parent = await self._checkpoint(run_id, await self._seq(run_id, fork))
        pipeline, notice = await self.sources.to_continue(
            parent.run, accept_changes=fork.accept_changes, original=fork.original, verb="replay"
        )
        # Whatever would refuse the fork when it runs must refuse it now, before it exists.
        self.serving.check_served(pipeline, parent.run.simulation)
        await self.workspaces.check_fork(parent.run, child)
        forked = RunForked(
            parent=parent.run.id,
            parent_seq=parent.position.seq,
            parent_hash=parent.position.hash.hex(),
            by=fork.by,
            context=copied(fork.changes),
        )
        forked = redacted_event(self.journal.redactor, forked)
        changed = pipeline_changed(parent.run, pipeline.hash, by=fork.by)
        run, events = applied(parent.run, (forked, *changed), run_id=child, at_us=now_us)
        creation = self.journal.creation(
            run,
            events,
            at_us=now_us,
            append_id=self.ids.unique(),
            after=parent.position,
            token=parent.run.token,
            blobs={pipeline.hash: pipeline.source.encode()} if changed else None,
            terms=fork.terms,
        )
        created = await self.journal.put(creation)
        if notice:
            tell(notice)
        return created

    async def _seq(self, run_id: str, fork: Fork) -> int:
        """The checkpoint that is meant."""
        if fork.checkpoint is not None and fork.from_step is not None:
            raise InvalidInput("a checkpoint and --from contradict each other; say one.")
        if fork.checkpoint is not None:
            EVENT.check(fork.checkpoint, "the checkpoint")
            return fork.checkpoint
        parent = await self.journal.load(run_id)
        if fork.from_step is None:
            raise await no_place_named(self.log, run_id, parent.position.seq)
        return await checkpoint_before(self.log, parent.run, fork.from_step)

    async def _checkpoint(self, run_id: str, seq: int) -> Folded:
        """A run as it stood at one of its checkpoints; refuses any other event."""
        head = (await self.journal.load(run_id)).position.seq
        found = await self.journal.read(run_id, after=seq - 1, limit=1) if 1 <= seq <= head else ()
        if not found or found[0].kind not in CHECKPOINT_KINDS:
            raise InvalidInput(
                f"event {seq} of run {run_id} is not a checkpoint; `onward checkpoints {run_id}` lists them."
            )
        return await self.journal.load_at(run_id, seq)
