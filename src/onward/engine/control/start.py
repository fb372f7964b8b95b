"""Start, resume and fork runs. Every surface calls this.

- Starting: a run is created, claimed in the same transaction, and executed.
- Resuming: every check, then the decision and the claim, then execution.
- Forking: a new run that shares the log of another up to a checkpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from onward.clock import Clock, Ids
from onward.engine.claims import Claims, Reply
from onward.engine.control.create import Creating, check_new_id
from onward.engine.control.intervene import HolderRequests
from onward.engine.control.limits import LimitChanges, check_limits
from onward.engine.control.requests import ForkRequest, Preview, Resume, StartRequest
from onward.engine.definitions import Serving, check_still_there, check_workdir
from onward.engine.files.workspaces import Workspaces
from onward.engine.flow_log import before_call
from onward.engine.journal import Journal
from onward.engine.leftovers import Leftovers, view_left
from onward.engine.log import Folded, RequestTerms, applied, redacted_event
from onward.engine.loop import Runner, ServedPipeline
from onward.engine.sources import Sources
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput, Refused, StaleHistory, StepNotFound
from onward.handlers.port import ChecksAnswers, Handler
from onward.machine.decide.calls import calls_in_doubt
from onward.machine.decide.requests import HolderView, decide_claim
from onward.machine.decide.resume import check_resumable, decide_resume, pipeline_changed, repeat_notice
from onward.machine.definition import Definition
from onward.machine.path import nodes_ahead
from onward.machine.plan.action import Action
from onward.machine.plan.planner import advance
from onward.model.call import CallFinished
from onward.model.context import check_given, copied
from onward.model.events import Event, RunForked
from onward.model.gate import GateDecided
from onward.model.ids import called, node_of, place_of
from onward.model.run import Run
from onward.model.values import EVENT, missing_now
from onward.pipeline.build import Pipeline
from onward.pipeline.flow_source import is_flow_kind
from onward.read.lookup import CHECKPOINT_KINDS, checkpoint_before, log_pages, no_place_named
from onward.store.codec import unseal
from onward.store.owner import is_ending, key_occupied
from onward.store.port.log import RunLog, StoredEvent
from onward.store.port.runs import Runs


class Starting(msgspec.Struct, frozen=True):
    """Creates runs and executes them."""

    creating: Creating
    journal: Journal
    claims: Claims
    clock: Clock
    serving: Serving
    runner: Runner

    async def start(self, pipeline: Pipeline, start: StartRequest, stop: StopSwitch | None = None) -> Folded:
        """Create a run, claim it and execute it until it stops."""
        definition = self.creating.definition(pipeline, start)
        handlers = self.serving.handlers_for(definition, start.simulation, start.interviewer)
        check_workdir(start.workdir, is_here=True)
        stop = stop or StopSwitch(clock=self.clock)
        claimed, action = await self._create(pipeline, definition, start, stop)
        if claimed.folded.run.is_final:  # no step of it needed more than a decision
            await self.runner.leave_files(definition, claimed.folded)
        return await self.runner.run(
            claimed, ServedPipeline(definition, handlers, start.interviewer), stop, action
        )

    async def _create(
        self, pipeline: Pipeline, definition: Definition, start: StartRequest, stop: StopSwitch
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
        await self.creating.raise_limits(creation, start)
        claimed = await self.claims.create(run_id, self.journal.put(creation), events)
        return claimed, ahead.action


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
    served: ServedPipeline
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
        if resume.only_stopped:
            await self._check_key_free(known.run)
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
                definition,
                known.run.simulation,
                resume.interviewer,
                nodes_ahead(definition.graph, known.run, resume.from_node),
            )
            if executes
            else {}
        )
        if resume.action == "continue" and executes:
            _check_answers(known.run, definition, handlers, resume)
        twice = repeat_notice(definition, known.run, resume.from_node)
        lacks = self._lacking(known.run) if executes else ""
        notice = "; ".join(filter(None, (notice, twice, lacks)))
        return _Ready(
            known, pipeline, notice, ServedPipeline(definition, handlers, resume.interviewer), resume
        )

    async def _check_key_free(self, run: Run) -> None:
        """Refuse a resume that would wait, because another run works under the same exclusive key."""
        if run.exclusive_key is None:
            return
        for held in await self.limits.store.runs.held():
            row, holder = held.row, held.holder
            if row.exclusive_key == run.exclusive_key and row.id != run.id and holder and holder.is_alive:
                raise key_occupied(run.exclusive_key, row.id, holder.owner)

    def _lacking(self, run: Run) -> str:
        """The notice that commands do not receive variables now that they got before; else empty."""
        names = missing_now(run.variables, self.serving.variables)
        if not names:
            return ""
        it = "it" if len(names) == 1 else "them"
        return (
            f"its commands received {', '.join(names)} when the run was started, and would not receive {it} "
            f"now; set {it}, and name {it} in tool_env"
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


def _check_answers(run: Run, definition: Definition, handlers: Mapping[str, Handler], resume: Resume) -> None:
    """Let the handler of the step in doubt see what a person says that its calls answered."""
    for opened in run.open_steps.values():
        handler: object = handlers.get(definition.kind(opened.node))
        in_doubt = calls_in_doubt(opened)
        is_meant = resume.answers.keys() <= in_doubt.keys()  # else the request is refused for that
        if in_doubt and is_meant and isinstance(handler, ChecksAnswers):
            handler.check_answers({call: resume.answers.get(call) for call in in_doubt})


def _is_ending(folded: Folded) -> bool:
    """Whether the holder was killed, and its commands are being killed after it."""
    return folded.holder is not None and folded.holder.is_alive and is_ending(folded.holder.owner)


class Forking(msgspec.Struct, frozen=True):
    """Creates forks."""

    log: RunLog
    journal: Journal
    clock: Clock
    ids: Ids
    serving: Serving
    sources: Sources
    workspaces: Workspaces
    runs: Runs

    async def fork(
        self, run_id: str, fork: ForkRequest, tell: Callable[[str], None] = lambda notice: None
    ) -> Folded:
        """A new run that shares another's log up to a checkpoint. The other run does not change.

        The definition is chosen as for a resume: the one at the checkpoint, unless a change is accepted.
        """
        check_given(fork.changes)
        now_us = self.clock.now_us()
        child = self.ids.run_id(now_us) if fork.new_id is None else await check_new_id(self.runs, fork.new_id)
        made = await self.journal.find_made(child, fork.terms)
        if made is not None:  # the first answer, whatever became of the file since
            return made
        parent = await self._checkpoint(run_id, await self._seq(run_id, fork))
        if fork.changes and not fork.may_answer:
            await self._check_undecided(parent)
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
        definition = self.serving.definition(pipeline)
        changed = pipeline_changed(definition, parent.run, pipeline.hash, by=fork.by)
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

    async def _seq(self, run_id: str, fork: ForkRequest) -> int:
        """The checkpoint that is meant."""
        if fork.checkpoint is not None and fork.from_step is not None:
            raise InvalidInput("a checkpoint and --from contradict each other; give one of them.")
        if fork.checkpoint is not None:
            EVENT.check(fork.checkpoint, "the checkpoint")
            return fork.checkpoint
        parent = await self.journal.load(run_id)
        if fork.from_step is None:
            raise await no_place_named(self.log, run_id, parent.position.seq)
        flows = await self._flows(parent.run)
        before = await before_call(self.journal, parent.run, flows, fork.from_step)
        if before is not None:
            return before
        try:
            return await checkpoint_before(self.log, parent.run, fork.from_step)
        except StepNotFound as error:
            if not flows:
                raise
            more = f"`onward calls {called(run_id)}` lists the steps of its flow."
            raise StepNotFound(error.wanted, error.known, more) from None

    async def _flows(self, run: Run) -> Collection[str]:
        """The nodes of a run that are flows."""
        nodes = (await self.sources.stored(run)).graph.nodes.values()
        return [node.id for node in nodes if is_flow_kind(node.type)]

    async def _check_undecided(self, parent: Folded) -> None:
        """Refuse other values behind a gate: whoever answered it has not seen them."""
        async for page in log_pages(self.log, parent.run.id):
            for record in page:
                if record.seq > parent.position.seq:
                    return
                if record.kind == GateDecided.__name__:
                    raise Refused(
                        "wrong_role",
                        f"run {parent.run.id} has passed a gate there; to change values behind it needs the "
                        "role approver.",
                        details={"role": "approver"},
                    )

    async def _can_fork(self, run_id: str, record: StoredEvent) -> bool:
        """Whether a fork can begin after this event: a checkpoint, or a call of a flow."""
        if record.kind in CHECKPOINT_KINDS:
            return True
        event = unseal(record) if record.kind == CallFinished.__name__ else None
        if not isinstance(event, CallFinished):
            return False
        return node_of(place_of(event.step)) in await self._flows((await self.journal.load(run_id)).run)

    async def _checkpoint(self, run_id: str, seq: int) -> Folded:
        """A run as it stood at one of its checkpoints; refuses any other event."""
        head = (await self.journal.load(run_id)).position.seq
        found = await self.journal.read(run_id, after=seq - 1, limit=1) if 1 <= seq <= head else ()
        if not found or not await self._can_fork(run_id, found[0]):
            raise InvalidInput(
                f"event {seq} of run {run_id} is not a checkpoint; `onward checkpoints {run_id}` lists them."
            )
        return await self.journal.load_at(run_id, seq)
