"""Resuming: every check, then the decision and the claim, then execution. Every surface calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from onward.clock import Clock
from onward.engine.control.holder_requests import HolderRequests
from onward.engine.control.limits import LimitChanges, check_limits
from onward.engine.control.preview import Preview
from onward.engine.control.requests import Resume
from onward.engine.control.sources import Sources
from onward.engine.control.workdir import check_still_there, check_workdir
from onward.engine.lease.claims import Claims, Reply
from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.engine.log.terms import RequestTerms
from onward.engine.log.write import applied
from onward.engine.loop.runner import Runner, Served
from onward.engine.loop.serving import Serving
from onward.engine.loop.stop import StopSwitch
from onward.engine.step.leftovers import Leftovers, view_left
from onward.errors import InvalidInput, Refused, StaleHistory
from onward.machine.decide.requests import HolderView
from onward.machine.decide.resume import check_resumable, decide_resume, repeat_notice
from onward.machine.plan.planner import advance
from onward.model.events import Event
from onward.model.run import Run
from onward.model.values import missing_now
from onward.pipeline.build import Pipeline
from onward.store.owner import is_ending

WAIT_POLL_S = 0.05
ENDING_S = 5.0


def _nothing(run: Run, holder_view: HolderView) -> Sequence[Event]:
    """Decide nothing: the reply only says whether the request was made before."""
    return ()


class _Ready(msgspec.Struct, frozen=True):
    """A resume that passed every check that comes before the claim."""

    known: Folded
    pipeline: Pipeline
    notice: str
    served: Served
    request: Resume

    @property
    def blobs(self) -> Mapping[str, bytes]:
        return {self.pipeline.hash: self.pipeline.source.encode()}

    def decide(self, run: Run, holder_view: HolderView) -> Sequence[Event]:
        """Decide the resume under the run's lock, if it still is the run that everything was checked for."""
        known = self.known.run
        is_changed = run.pipeline_hash != self.pipeline.hash  # and fits the run as it was then
        if run.pipeline_hash != known.pipeline_hash or (is_changed and run.head != known.head):
            raise StaleHistory(run.id, self.known.position.seq)
        return decide_resume(
            self.served.definition, run, holder_view, self.request, changed_to=self.pipeline.hash
        )


