"""The engine: one store, the handlers, and any number of runs. Every surface calls its methods.

Each method says what it promises and asks the part that does it. The parts are below the methods, each with
the parts that it needs. A part is created when it is first used: most processes need few of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from onward.clock import Clock, Dice, Ids
from onward.engine.appender import EngineParts, WaitingCalls
from onward.engine.awaited import AwaitedRuns
from onward.engine.claims import Claims, Dropped, LeaseKeeper, Observer
from onward.engine.control.create import Creating, Submitting
from onward.engine.control.intervene import Answering, HolderRequests
from onward.engine.control.limits import LimitChanges
from onward.engine.control.requests import ForkRequest, Interviewer, Preview, Resume, StartRequest
from onward.engine.control.start import Forking, Resuming, Starting
from onward.engine.definitions import Around, FindHandler, Serving, find_none
from onward.engine.effects import AtMostOnce, Once
from onward.engine.files.receipts import StepReceipts
from onward.engine.files.rooms import Rooms
from onward.engine.files.run_files import RunFiles
from onward.engine.files.workspaces import Workspaces
from onward.engine.journal import Journal
from onward.engine.leftovers import Leftovers
from onward.engine.log import NO_TERMS, Folded, RequestTerms
from onward.engine.loop import Runner
from onward.engine.messages import ChatHistory, Flusher, Hear, MessageTidying, Saying
from onward.engine.queue import RunQueue, Sweeper, SweepResult, Unserved
from onward.engine.sources import Registry, Sources
from onward.engine.stop import StopSwitch
from onward.handlers.port import Handler
from onward.handlers.room import ShowLine
from onward.machine.definition import Definition
from onward.model.chat import Message
from onward.model.events import Event
from onward.model.gate import Answer
from onward.model.run import Gate, Run, Simulation
from onward.model.values import Variables
from onward.pipeline.build import Pipeline, Transform
from onward.pipeline.rules.check import RULES, Rule
from onward.redact.redactor import NOTHING_SECRET, Redactor
from onward.store.port.store import Store
from onward.workspace.port import Trees


def ignore(run: Run, events: Sequence[Event]) -> None:
    """The observer that does not look."""


def tell_nobody(notice: str) -> None:
    """Whoever asks without somebody to tell hears no notice."""


class Extensions(msgspec.Struct, frozen=True):
    """What an app adds to its engine: how pipelines are prepared, and who watches the runs."""

    transforms: Sequence[Transform] = ()
    rules: Sequence[Rule] = RULES
    observe: Observer = ignore
    """Hears the events of every run."""
    around: Around | None = None
    show: ShowLine | None = None
    """Is shown what steps print."""
    hear: Hear | None = None
    """Hears what agents say, as it is stored."""
    find: FindHandler = find_none
    """Finds handlers that are needed and not there: those of flows."""


class Surroundings(msgspec.Struct, frozen=True):
    """What the machine gives an engine: places for files, what commands get, and what is secret."""

    files: RunFiles | None = None
    trees: Trees | None = None
    own: Sequence[str] = ()
    """The paths that are ours and no step's work, wherever they are."""
    variables: Variables | None = None
    """The names of those that commands get."""
    redactor: Redactor = NOTHING_SECRET
    """What it knows is stored nowhere."""
    warn: Callable[[str], None] = tell_nobody


