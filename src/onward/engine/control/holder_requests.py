"""Pause, cancel, dismiss and steer. A live holder follows the request; otherwise it takes effect at once."""

from __future__ import annotations

import contextlib
from functools import partial

import msgspec

from onward.engine.files.workspaces import Workspaces
from onward.engine.lease.claims import Claims
from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.engine.log.terms import NO_TERMS, RequestTerms
from onward.engine.managed.child import latest
from onward.engine.managed.settings import ORPHANED
from onward.errors import Refused, RunNotFound
from onward.machine.decide.owner_loss import orphaned
from onward.machine.decide.requests import Decide, decide_cancel, decide_dismiss, decide_pause, decide_steer
from onward.machine.lifecycle import SUPERSEDED
from onward.model.run import Run


class HolderRequests(msgspec.Struct, frozen=True):
    """Sends requests to the holders of runs."""

    journal: Journal
    claims: Claims
    workspaces: Workspaces

    async def pause(
        self, run_id: str, *, after: str = "step", by: str = "user", terms: RequestTerms = NO_TERMS
    ) -> Folded:
        """Ask a run to stop; it stops at once if no live process holds it."""
        return await self._request(run_id, partial(decide_pause, after=after, by=by), terms)

    async def cancel(
        self,
        run_id: str,
        *,
        by: str = "user",
        reason: str = "",
        is_superseded: bool = False,
        terms: RequestTerms = NO_TERMS,
    ) -> Folded:
        """Cancel a run for good, and with it the runs that it manages; `reason` is why, in free text.

        `is_superseded`: a new run takes its place.
        """
        before = (await self.journal.load(run_id)).run
        kind = SUPERSEDED if is_superseded else "user"
        folded = await self._request(run_id, partial(decide_cancel, by=by, reason=kind, detail=reason), terms)
        await self.cancel_orphans(before, folded.run)
        if folded.run.is_final:
            await self.workspaces.close(folded.run)
        return folded

    async def dismiss(self, run_id: str, *, by: str = "user", terms: RequestTerms = NO_TERMS) -> Folded:
        """Let nothing offer or resume a stopped run any more, but a person who names it."""
        return await self._request(run_id, partial(decide_dismiss, by=by), terms)

    async def steer(
        self, run_id: str, text: str, *, by: str = "user", terms: RequestTerms = NO_TERMS
    ) -> Folded:
        """Give the run's agents an instruction; the next agent step takes it."""
        return await self._request(run_id, partial(decide_steer, text=text, by=by), terms)

    async def _request(self, run_id: str, decide: Decide, terms: RequestTerms) -> Folded:
        return (await self.claims.request(run_id, decide, terms=terms)).folded

    async def cancel_child(self, child: str) -> None:
        """Cancel a run that no step manages any more; one that has ended, or never began, is left alone."""
        with contextlib.suppress(RunNotFound, Refused):
            await self.cancel((await latest(self.journal, child)).run.id, by=ORPHANED)

    async def cancel_orphans(self, before: Run, after: Run) -> None:
        """Cancel the runs whose managing steps a request closed."""
        for child in orphaned(before, after, ()):
            await self.cancel_child(child)
