"""The engine: start, resume, answer, pause, cancel and fork runs. Every surface calls these functions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onward.clock import Clock, Dice, Ids
from onward.engine.answering import Answering
from onward.engine.asked import Resume, Start
from onward.engine.child import latest
from onward.engine.claim import Claims
from onward.engine.drive import Drive, Observer, Tools
from onward.engine.files import RunFiles
from onward.engine.fork import checkpoint, coming_off
from onward.engine.interview import Interviewer
from onward.engine.journal import DecideRun, Folded, Journal, applied
from onward.engine.keeper import LeaseKeeper
from onward.engine.managing import FORSAKEN
from onward.engine.oversee import Overseer
from onward.engine.preview import Preview, preview
from onward.engine.release import Dropped
from onward.engine.rooms import Rooms
from onward.engine.serving import Serving
from onward.engine.source import Sources
from onward.engine.stop import StopSwitch
from onward.engine.sweep import Sweeper, Swept
from onward.engine.taking import Taking
from onward.errors import Refused, RunNotFound, StaleHistory
from onward.handlers.port import Handler
from onward.machine.action import Action
from onward.machine.advance import advance
from onward.machine.decide import (
    ResumeRequest,
    check_resumable,
    decide_cancel,
    decide_claim,
    decide_pause,
    decide_resume,
)
from onward.machine.definition import Definition
from onward.machine.orphans import orphaned
from onward.machine.steering import decide_steer
from onward.model.answer import Answer
from onward.model.event import Event, RunClaimed, RunCreated
from onward.model.ids import check_run_id
from onward.model.namespace import check_given
from onward.model.run import Gate, Run, RunStatus
from onward.model.value import copied
from onward.pipeline.build import Pipeline, Transform
from onward.pipeline.check import RULES, Rule
from onward.pipeline.value import as_text
from onward.store.port import Held, Store
from onward.version import VERSION

__all__ = ["Engine", "Resume", "Start", "ignore"]

WORTH_HOLDING_S = 5.0
WAIT_POLL_S = 0.2


def ignore(run: Run, events: Sequence[Event]) -> None:
    """The observer that does not look."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A resume that passed every check that comes before the claim."""

    known: Folded
    pipeline: Pipeline
    notice: str
    definition: Definition
    handlers: Mapping[str, Handler]
    request: ResumeRequest

    @property
    def blobs(self) -> Mapping[str, bytes]:
        return {self.pipeline.hash: self.pipeline.source.encode()}


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
    ) -> None:
        self.store, self._clock, self._ids, self._dice = store, clock, ids, dice
        self._files = files
        if files is not None:
            observe = _both(files.observe, observe)
        self._observe, self._transforms, self._rules = observe, transforms, rules
        self.journal = Journal(store, clock)
        self._keeper = LeaseKeeper(store, clock)
        self._claims = Claims(store, self.journal, clock, ids, observe)
        self._serving = Serving(
            handlers, lambda agent, interviewer: Overseer(self, clock, agent, interviewer)
        )
        self._taking = Taking(self.journal, self._claims, clock, handlers)
        self._sweeper = Sweeper(store, self.journal, self._claims, clock, ids)
        self._answering = Answering(self.journal, self._claims, clock, ids, self._served, self._drive)
        self._rooms = Rooms(store, clock, files)

    @property
    def dropped(self) -> Dropped:
        """The runs that this process owns and does not drive."""
        return self._claims.dropped

    @property
    def sources(self) -> Sources:
        """Pipelines, prepared the same way for every door."""
        known = {*self._serving.handlers, *Definition.BUILT_IN}
        return Sources(self.store, self._transforms, known, self._rules)

    async def close(self) -> None:
        """Let go of the store, and before it of every run that this process owns and does not drive."""
        await self.dropped.settle()
        await self.store.close()

    # -- starting ------------------------------------------------------------------------------------

    async def start(self, pipeline: Pipeline, start: Start, stop: StopSwitch | None = None) -> Folded:
        """Create a run, claim it and drive it until it stops."""
        definition = self._serving.definition(pipeline)
        handlers = self._serving.handlers_for(definition, start.simulation, start.interviewer)
        run_id, created = self._created(pipeline, start)
        stop = stop or StopSwitch()
        now_us, claimed_s = self._clock.now_us(), self._clock.awake_s()
        first = (created, RunClaimed(token=1, worker=self.store.me))
        run, stamped = applied(None, first, run_id=run_id, at_us=now_us)
        ahead = advance(definition, run, (), now_us=now_us, stop_reason=stop.reason)
        stamped += [(event, run.token) for event in ahead.events]
        folded = await self._claims.starting(
            run_id, lambda: self._create(ahead.run, stamped, now_us, pipeline, start)
        )
        if folded.is_repeat:
            return folded
        self._observe(folded.run, (*first, *ahead.events))
        if folded.run.status is not RunStatus.RUNNING:
            return folded
        ended = await self._drive_one(folded, definition, handlers, claimed_s, stop, ahead.action)
        return await self._follow(ended, definition, handlers, stop)

    async def submit(self, pipeline: Pipeline, start: Start) -> Folded:
        """Create a run and leave it queued for whoever claims it."""
        run_id, created = self._created(pipeline, start)
        now_us = self._clock.now_us()
        run, stamped = applied(None, (created,), run_id=run_id, at_us=now_us)
        return await self._create(run, stamped, now_us, pipeline, start)

    async def _create(
        self, run: Run, stamped: Sequence[tuple[Event, int]], at_us: int, pipeline: Pipeline, start: Start
    ) -> Folded:
        folded = await self.journal.create(
            run,
            stamped,
            at_us=at_us,
            append_id=start.append_id or self._ids.unique(),
            blobs={pipeline.hash: pipeline.source.encode()},
        )
        return folded if start.append_id is None else await self.journal.first_answer(folded)

    def _created(self, pipeline: Pipeline, start: Start) -> tuple[str, RunCreated]:
        check_given(start.inputs)
        run_id = (
            self._ids.run_id(self._clock.now_us()) if start.run_id is None else check_run_id(start.run_id)
        )
        graph = pipeline.graph
        assert graph.start_id is not None  # a pipeline without errors has one
        mirrored = {f"graph.{key}": as_text(value) for key, value in graph.attrs.items()}
        return run_id, RunCreated(
            pipeline=pipeline.name,
            pipeline_hash=pipeline.hash,
            start_node=graph.start_id,
            path=pipeline.path,
            context={**mirrored, **copied(start.inputs)},
            on_owner_loss=start.on_owner_loss,
            exclusive_key=start.exclusive_key,
            simulation=None if start.simulation is None else dict(start.simulation),
            version=VERSION,
            priority=start.priority,
            needs=self._serving.needs(self._serving.definition(pipeline), start.simulation),
            max_running=graph.count("max_running"),
            managed_by=start.managed_by,
            workdir=start.workdir,
        )

    # -- going on ------------------------------------------------------------------------------------

    async def resume(
        self,
        run_id: str,
        resume: Resume,
        stop: StopSwitch | None = None,
        tell: Callable[[str], None] = lambda notice: None,
    ) -> Folded:
        """Check everything, claim the run, and drive it. Of many callers exactly one gets this far."""
        stop = stop or StopSwitch()
        append_id = resume.append_id or self._ids.unique()
        while True:
            ready = await self._ready(run_id, resume, stop)
            try:
                return await self._resume(ready, append_id, stop, tell)
            except StaleHistory:
                continue  # the pipeline was changed since it was checked: check again
            except Refused as refusal:
                if refusal.code != "occupied" or not resume.wait or stop.reason is not None:
                    raise
                await self._clock.wait_s(WAIT_POLL_S, asyncio.Event())

    async def _resume(
        self, ready: _Ready, append_id: str, stop: StopSwitch, tell: Callable[[str], None]
    ) -> Folded:
        claimed_s = self._clock.awake_s()
        folded, has_claimed = await self._claims.request(
            ready.known.run.id, self._resuming(ready), append_id=append_id, blobs=ready.blobs
        )
        await self._forsake_orphans(ready.known.run, folded.run)
        if ready.notice:
            tell(ready.notice)
        if not has_claimed:
            return folded
        return await self._drive(folded, ready.definition, ready.handlers, claimed_s, stop)

    def _resuming(self, ready: _Ready) -> DecideRun:
        """Decide a resume under the run's lock, if it still is the run that everything was checked for."""

        def decide(current: Folded, held: Held) -> Sequence[Event]:
            if current.run.pipeline_hash != ready.known.run.pipeline_hash:
                raise StaleHistory(current.run.id, ready.known.position.seq)
            return decide_resume(
                ready.definition, current.run, self._claims.standing(current, held), ready.request
            )

        return decide

    async def preview_resume(self, run_id: str, resume: Resume) -> Preview:
        """Make every check of a resume and say what would come of it. Nothing is written."""
        ready = await self._ready(run_id, resume, None)
        now_us = self._clock.now_us()
        seen = preview(
            ready.definition, ready.known, self._claims.standing(ready.known), ready.request, now_us=now_us
        )
        return replace(seen, notice=ready.notice)

    async def _ready(self, run_id: str, resume: Resume, stop: StopSwitch | None) -> _Ready:
        known = await self.journal.load(run_id)
        request = ResumeRequest(
            resume.by, resume.from_node, resume.action, resume.step, take_over=resume.take_over
        )
        if resume.wait and stop is not None:
            known = await self._wait_free(known, stop)
        check_resumable(known.run, self._claims.standing(known), request)
        pipeline, notice = await self.sources.for_resume(
            known.run, accept_changes=resume.accept_changes, original=resume.original
        )
        definition = self._serving.definition(pipeline)
        handlers = self._serving.handlers_for(definition, known.run.simulation, resume.interviewer)
        return _Ready(
            known, pipeline, notice, definition, handlers, replace(request, changed_to=pipeline.hash)
        )

    async def _wait_free(self, folded: Folded, stop: StopSwitch) -> Folded:
        """Until nobody who is alive holds the run, or this process is asked to stop."""
        asked = asyncio.Event()
        unlisten = stop.listen(asked.set)
        while self._claims.standing(folded).is_alive and stop.reason is None:
            await self._clock.wait_s(WAIT_POLL_S, asked)
            folded = await self.journal.load(folded.run.id)
        unlisten()
        return folded

    async def answer(
        self,
        run_id: str,
        answer: Answer | str,
        *,
        by: str,
        gate: str | None = None,
        text: str = "",
        run: bool = True,
        append_id: str | None = None,
        stop: StopSwitch | None = None,
        interviewer: Interviewer | None = None,
    ) -> Folded:
        """Decide a gate; with `run`, go on with the run in the same transaction and drive it."""
        said = answer if isinstance(answer, Answer) else Answer(answer, text)
        append_id = append_id or self._ids.unique()
        return await self._answering.answer(
            run_id,
            said,
            by=by,
            gate=gate,
            run=run,
            append_id=append_id,
            stop=stop,
            interviewer=interviewer,
        )

    async def attend(self, folded: Folded, interviewer: Interviewer, stop: StopSwitch) -> Folded:
        """Answer the gates of a waiting run as they come, until it stops or every question is left open."""
        return await self._answering.attend(folded, interviewer, stop)

    async def ask(self, run: Run, gate: Gate, interviewer: Interviewer) -> Answer:
        """Put one question; when its deadline comes first, the answer is skipped."""
        return await self._answering.ask(run, gate, interviewer)

    async def _served(
        self, run: Run, interviewer: Interviewer | None
    ) -> tuple[Definition, Mapping[str, Handler]]:
        """What a run that goes on as it is needs: its stored source, and a handler for every node."""
        definition = self._serving.definition(await self.sources.stored(run))
        return definition, self._serving.handlers_for(definition, run.simulation, interviewer)

    async def _drive(
        self,
        folded: Folded,
        definition: Definition,
        handlers: Mapping[str, Handler],
        claimed_s: float,
        stop: StopSwitch | None,
    ) -> Folded:
        if folded.run.status is not RunStatus.RUNNING or folded.run.worker != self.store.me:
            return folded
        stop = stop or StopSwitch()
        ended = await self._drive_one(folded, definition, handlers, claimed_s, stop)
        return await self._follow(ended, definition, handlers, stop)

    async def _drive_one(
        self,
        folded: Folded,
        definition: Definition,
        handlers: Mapping[str, Handler],
        claimed_s: float,
        stop: StopSwitch,
        action: Action | None = None,
        patience_s: float | None = None,
    ) -> Folded:
        drive = Drive(self._tools(handlers), definition, folded, stop, patience_s)

        async def driven() -> Folded:
            if self._files is not None and folded.run.token > 1:  # a first life has no files to go on with
                await self._files.go_on(folded.run)
            return await drive.run(claimed_s=claimed_s, action=action)

        return await self._claims.driving(folded.lease, driven())

    async def _follow(
        self, ended: Folded, definition: Definition, handlers: Mapping[str, Handler], stop: StopSwitch
    ) -> Folded:
        """Go on with the run that a loop_restart began, unless this process stops or somebody else has it."""
        while ended.run.restarted_as is not None:
            run_id, claimed_s = ended.run.restarted_as, self._clock.awake_s()
            if stop.reason is not None:
                return await self.journal.load(run_id)
            ended, has_claimed = await self._claims.request(
                run_id, self._claiming_a_new_run, append_id=self._ids.unique()
            )
            if not has_claimed:
                break
            ended = await self._drive_one(ended, definition, handlers, claimed_s, stop)
        return ended

    def _claiming_a_new_run(self, current: Folded, held: Held) -> Sequence[Event]:
        if current.run.status is not RunStatus.QUEUED or current.run.token:
            return ()
        return decide_claim(current.run, self._claims.standing(current, held))

    # -- working -------------------------------------------------------------------------------------

    async def take(self, stop: StopSwitch) -> tuple[Folded, Awaitable[Folded]] | None:
        """Own the run whose turn it is; answers it, and what to await to drive it until it stops."""
        claimed_s = self._clock.awake_s()
        folded = await self._taking.take()
        return None if folded is None else (folded, self._go_on(folded, claimed_s, stop))

    async def _go_on(self, folded: Folded, claimed_s: float, stop: StopSwitch) -> Folded:
        try:
            definition = self._serving.definition(await self.sources.stored(folded.run))
            handlers = self._serving.handlers_for(definition, folded.run.simulation)
        except (Exception, asyncio.CancelledError):
            self.dropped.drop(folded.lease)
            raise
        # The run that a restart begins is queued: whoever has room takes it.
        return await self._drive_one(
            folded, definition, handlers, claimed_s, stop, patience_s=WORTH_HOLDING_S
        )

    async def sweep(self) -> Swept:
        """Take runs from owners that are dead, and stop them as their policies say."""
        return await self._sweeper.sweep()

    async def recover(self) -> Swept:
        """What a server does first: sweep, announce open questions again, and report."""
        return await self._sweeper.recover()

    # -- requests ------------------------------------------------------------------------------------

    async def pause(self, run_id: str, *, after: str = "step", by: str = "user") -> Folded:
        """Ask a run to stop; at once if nobody is at work on it."""
        return await self.journal.control(
            run_id,
            lambda current, held: decide_pause(
                current.run, self._claims.standing(current, held), after=after, by=by
            ),
            append_id=self._ids.unique(),
        )

    async def cancel(self, run_id: str, *, by: str = "user") -> Folded:
        """Give a run up for good, and with it the runs that it looks after."""
        before = (await self.journal.load(run_id)).run
        folded = await self.journal.control(
            run_id,
            lambda current, held: decide_cancel(current.run, self._claims.standing(current, held), by=by),
            append_id=self._ids.unique(),
        )
        await self._forsake_orphans(before, folded.run)
        return folded

    async def steer(self, run_id: str, text: str, *, by: str = "user") -> Folded:
        """Give the run's agents an instruction; the next agent step takes it."""
        return await self.journal.control(
            run_id,
            lambda current, held: decide_steer(current.run, text=text, by=by),
            append_id=self._ids.unique(),
        )

    async def forsake(self, child: str) -> None:
        """Give up a run that nobody looks after any more; one that is over, or never began, is left alone."""
        with contextlib.suppress(RunNotFound, Refused):
            await self.cancel((await latest(self.journal, child)).run.id, by=FORSAKEN)

    async def _forsake_orphans(self, before: Run, after: Run) -> None:
        for child in orphaned(before, after, ()):
            await self.forsake(child)

    async def fork(
        self,
        run_id: str,
        seq: int,
        *,
        changes: Mapping[str, Any] | None = None,
        by: str = "user",
        new_id: str | None = None,
    ) -> Folded:
        """A new run that shares another's log up to a checkpoint. The other run is not touched."""
        changes = changes or {}
        check_given(changes)
        onto = await checkpoint(self.journal, run_id, seq)
        # Whatever would refuse the fork when it runs must refuse it now, before it exists.
        self.check_served(await self.sources.stored(onto.run), onto.run.simulation)
        now_us = self._clock.now_us()
        child = self._ids.run_id(now_us) if new_id is None else check_run_id(new_id)
        forked = coming_off(onto, changes=changes, by=by)
        run, stamped = applied(onto.run, (forked,), run_id=child, at_us=now_us)
        return await self.journal.create(
            run, stamped, at_us=now_us, append_id=self._ids.unique(), after=onto.position
        )

    # -- parts ---------------------------------------------------------------------------------------

    def check_served(self, pipeline: Pipeline, simulation: Mapping[str, Any] | None) -> None:
        """Refuse a pipeline that this process could not run."""
        self._serving.handlers_for(self._serving.definition(pipeline), simulation)

    def is_at_work(self, folded: Folded) -> bool:
        """Whether somebody who is alive holds the run."""
        return folded.run.status is RunStatus.RUNNING and self._claims.standing(folded).is_alive

    def _tools(self, handlers: Mapping[str, Handler]) -> Tools:
        return Tools(
            self.journal,
            self._keeper,
            self._clock,
            self._dice,
            handlers,
            self._observe,
            self._rooms,
            self.forsake,
        )


def _both(first: Observer, second: Observer) -> Observer:
    def observe(run: Run, events: Sequence[Event]) -> None:
        first(run, events)
        second(run, events)

    return observe