class Engine:
    """One store, the handlers, and any number of runs."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        ids: Ids,
        dice: Dice,
        handlers: Mapping[str, Handler],
        extensions: Extensions | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.store = store
        self._clock, self._ids, self._dice = clock, ids, dice
        self._handlers: dict[str, Handler] = dict(handlers)
        self._extensions = extensions or Extensions()
        self._surroundings = surroundings or Surroundings()

    def beside(self, store: Store) -> Engine:
        """The same engine at another store of the same database, to look at runs with."""
        return Engine(
            store,
            clock=self._clock,
            ids=self._ids,
            dice=self._dice,
            handlers=self._handlers,
            extensions=self._extensions,
            surroundings=self._surroundings,
        )

    # -- runs ----------------------------------------------------------------------------------------

    async def start(self, pipeline: Pipeline, start: StartRequest, stop: StopSwitch | None = None) -> Folded:
        """Create a run, claim it and execute it until it stops."""
        return await self._starting.start(pipeline, start, stop)

    async def submit(self, pipeline: Pipeline, start: StartRequest) -> Folded:
        """Create a run and leave it queued."""
        return await self.submitting.submit(pipeline, start)

    async def submit_many(self, asked: Sequence[tuple[Pipeline, StartRequest]]) -> list[Folded]:
        """Create runs and leave them queued. All are checked before the first is created."""
        return await self.submitting.submit_many(asked)

    async def resume(
        self,
        run_id: str,
        resume: Resume,
        stop: StopSwitch | None = None,
        tell: Callable[[str], None] = tell_nobody,
    ) -> Folded:
        """Check everything, claim a stopped run, and execute it until it stops again. `tell` gets notices."""
        return await self._resuming.resume(run_id, resume, stop, tell)

    async def preview_resume(self, run_id: str, resume: Resume) -> Preview:
        """Make every check of a resume and say what it would do. Nothing is written."""
        return await self._resuming.preview_resume(run_id, resume)

    async def fork(self, run_id: str, fork: ForkRequest, tell: Callable[[str], None] = tell_nobody) -> Folded:
        """A new run that shares another's log up to a checkpoint. The other run does not change."""
        return await self._forking.fork(run_id, fork, tell)

    async def take(self, stop: StopSwitch) -> tuple[Folded, Awaitable[Folded]] | None:
        """Claim the run whose turn it is; returns it, and what to await to execute it until it stops."""
        return await self._queue.take(stop)

    def serve(self, kind: str, handler: Handler) -> None:
        """Serve nodes of this kind from now on, too."""
        self._handlers[kind] = handler

    # -- requests ------------------------------------------------------------------------------------

    async def answer(
        self,
        run_id: str,
        answer: Answer | str,
        *,
        by: str,
        gate: str | None = None,
        shown: str | None = None,
        text: str = "",
        run: bool = True,
        terms: RequestTerms = NO_TERMS,
        stop: StopSwitch | None = None,
        interviewer: Interviewer | None = None,
    ) -> Folded:
        """Decide a gate; with `run`, claim the run in the same transaction and execute it.

        `shown` is the hash of the question as it was shown; another one is not answered. `interviewer`
        answers the gates of runs that this one then manages.
        """
        return await self._answering.answer(
            run_id,
            answer,
            by=by,
            gate=gate,
            shown=shown,
            text=text,
            run=run,
            terms=terms,
            stop=stop,
            interviewer=interviewer,
        )

    async def attend(self, folded: Folded, interviewer: Interviewer, stop: StopSwitch) -> Folded:
        """Answer the gates of a waiting run, as many at once as are taken; what is skipped stays open."""
        return await self._answering.attend(folded, interviewer, stop)

    async def ask(self, folded: Folded, gate: Gate, interviewer: Interviewer) -> Answer:
        """Put one question, and remind of it; it is skipped if a deadline or another answer comes first."""
        return await self._answering.ask(folded, gate, interviewer)

    async def pause(
        self, run_id: str, *, after: str = "step", by: str = "user", terms: RequestTerms = NO_TERMS
    ) -> Folded:
        """Ask a run to stop; it stops at once if no live process holds it."""
        return await self._requests.pause(run_id, after=after, by=by, terms=terms)

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
        return await self._requests.cancel(
            run_id, by=by, reason=reason, is_superseded=is_superseded, terms=terms
        )

    async def cancel_child(self, run_id: str) -> None:
        """Cancel a run that no step manages any more; one that has ended, or never began, is left alone."""
        await self._requests.cancel_child(run_id)

    async def dismiss(self, run_id: str, *, by: str = "user", terms: RequestTerms = NO_TERMS) -> Folded:
        """Let nothing offer or resume a stopped run any more, but a person who names it."""
        return await self._requests.dismiss(run_id, by=by, terms=terms)

    async def steer(
        self, run_id: str, text: str, *, by: str = "user", terms: RequestTerms = NO_TERMS
    ) -> Folded:
        """Give the run's agents an instruction; the next agent step takes it."""
        return await self._requests.steer(run_id, text, by=by, terms=terms)

    # -- looking after runs --------------------------------------------------------------------------

    async def sweep(self) -> SweepResult:
        """Look at every held run once; stop or requeue those whose holder is dead, as their policies say."""
        return await self._sweeper.sweep()

    async def recover(self) -> SweepResult:
        """A server's first sweep: it also reports which questions are still open, and logs what it found."""
        return await self._sweeper.recover()

    def is_at_work(self, folded: Folded) -> bool:
        """Whether a live process holds the run."""
        return self._claims.is_at_work(folded)

    def definition(self, pipeline: Pipeline) -> Definition:
        """The planner's view of a pipeline, created once for many runs."""
        return self._serving.definition(pipeline)

    def check_served(
        self, pipeline: Pipeline, simulation: Simulation | None, workdir: str | None = None
    ) -> None:
        """Refuse a pipeline that this process could not run in this directory."""
        self._serving.check_served(pipeline, simulation, workdir)

    # -- besides runs --------------------------------------------------------------------------------

    async def say(self, chat: str, text: str) -> Message:
        """Store a user's message at the end of a chat; when this returns, it is durable."""
        return await self.saying.say(chat, text)

    async def effect(self, key: str, function: Callable[[], Any], *, only_success: bool = False) -> Any:
        """Call a function at most once for the key, and return its result."""
        return await self.effects.call(key, function, Once(only_success=only_success))

    async def close(self) -> None:
        """Release the runs that this process holds and does not execute, and close the store."""
        created = vars(self)
        if "_claims" in created:
            await self.dropped.settle()
        if "flusher" in created:
            await self.flusher.close()
        await self.store.close()

    # -- parts that others use -----------------------------------------------------------------------

    @property
    def variables(self) -> Variables | None:
        """The names of the variables that commands get."""
        return self._surroundings.variables

    @property
    def redactor(self) -> Redactor:
        """What it knows is stored nowhere."""
        return self._surroundings.redactor

    @property
    def dropped(self) -> Dropped:
        """The leases of this process under which it executes nothing."""
        return self._claims.dropped

    @property
    def unserved(self) -> Unserved:
        """What runs of the queue needed and this process did not have."""
        return self._queue.unserved

    @cached_property
    def sources(self) -> Sources:
        """Where definitions come from."""
        known_types, added = {*self._handlers, *Definition.BUILT_IN}, self._extensions
        return Sources(self.store.blobs, added.transforms, known_types, added.rules)

    @cached_property
    def registry(self) -> Registry:
        """The registered pipelines."""
        return Registry(self.store, self.sources)

    @cached_property
    def journal(self) -> Journal:
        """Reads and writes the logs of runs."""
        return Journal(self.store.log, self._clock, self.redactor)

    @cached_property
    def leftovers(self) -> Leftovers:
        """Looks at what steps in doubt left."""
        around = self._surroundings
        folder = None if around.files is None else around.files.folder
        return Leftovers(self.store, folder, around.trees, around.own)

    @cached_property
    def submitting(self) -> Submitting:
        """Creates runs for the queue."""
        return Submitting(self._creating, self.journal, self._clock)

    @cached_property
    def saying(self) -> Saying:
        """Stores whole messages."""
        return Saying(self.store.messages, self._clock, self._ids, self.redactor)

    @cached_property
    def history(self) -> ChatHistory:
        """Reads what was said in a chat before a run, for its agents."""
        return ChatHistory(self.store.messages, self.store.intakes)

    @cached_property
    def flusher(self) -> Flusher:
        """Stores the text of the messages that this process streams."""
        return Flusher(self.store.messages, self._clock, redactor=self.redactor, hear=self._extensions.hear)

    @cached_property
    def effects(self) -> AtMostOnce:
        """Runs effects outside steps."""
        lease_s = self.store.leases.lease_s
        return AtMostOnce(self.store.effects, self._clock, self._ids, lease_s, redactor=self.redactor)

    @cached_property
    def waiting(self) -> WaitingCalls:
        """How many calls of this process wait."""
        return WaitingCalls()

    # -- parts that only the engine uses -------------------------------------------------------------

    @cached_property
    def _receipts(self) -> StepReceipts | None:
        files = self._surroundings.files
        return None if files is None else StepReceipts(files, self.store.log, self.sources)

    @cached_property
    def _observe(self) -> Observer:
        receipts, observe = self._receipts, self._extensions.observe
        if receipts is None:
            return observe
        return receipts.after if observe is ignore else _both(receipts.after, observe)

    @cached_property
    def _claims(self) -> Claims:
        return Claims(self.store.leases, self.journal, self._clock, self._ids, self._observe)

    @cached_property
    def _workspaces(self) -> Workspaces:
        around = self._surroundings
        return Workspaces(around.trees, around.files, around.warn)

    @cached_property
    def _serving(self) -> Serving:
        variables = () if self.variables is None else self.variables.passed
        around, find = self._extensions.around, self._extensions.find
        return Serving(self._handlers, self, self._clock, around, variables, find)

    @cached_property
    def _runner(self) -> Runner:
        files = self._surroundings.files
        parts = EngineParts(
            journal=self.journal,
            keeper=LeaseKeeper(self.store.leases, self._clock),
            clock=self._clock,
            dice=self._dice,
            handlers=self._handlers,
            observe=self._observe,
            rooms=Rooms(self.store.blobs, self._clock, files, self.redactor),
            workspaces=self._workspaces,
            blobs=self.store.blobs,
            limits=self.store.limits,
            services=self,
            managed=self,
            receipts=self._receipts,
            show=self._extensions.show,
        )
        return Runner(self._claims, self._serving, self.sources, parts, files, self._awaited)

    @cached_property
    def _awaited(self) -> AwaitedRuns:
        return AwaitedRuns(self.store.runs, self._claims, self._clock)

    @cached_property
    def _creating(self) -> Creating:
        return Creating(
            *(self.journal, self._clock, self._ids, self._serving, self.sources, self._workspaces),
            self.store.runs,
            self._limits,
        )

    @cached_property
    def _limits(self) -> LimitChanges:
        return LimitChanges(self.store, self._clock)

    @cached_property
    def _starting(self) -> Starting:
        return Starting(self._creating, self.journal, self._claims, self._clock, self._serving, self._runner)

    @cached_property
    def _requests(self) -> HolderRequests:
        return HolderRequests(self.journal, self._claims, self._workspaces, self._awaited)

    @cached_property
    def _resuming(self) -> Resuming:
        return Resuming(
            journal=self.journal,
            claims=self._claims,
            clock=self._clock,
            serving=self._serving,
            sources=self.sources,
            runner=self._runner,
            requests=self._requests,
            leftovers=self.leftovers,
            limits=self._limits,
        )

    @cached_property
    def _answering(self) -> Answering:
        return Answering(self.journal, self._claims, self._clock, self._runner)

    @cached_property
    def _forking(self) -> Forking:
        return Forking(
            log=self.store.log,
            journal=self.journal,
            clock=self._clock,
            ids=self._ids,
            serving=self._serving,
            sources=self.sources,
            workspaces=self._workspaces,
            runs=self.store.runs,
        )

    @cached_property
    def _queue(self) -> RunQueue:
        return RunQueue(
            self.store.measures, self.journal, self._claims, self._clock, self._handlers, self._runner
        )

    @cached_property
    def _sweeper(self) -> Sweeper:
        tidying = MessageTidying(self.store.messages, self._clock)
        return Sweeper(
            *(self.store.runs, self.store.gates, self.store.workers, self._claims, tidying), self._awaited
        )


def _both(first: Observer, second: Observer) -> Observer:
    def observe(run: Run, events: Sequence[Event]) -> None:
        first(run, events)
        second(run, events)

    return observe
