"""The engine: its parts put together. Every surface calls its functions: start, resume, answer, cancel, …"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from onward.clock import Clock, Dice, Ids
from onward.engine.appender import EngineParts, Observer, WaitingCalls
from onward.engine.claims import Claims
from onward.engine.control.create import Creating, Submitting
from onward.engine.control.intervene import Answering, HolderRequests
from onward.engine.control.limits import LimitChanges, has_room
from onward.engine.control.start import Forking, Resuming, Starting
from onward.engine.definitions import Around, Serving
from onward.engine.effects import AtMostOnce, Once
from onward.engine.files.receipts import StepReceipts
from onward.engine.files.rooms import Rooms
from onward.engine.files.run_files import RunFiles
from onward.engine.files.workspaces import Workspaces
from onward.engine.journal import Journal
from onward.engine.lease import LeaseKeeper
from onward.engine.leftovers import Leftovers
from onward.engine.loop import Runner
from onward.engine.messages import Flusher, MessageTidying, Saying
from onward.engine.overseer import Overseer
from onward.engine.queue import RunQueue, Sweeper
from onward.engine.sources import Registry, Sources
from onward.handlers.port import Handler
from onward.handlers.room import ShowLine
from onward.machine.definition import Definition
from onward.model.events import Event
from onward.model.run import Run
from onward.model.values import Variables
from onward.pipeline.build import Transform
from onward.pipeline.rules.check import RULES, Rule
from onward.redact.redactor import NOTHING_SECRET, Redactor
from onward.store.port.store import Store
from onward.workspace.port import Trees


def ignore(run: Run, events: Sequence[Event]) -> None:
    """The observer that does not look."""


class Engine:
    """One store, the handlers, and any number of runs. Each function is a method of the class that has it."""

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
        variables: Variables | None = None,
        show: ShowLine | None = None,
        redactor: Redactor = NOTHING_SECRET,
    ) -> None:
        """`own`: the paths that are ours and no step's work, wherever they are. `variables`: the names of
        those that commands get. `redactor`: what it knows is stored nowhere."""
        self.store, self.variables, self.redactor = store, variables, redactor
        self.sources = Sources(store.blobs, transforms, {*handlers, *Definition.BUILT_IN}, rules)
        self.registry = Registry(store, self.sources)
        receipts = None
        if files is not None:
            receipts = StepReceipts(files, store.log, self.sources)
            observe = receipts.after if observe is ignore else _both(receipts.after, observe)
        self.journal = journal = Journal(store.log, clock, redactor)
        self.leftovers = Leftovers(store, None if files is None else files.folder, trees, own)
        self.flusher = Flusher(store.messages, clock, redactor=redactor)
        self.waiting = WaitingCalls()
        self.saying = Saying(store.messages, clock, ids, redactor)
        self.say = self.saying.say
        self.effects = AtMostOnce(store.effects, clock, ids, store.leases.lease_s, redactor=redactor)
        claims = Claims(store.leases, journal, clock, ids, observe)
        self.dropped, self.is_at_work = claims.dropped, claims.is_at_work
        workspaces = Workspaces(trees, files, warn)
        requests = HolderRequests(journal, claims, workspaces)
        self.pause, self.cancel, self.steer = requests.pause, requests.cancel, requests.steer
        self.dismiss = requests.dismiss
        serving = Serving(
            handlers,
            lambda agent, interviewer: Overseer(self, clock, agent, interviewer),
            around,
            () if variables is None else variables.passed,
        )
        self.check_served, self.definition = serving.check_served, serving.definition
        parts = EngineParts(
            journal,
            LeaseKeeper(store.leases, clock),
            clock,
            dice,
            handlers,
            observe,
            Rooms(store.blobs, clock, files, redactor),
            workspaces,
            requests.cancel_child,
            self.effects,
            store.blobs,
            self.flusher,
            lambda: self.sweep(),
            self.waiting,
            receipts,
            show,
            redactor,
            store.limits.take_warnings,
            partial(has_room, store.limits),
        )
        self._runner = runner = Runner(claims, serving, self.sources, parts, files)
        creating = Creating(journal, clock, ids, serving, self.sources, workspaces)
        self.start = Starting(creating, journal, claims, clock, serving, runner).start
        self.submitting = Submitting(creating, journal, clock)
        self.submit, self.submit_many = self.submitting.submit, self.submitting.submit_many
        resuming = Resuming(
            *(journal, claims, clock, serving, self.sources, runner, requests, self.leftovers),
            LimitChanges(store, clock),
        )
        self.resume, self.preview_resume = resuming.resume, resuming.preview_resume
        answering = Answering(journal, claims, clock, runner)
        self.answer, self.attend, self.ask = answering.answer, answering.attend, answering.ask
        self.fork = Forking(store.log, journal, clock, ids, serving, self.sources, workspaces).fork
        taking = RunQueue(store.measures, journal, claims, clock, handlers, runner.run_from_queue)
        self.take, self.unserved = taking.take, taking.unserved
        self._sweeper = Sweeper(
            store.runs, store.gates, store.workers, claims, MessageTidying(store.messages, clock)
        )
        self.sweep, self.recover = self._sweeper.sweep, self._sweeper.recover

    async def effect(self, key: str, function: Callable[[], Any], *, only_success: bool = False) -> Any:
        """Call a function at most once for the key, and return what it returned."""
        return await self.effects.call(key, function, Once(only_success=only_success))

    async def close(self) -> None:
        """Release the runs that this process holds and does not execute, and close the store."""
        await self.dropped.settle()
        await self.flusher.close()
        await self.store.close()


def _both(first: Observer, second: Observer) -> Observer:
    def observe(run: Run, events: Sequence[Event]) -> None:
        first(run, events)
        second(run, events)

    return observe
