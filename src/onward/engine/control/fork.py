"""Forking a run: a new run that shares its log up to a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onward.clock import Clock, Ids
from onward.engine.control.sources import Sources
from onward.engine.files.workspaces import Workspaces
from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.engine.log.terms import NO_TERMS, RequestTerms
from onward.engine.log.write import applied
from onward.engine.loop.serving import Serving
from onward.errors import InvalidInput
from onward.model.event import RunForked
from onward.model.ids import check_run_id
from onward.model.values.bounds import EVENT
from onward.model.values.namespace import check_given
from onward.model.values.value import copied
from onward.read.lookup import CHECKPOINT_KINDS


@dataclass(frozen=True, slots=True)
class Forking:
    """Creates forks."""

    journal: Journal
    clock: Clock
    ids: Ids
    serving: Serving
    sources: Sources
    workspaces: Workspaces

    async def fork(
        self,
        run_id: str,
        seq: int,
        *,
        changes: Mapping[str, Any] | None = None,
        by: str = "user",
        new_id: str | None = None,
        terms: RequestTerms = NO_TERMS,
    ) -> Folded:
        """A new run that shares another's log up to a checkpoint. The other run does not change."""
        changes = changes or {}
        check_given(changes)
        parent = await self._checkpoint(run_id, seq)
        # Whatever would refuse the fork when it runs must refuse it now, before it exists.
        self.serving.check_served(await self.sources.stored(parent.run), parent.run.simulation)
        now_us = self.clock.now_us()
        child = self.ids.run_id(now_us) if new_id is None else check_run_id(new_id)
        await self.workspaces.check_fork(parent.run, child)
        forked = RunForked(
            parent=parent.run.id,
            parent_seq=parent.position.seq,
            parent_hash=parent.position.hash.hex(),
            by=by,
            context=copied(changes),
        )
        run, stamped = applied(parent.run, (forked,), run_id=child, at_us=now_us)
        return await self.journal.create(
            run, stamped, at_us=now_us, append_id=self.ids.unique(), after=parent.position, terms=terms
        )

    async def _checkpoint(self, run_id: str, seq: int) -> Folded:
        """A run as it stood at one of its checkpoints; refuses any other event."""
        EVENT.check(seq, "the checkpoint")
        head = (await self.journal.load(run_id)).position.seq
        found = await self.journal.read(run_id, after=seq - 1, limit=1) if 1 <= seq <= head else ()
        if not found or found[0].kind not in CHECKPOINT_KINDS:
            raise InvalidInput(
                f"event {seq} of run {run_id} is not a checkpoint; `onward checkpoints {run_id}` lists them."
            )
        return await self.journal.load_at(run_id, seq)