class Resuming(msgspec.Struct, frozen=True):
    """Resumes stopped runs. Of many callers exactly one gets through."""

    journal: Journal
    claims: Claims
    clock: Clock
    serving: Serving
    sources: Sources
    runner: Runner
    requests: HolderRequests
    leftovers: Leftovers
    limits: LimitChanges

    async def resume(
        self,
        run_id: str,
        resume: Resume,
        stop: StopSwitch | None = None,
        tell: Callable[[str], None] = lambda notice: None,
    ) -> Folded:
        """Check everything, claim the run, and execute it. Of many callers exactly one gets this far.

        Without `resume.run` nothing is claimed: the run is left in the queue, and a worker executes it.
        """
        stop = stop or StopSwitch(clock=self.clock)
        terms = resume.terms
        if terms.key is not None:
            asked = await self.claims.request(run_id, _nothing, terms=terms)
            if asked.folded.is_repeat:
                # The first answer, however the run stands by now: it is not checked again.
                return asked.folded
        while True:
            ready = await self._ready(run_id, resume, stop)
            try:
                claimed = await self._claim(ready, terms, tell)
            except StaleHistory:
                continue  # the pipeline was changed since it was checked: check again
            except Refused as refusal:
                await self._add_leftovers(refusal, run_id)
                if refusal.code != "occupied" or not resume.wait or stop.reason is not None:
                    raise
                await self.clock.wait_s(WAIT_POLL_S, asyncio.Event())
            else:
                return await self.runner.run(claimed, ready.served, stop)

    async def _claim(self, ready: _Ready, terms: RequestTerms, tell: Callable[[str], None]) -> Reply:
        """Claim the run, or make the request that was asked for instead, and do what follows from it."""
        claimed = await self.claims.request_observed(
            ready.known.run.id, ready.decide, blobs=ready.blobs, terms=terms, known=ready.known
        )
        run = claimed.folded.run
        with self.claims.dropping(claimed.lease):
            await self.requests.cancel_orphans(ready.known.run, run)
            if ready.notice:
                tell(ready.notice)
            if claimed.lease is None and run.is_final:  # it was cancelled instead
                await self.requests.workspaces.close(run)
        return claimed

    async def preview_resume(self, run_id: str, resume: Resume) -> Preview:
        """Make every check of a resume and say what it would do. Nothing is written."""
        ready = await self._ready(run_id, resume, None)
        known, now_us = ready.known, self.clock.now_us()
        try:
            decided = ready.decide(known.run, self.claims.holder_view(known))
        except Refused as refusal:
            await self._add_leftovers(refusal, run_id)
            raise
        run, _ = applied(known.run, decided, run_id=run_id, at_us=now_us)
        ahead = advance(ready.served.definition, run, (), now_us=now_us, stop_reason=None)
        left = await self.leftovers.of(known)
        return Preview(known.run, ready.notice, (*decided, *ahead.events), ahead.action, left)

    async def _add_leftovers(self, refusal: Refused, run_id: str) -> None:
        """Add what the step in doubt left, for the person who has to decide."""
        if refusal.code == "in_doubt":
            left = await self.leftovers.of(await self.journal.load(run_id))
            refusal.details["left"] = [view_left(one) for one in left]

    async def _ready(self, run_id: str, resume: Resume, stop: StopSwitch | None) -> _Ready:
        known = await self.journal.load(run_id)
        resume.terms.check_head(run_id, known.position.seq)
        if resume.restore_workspace and known.run.workspace is None:
            raise InvalidInput(f"run {run_id} has no workspace to restore.")
        if stop is not None and (resume.wait or _is_ending(known)):
            known = await self._wait_free(known, stop, None if resume.wait else ENDING_S)
        check_resumable(known.run, self.claims.holder_view(known), resume)
        if resume.raises and stop is not None:  # else it is only asked what a resume would do
            await self.limits.raise_for(known.run, resume.raises, by=resume.by)
        aborts = resume.action == "abort"
        if not aborts:
            repeats = resume.action is None and resume.from_node is None and not resume.accept_changes
            await check_limits(self.limits.store, known.run, self.clock.now_us(), repeats=repeats)
        executes = resume.run and not aborts
        check_workdir(resume.workdir, is_here=executes)
        if executes and resume.workdir is None:
            check_still_there(known.run)
        pipeline, notice = await self.sources.to_continue(
            known.run,
            accept_changes=resume.accept_changes,
            original=resume.original or aborts,
            keeps_gates=resume.from_node is None,
        )
        definition = self.serving.definition(pipeline)
        # A run that is aborted, or left to the workers, needs no handler here.
        handlers = (
            self.serving.handlers_for(
                definition, known.run.simulation, resume.interviewer, known.run.outcomes.keys()
            )
            if executes
            else {}
        )
        twice = repeat_notice(definition, known.run, resume.from_node)
        lacks = self._lacking(known.run) if executes else ""
        notice = "; ".join(filter(None, (notice, twice, lacks)))
        return _Ready(known, pipeline, notice, Served(definition, handlers), resume)

    def _lacking(self, run: Run) -> str:
        """The notice that commands do not get variables now that they got before; else empty."""
        names = missing_now(run.variables, self.serving.variables)
        if not names:
            return ""
        it = "it" if len(names) == 1 else "them"
        return (
            f"its commands got {', '.join(names)} when the run was started, and do not get {it} now; "
            f"set {it}, and name {it} in tool_env"
        )

    async def _wait_free(self, folded: Folded, stop: StopSwitch, limit_s: float | None) -> Folded:
        """Wait until no live process holds the run, this process is asked to stop, or the time is over."""
        asked, began_s = asyncio.Event(), self.clock.awake_s()
        stop.listen(asked.set)
        while self.claims.holder_view(folded).is_alive and stop.reason is None:
            if limit_s is not None and self.clock.awake_s() - began_s >= limit_s:
                break
            await self.clock.wait_s(WAIT_POLL_S, asked)
            folded = await self.journal.load(folded.run.id)
        stop.unlisten(asked.set)
        return folded


def _is_ending(folded: Folded) -> bool:
    """Whether the holder was killed, and its commands are being killed after it."""
    return folded.holder is not None and folded.holder.is_alive and is_ending(folded.holder.owner)
