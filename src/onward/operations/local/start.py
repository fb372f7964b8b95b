"""New runs, by an engine that executes nothing of them."""

from __future__ import annotations

import msgspec

from onward.engine.control.requests import Fork
from onward.engine.engine import Engine
from onward.operations.local.look import run_state
from onward.operations.local.submit import LocalSubmit
from onward.operations.local.terms import run_id_of, terms_of
from onward.operations.replies.decisions import Forked, Submitted, SubmittedRuns
from onward.operations.requests.new_runs import ForkRun, SubmitRun, SubmitRuns
from onward.read.lookup import find_run


class LocalStart(msgspec.Struct, frozen=True):
    """Makes runs through one engine; a worker executes them."""

    engine: Engine

    async def submit_run(self, request: SubmitRun) -> Submitted:
        """Create a run and leave it queued for whichever worker claims it."""
        return await self._submit.submit_run(request)

    async def submit_runs(self, request: SubmitRuns) -> SubmittedRuns:
        """Create many runs and leave them queued."""
        return await self._submit.submit_runs(request)

    @property
    def _submit(self) -> LocalSubmit:
        return LocalSubmit(self.engine.registry, self.engine.submitting)

    async def fork_run(self, request: ForkRun) -> Forked:
        """A new run that shares another's log up to a checkpoint. The other run is not touched."""
        parent = (await find_run(self.engine.store.runs, request.run)).row.id
        notices: list[str] = []
        fork = Fork(
            request.checkpoint,
            from_step=request.from_step,
            changes=request.changes,
            by=request.by,
            new_id=run_id_of(request),
            accept_changes=request.accept_changes,
            original=request.original,
            terms=terms_of(request),
        )
        folded = await self.engine.fork(parent, fork, tell=notices.append)
        return {
            **await run_state(self.engine.store, folded, folded.run.updated_at_us),
            "notice": "; ".join(notices),
        }
