"""The engine: start, resume, answer, pause, cancel and fork runs. Every surface calls these functions."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from onward.clock import Clock, Dice, Ids
from onward.engine.control.answer import Answering
from onward.engine.control.fork import checkpoint, coming_off
from onward.engine.control.interview import Interviewer
from onward.engine.control.preview import Preview
from onward.engine.control.requests import Resume, Start
from onward.engine.control.resume import Resuming
from onward.engine.control.sources import Sources
from onward.engine.control.start import Starting
from onward.engine.files.receipts import StepReceipts
from onward.engine.files.run_files import RunFiles
from onward.engine.files.workspaces import Workspaces
from onward.engine.lease.claims import Claims
from onward.engine.lease.keeper import LeaseKeeper
from onward.engine.lease.queue import Taking
from onward.engine.lease.release import Dropped
from onward.engine.lease.sweep import Sweeper, Swept
from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.engine.log.terms import NO_TERMS, RequestTerms
from onward.engine.log.write import applied
from onward.engine.loop.parts import EngineParts, Observer
from onward.engine.loop.runner import Runner
from onward.engine.loop.serving import Around, Serving
from onward.engine.loop.stop import StopSwitch
from onward.engine.managed.child import latest
from onward.engine.managed.oversee import Overseer
from onward.engine.managed.settings import ORPHANED
from onward.engine.step.effects import AtMostOnce, Once
from onward.engine.step.leftovers import Leftovers
from onward.engine.step.rooms import Rooms
from onward.errors import LeaseLost, Refused, RunNotFound, StoreError
from onward.handlers.port import Handler
from onward.machine.decide.orphans import orphaned
from onward.machine.decide.requests import Decide, decide_cancel, decide_pause
from onward.machine.decide.steering import decide_steer
from onward.machine.definition import Definition
from onward.model.answer import Answer
from onward.model.event import Event
from onward.model.ids import check_run_id
from onward.model.run import Gate, Run, RunStatus
from onward.model.values.namespace import check_given
from onward.pipeline.build import Pipeline, Transform
from onward.pipeline.rules.check import RULES, Rule
from onward.store.port.store import Store
from onward.workspace.port import Trees

__all__ = ["Engine", "Resume", "Start", "ignore"]


def ignore(run: Run, events: Sequence[Event]) -> None:
    """The observer that does not look."""


class Engine:
    """One store, the handlers, and the ports; any number of runs."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        ids: Ids,
        dice: Dice,
        handlers: Mapping[str, Handler],
        transforms: Sequence[Transform] = (),
        rules: Sequence[Rule] = RULES,
        observe: Observer = ignore,
        files: RunFiles | None = None,
        trees: Trees | None = None,
        warn: Callable[[str], None] = lambda text: None,
        around: Around | None = None,
        own: Sequence[str] = (),
    ) -> None:
        """`own`: the paths that are ours and no step's work, wherever they are."""
        self.store, self._clock, self._ids = store, clock, ids
        self.sources = Sources(store.blobs, transforms, {*handlers, *Definition.BUILT_IN}, rules)
        receipts = None
        if files is not None:
            receipts = StepReceipts(files, store.log, self.sources)
            observe = _each(files.observe, receipts.after, observe)
        self._observe = observe
        self._workspaces = Workspaces(trees, files, warn)
        self.journal = Journal(store.log, clock)
        self.leftovers = Leftovers(store, None if files is None else files.folder, trees, own)
        self._claims = Claims(store.leases, self.journal, clock, ids, observe)
        self._serving = Serving(
            handlers, lambda agent, interviewer: Overseer(self, clock, agent, interviewer), around
        )
        self._taking = Taking(store.measures, self.journal, self._claims, clock, handlers)
        self._sweeper = Sweeper(store.runs, self.journal, self._claims, ids)
        parts = EngineParts(
            self.journal,
            LeaseKeeper(store.leases, clock),
            clock,
            dice,
            handlers,
            observe,
            Rooms(store.blobs, clock, files),
            self._workspaces,
            self.cancel_child,
            self.effect,
            receipts,
        )
        self.effects = AtMostOnce(store.effects, clock, ids, store.leases.lease_s)
        self._runner = Runner(self.journal, self._claims, ids, self._serving, self.sources, parts, files)
        shared = self.journal, self._claims, clock, ids
        self._starting = Starting(
            *shared, self._serving, self._workspaces, self._runner, observe, store.leases
        )
        self._resuming = Resuming(
            *shared, self._serving, self.sources, self._runner, self._cancel_orphans, self.leftovers
        )
        self._answering = Answering(*shared, self._runner)

    @property
    def dropped(self) -> Dropped:
        """The runs that this process owns and does not drive."""
        return self._claims.dropped

    async def close(self) -> None:
        """Let go of the store, and before it of every run that this process owns and does not drive."""
        await self.dropped.settle()
        await self.store.close()

    # -- starting ------------------------------------------------------------------------------------

    async def start(self, pipeline: Pipeline, start: Start, stop: StopSwitch | None = None) -> Folded:
        """Create a run, claim it and execute it until it stops."""
        return await self._starting.start(pipeline, start, stop)

    async def submit(self, pipeline: Pipeline, start: Start) -> Folded:
        """Create a run and leave it queued for whichever worker claims it."""
        return await self._starting.submit(pipeline, start)

    # -- continuing ----------------------------------------------------------------------------------

    async def resume(
        self,
        run_id: str,
        resume: Resume,
        stop: StopSwitch | None = None,
        tell: Callable[[str], None] = lambda notice: None,
    ) -> Folded:
        """Check everything, claim the run, and drive it. Of many callers exactly one gets this far."""
        return await self._resuming.resume(run_id, resume, stop, tell)

    async def preview_resume(self, run_id: str, resume: Resume) -> Preview:
        """Make every check of a resume and say what would come of it. Nothing is written."""
        return await self._resuming.preview_resume(run_id, resume)

    async def answer(
        self,
        run_id: str,
        answer: Answer | str,
        *,
        by: str,
        gate: str | None = None,
        text: str = "",
        run: bool = True,
        terms: RequestTerms = NO_TERMS,
        stop: StopSwitch | None = None,
        interviewer: Interviewer | None = None,
    ) -> Folded:
        """Decide a gate; with `run`, go on with the run in the same transaction and drive it."""
        said = answer if isinstance(answer, Answer) else Answer(answer, text)
        return await self._answering.answer(
            run_id,
            said,
            by=by,
            gate=gate,
            run=run,
            terms=terms,
            stop=stop,
            interviewer=interviewer,
        )

    async def attend(self, folded: Folded, interviewer: Interviewer, stop: StopSwitch) -> Folded:
        """Answer the gates of a waiting run as they come, until it stops or every question is left open."""
        return await self._answering.attend(folded, interviewer, stop)

    async def ask(self, run: Run, gate: Gate, interviewer: Interviewer) -> Answer:
        """Put one question; when its deadline comes first, the answer is skipped."""
        return await self._answering.ask(run, gate, interviewer)

    # -- working -------------------------------------------------------------------------------------

    async def take(self, stop: StopSwitch) -> tuple[Folded, Awaitable[Folded]] | None:
        """Own the run whose turn it is; answers it, and what to await to drive it until it stops."""
        claimed_s = self._clock.awake_s()
        folded = await self._taking.take()
        return None if folded is None else (folded, self._driven(folded, claimed_s, stop))

    async def _driven(self, folded: Folded, claimed_s: float, stop: StopSwitch) -> Folded:
        """Execute a run that was taken. One that cannot be executed here is released, and passed over."""
        try:
            return await self._runner.run_from_queue(folded, claimed_s, stop)
        except (LeaseLost, StoreError):
            raise
        except Exception as error:
            self._taking.pass_over(folded.run.id, error)
            raise

    async def sweep(self) -> Swept:
        """Take runs from owners that are dead, and stop them as their policies say."""
        return await self._sweeper.sweep()

    async def recover(self) -> Swept:
        """What a server does first: sweep, announce open questions again, and report."""
        return await self._sweeper.recover()

    # -- requests ------------------------------------------------------------------------------------

    async def pause(
        self, run_id: str, *, after: str = "step", by: str = "user", terms: RequestTerms = NO_TERMS
    ) -> Folded:
        """Ask a run to stop; it stops at once if no live process holds it."""
        return await self._ask(run_id, partial(decide_pause, after=after, by=by), terms)

    async def cancel(
        self, run_id: str, *, by: str = "user", reason: str = "", terms: RequestTerms = NO_TERMS
    ) -> Folded:
        """Cancel a run for good, and with it the runs that it manages; `reason` is why, in free text."""
        before = (await self.journal.load(run_id)).run
        folded = await self._ask(run_id, partial(decide_cancel, by=by, detail=reason), terms)
        await self._cancel_orphans(before, folded.run)
        if folded.run.is_final:
            await self._workspaces.close(folded.run)
        return folded

    async def steer(
        self, run_id: str, text: str, *, by: str = "user", terms: RequestTerms = NO_TERMS
    ) -> Folded:
        """Give the run's agents an instruction; the next agent step takes it."""
        return await self._ask(run_id, partial(decide_steer, text=text, by=by), terms)

    async def _ask(self, run_id: str, decide: Decide, terms: RequestTerms) -> Folded:
        append_id = terms.key or self._ids.unique()
        return (await self._claims.request(run_id, decide, append_id=append_id, terms=terms)).folded

    async def cancel_child(self, child: str) -> None:
        """Give up a run that nobody looks after any more; one that is over, or never began, is left alone."""
        with contextlib.suppress(RunNotFound, Refused):
            await self.cancel((await latest(self.journal, child)).run.id, by=ORPHANED)

    async def _cancel_orphans(self, before: Run, after: Run) -> None:
        for child in orphaned(before, after, ()):
            await self.cancel_child(child)

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
        """A new run that shares another's log up to a checkpoint. The other run is not touched."""
        changes = changes or {}
        check_given(changes)
        onto = await checkpoint(self.journal, run_id, seq)
        # Whatever would refuse the fork when it runs must refuse it now, before it exists.
        self.check_served(await self.sources.stored(onto.run), onto.run.simulation)
        now_us = self._clock.now_us()
        child = self._ids.run_id(now_us) if new_id is None else check_run_id(new_id)
        await self._workspaces.check_fork(onto.run, child)
        forked = coming_off(onto, changes=changes, by=by)
        run, stamped = applied(onto.run, (forked,), run_id=child, at_us=now_us)
        return await self.journal.create(
            run, stamped, at_us=now_us, append_id=self._ids.unique(), after=onto.position, terms=terms
        )

    async def effect(self, key: str, function: Callable[[], Any], *, only_success: bool = False) -> Any:
        """What a function returns, which is called at most once for the key."""
        return await self.effects.call(key, function, Once(only_success=only_success))

    # -- parts ---------------------------------------------------------------------------------------

    def check_served(self, pipeline: Pipeline, simulation: Mapping[str, Any] | None) -> None:
        """Refuse a pipeline that this process could not run."""
        self._serving.handlers_for(self._serving.definition(pipeline), simulation)

    def is_at_work(self, folded: Folded) -> bool:
        """Whether somebody who is alive holds the run."""
        return folded.run.status is RunStatus.RUNNING and self._claims.holder_view(folded).is_alive


def _each(*observers: Observer) -> Observer:
    looking = tuple(observer for observer in observers if observer is not ignore)

    def observe(run: Run, events: Sequence[Event]) -> None:
        for tell in looking:
            tell(run, events)

    return observe
