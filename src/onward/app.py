"""The Python surface: open a store, register effects, run pipelines.

app = Onward("runs.db")

@app.handler("greet")
async def greet(step):
    return {"greeting": f"hello {step.get('name')}"}

async with app:
    run = await app.run("hello.dot", inputs={"name": "you"})
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, cast

from onward.config import file_mode, own_environment, tool_variables
from onward.engine.control.interview import AutoApprove, CallbackInterviewer, Interviewer
from onward.engine.control.sources import read_source
from onward.engine.engine import Engine, Fork, Resume, Start, ignore
from onward.engine.log.reader import Folded
from onward.engine.loop.parts import Observer, ShowLine
from onward.engine.loop.serving import Around
from onward.engine.loop.stop import StopSwitch
from onward.errors import InvalidInput
from onward.handlers.function import FunctionHandler, Returned
from onward.handlers.isolated import IsolatedHandler, importable
from onward.handlers.isolation import ANSWER_BYTES_MAX
from onward.handlers.port import Handler
from onward.machine.definition import AGENT
from onward.model.answer import Answer
from onward.model.run import Run
from onward.model.simulation import Simulation
from onward.operations.local_only.workdir import directory_of
from onward.pipeline.build import BUILT_IN_TYPES, Pipeline, Transform, build
from onward.pipeline.prepare import checked_transform
from onward.pipeline.rules.check import RULES, Problem, Rule, Subject
from onward.pipeline.rules.custom import custom_rule, rules_here, with_one_severity
from onward.pipeline.rules.tools import rules_beside
from onward.process import SystemSpawn
from onward.read.dialect_events import DialectEvent, Translator
from onward.read.lookup import log_pages
from onward.store.codec import unseal
from onward.store.port.store import Store
from onward.wiring import make_engine, open_store, runs_of

# An isolated function is given an IsolatedStep, any other a StepContext.
F = TypeVar("F", bound=Callable[[Any], Returned | Awaitable[Returned]])
TransformT = TypeVar("TransformT", bound=Transform)
RuleT = TypeVar("RuleT", bound=Callable[[Subject], Iterable[Problem]])
AnswersT = TypeVar("AnswersT", bound=Callable[..., Any] | Interviewer)


class Onward:
    """An application: a store, the handlers, transforms and interviewers registered with it."""

    def __init__(
        self, store: str | Store = ".onward/onward.db", *, runs: str | None = None, files: str | None = None
    ) -> None:
        """`runs`: where steps have their directories; without it, next to the database. `files`: what they
        leave there (full, lazy or off), which overrides the pipelines."""
        self.store, self.runs, self.files = store, runs, file_mode(files)
        self.lease_s: float | None = None
        self._engine: Engine | None = None
        self._opening = asyncio.Lock()
        self._spawn = SystemSpawn(output_bytes_max=ANSWER_BYTES_MAX)
        self.handlers: dict[str, Handler] = {}
        self.transforms: list[Transform] = []
        self.rules: list[Rule] = list(RULES)
        self.interviewers: dict[str, Interviewer] = {"auto": AutoApprove()}

    # -- registering ---------------------------------------------------------------------------------

    def handler(self, kind: str, *, isolated: bool = False) -> Callable[[F], F]:
        """Register a function as the handler of a node `type`; a name that exists is replaced.

        `isolated`: call it in its own process, which can be ended at any time. Another process must be able
        to import the function: it is not async, and at the top level of a module.
        """
        if not kind:
            raise InvalidInput("a handler needs a type name: @app.handler('name').")

        def register(function: F) -> F:
            self.handlers[kind] = self._isolated(function) if isolated else FunctionHandler(function)
            self.rules[:] = rules_beside(kind, self.rules)
            return function

        return register

    def _isolated(self, function: Callable[..., Any]) -> Handler:
        return IsolatedHandler(importable(function), self._spawn, own_environment)

    def transform(self, function: TransformT) -> TransformT:
        """Register a function from graph to graph, or an object with such an `apply`.

        They apply in order, after `$goal` and the stylesheet and before the checks, in every command.
        """
        self.transforms.append(checked_transform(function))
        return function

    def rule(self, name: str, severity: str = "warning") -> Callable[[RuleT], RuleT]:
        """Register a function that yields the `Problem`s it finds in a `Subject` as a rule of the checker."""

        def register(function: RuleT) -> RuleT:
            self.rules.append(custom_rule(name, severity, function))
            return function

        return register

    def severity(self, rule: str, severity: str) -> None:
        """Change the severity of a rule: `app.severity("reachability", "warning")`."""
        self.rules[:] = with_one_severity(self.rules, rule, severity)

    def interviewer(self, name: str) -> Callable[[AnswersT], AnswersT]:
        """Register who answers gates under a name: an interviewer, or a function `(run, gate) -> answer`.

        The function may be async. It returns an `Answer`, a choice or words, True or False for a verdict, or
        None to leave the gate open.
        """
        if not name:
            raise InvalidInput("an interviewer needs a name: @app.interviewer('name').")

        def register(who: AnswersT) -> AnswersT:
            is_function = not hasattr(who, "ask")
            self.interviewers[name] = (
                CallbackInterviewer(name, cast("Callable[..., Any]", who))
                if is_function
                else cast("Interviewer", who)
            )
            return who

        return register

    # -- opening -------------------------------------------------------------------------------------

    async def engine(
        self,
        *,
        observe: Observer = ignore,
        tool_env: tuple[str, ...] = (),
        warn: Callable[[str], None] | None = None,
        around: Around | None = None,
        watched: Callable[[Store], Store] = lambda store: store,
        show: ShowLine | None = None,
    ) -> Engine:
        """The engine of this app; the first call opens the store.

        `around` and `watched` wrap handlers and the store, to watch them; `show` gets what commands print.
        """
        async with self._opening:
            if self._engine is None:
                store = self.store
                if isinstance(store, str):
                    store = await open_store(store, lease_s=self.lease_s)
                self._engine = make_engine(
                    watched(store),
                    handlers=self.handlers,
                    transforms=self.transforms,
                    rules=self.rules,
                    observe=observe,
                    tool_env=tool_env,
                    runs=self.runs_directory,
                    files=self.files,
                    warn=warn,
                    db=self.store if isinstance(self.store, str) else None,
                    around=around,
                    show=show,
                )
            return self._engine

    @property
    def runs_directory(self) -> str | None:
        """Where runs have their directories; None if that is not set and the store has no path."""
        if self.runs is not None:
            return self.runs
        return runs_of(self.store) if isinstance(self.store, str) else None

    async def __aenter__(self) -> Onward:
        await self.engine()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.close()

    # -- running -------------------------------------------------------------------------------------

    async def run(
        self,
        pipeline: str | Pipeline,
        *,
        inputs: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        simulate: bool | Mapping[str, Any] = False,
        real_tools: bool = False,
        answers: str | Interviewer | None = None,
        stop: StopSwitch | None = None,
        workdir: str | None = None,
        workspace: str | None = None,
        workspace_mode: str | None = None,
        keep_workspace: bool = False,
    ) -> Run:
        """Run a pipeline (a path, or one from `pipeline()`) until it stops; returns its state.

        `simulate`: execute nothing; a script says what steps answer. With `real_tools` only agents are
        simulated. `workdir`: where its commands work, also when it is resumed elsewhere; else the current
        directory.
        """
        engine, stop = await self.engine(), stop or StopSwitch()
        interviewer = self._interviewer(answers)
        prepared = engine.sources.read(pipeline) if isinstance(pipeline, str) else pipeline
        start = Start(
            inputs=inputs or {},
            run_id=run_id,
            simulation=_simulation(simulate, real_tools),
            interviewer=interviewer,
            workdir=directory_of(workdir),
            workspace=workspace,
            workspace_mode=workspace_mode,
            keep_workspace=keep_workspace,
        )
        return (await self._attended(await engine.start(prepared, start, stop), interviewer, stop)).run

    async def resume(
        self,
        run_id: str,
        *,
        answers: str | Interviewer | None = None,
        stop: StopSwitch | None = None,
        **how: Any,
    ) -> Run:
        """Continue a stopped run; the keywords are those of `Resume` (from_node, action, workdir, …).

        `run=False` only decides: the run is queued, and a worker executes it.
        """
        engine, stop = await self.engine(), stop or StopSwitch()
        interviewer = self._interviewer(answers)
        return (
            await self._attended(
                await engine.resume(run_id, Resume(interviewer=interviewer, **how), stop), interviewer, stop
            )
        ).run

    async def answer(self, run_id: str, answer: str | Answer, *, by: str = "user", **how: Any) -> Run:
        """Answer a run's open gate and continue the run; the keywords are `gate`, `text` and `run`."""
        return (await (await self.engine()).answer(run_id, answer, by=by, **how)).run

    async def approve(self, run_id: str, text: str = "", *, by: str = "user", **how: Any) -> Run:
        """Answer yes at a run's open gate, whatever its choices are called."""
        return await self.answer(run_id, Answer.approve(text), by=by, **how)

    async def reject(self, run_id: str, text: str = "", *, by: str = "user", **how: Any) -> Run:
        """Answer no at a run's open gate; without an edge for that, the run fails as rejected."""
        return await self.answer(run_id, Answer.reject(text), by=by, **how)

    async def replay(
        self,
        run_id: str,
        checkpoint: int | None = None,
        *,
        changes: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> Run:
        """Fork a run at one of its checkpoints, or before a step (`from_step`), and run the fork.

        The other keywords are those of `Fork` (accept_changes, original, new_id, …).
        """
        engine = await self.engine()
        forked = await engine.fork(run_id, Fork(checkpoint, changes=changes or {}, **how))
        return (await engine.resume(forked.run.id, Resume(original=True))).run

    async def pause(self, run_id: str, *, after: str = "step") -> Run:
        """Ask a run to stop."""
        return (await (await self.engine()).pause(run_id, after=after)).run

    async def cancel(self, run_id: str, *, reason: str = "") -> Run:
        """Cancel a run for good; `reason` is free text."""
        return (await (await self.engine()).cancel(run_id, reason=reason)).run

    async def steer(self, run_id: str, text: str, *, by: str = "user") -> Run:
        """Give the run's agents an instruction; the next agent step finds it in `step.steering`."""
        return (await (await self.engine()).steer(run_id, text, by=by)).run

    async def effect(self, key: str, function: Callable[[], Any], *, only_success: bool = False) -> Any:
        """What `function` returns; it is called at most once for `key` in this database.

        Inside a step use `step.effect`, whose keys are the step's own.
        """
        return await (await self.engine()).effect(key, function, only_success=only_success)

    async def get(self, run_id: str) -> Run:
        """The current state of a run."""
        return (await (await self.engine()).journal.load(run_id)).run

    async def dialect_events(self, run_id: str) -> AsyncIterator[DialectEvent]:
        """The log of a run so far, in the event names of the DOT dialect."""
        engine, translator = await self.engine(), Translator(run_id)
        async for page in log_pages(engine.store.log, run_id):
            for record in page:
                for event in translator.translate(unseal(record), record.at_us):
                    yield event

    def read(self, path: str, *, tool_env: tuple[str, ...] | None = None) -> Pipeline:
        """A pipeline from a file, prepared and checked as for `submit`; opens no store.

        With `tool_env`, also checked for variables that its commands would not get here.
        """
        return self._read(path, self.rules, tool_env)

    def validate(self, path: str, *, tool_env: tuple[str, ...] | None = None) -> Pipeline:
        """A pipeline from a file that this app can run; InvalidPipeline says what a run would refuse."""
        return self._read(path, rules_here(self.rules, has_agent=AGENT in self.handlers), tool_env)

    def _read(self, path: str, rules: Sequence[Rule], tool_env: tuple[str, ...] | None) -> Pipeline:
        variables = None if tool_env is None else tool_variables(tool_env)
        known = {*self.handlers, *BUILT_IN_TYPES}
        return build(
            read_source(path),
            file=path,
            transforms=self.transforms,
            known_types=known,
            rules=rules,
            variables=variables,
        )

    async def pipeline(self, source: str, *, name: str = "pipeline") -> Pipeline:
        """A pipeline from its text."""
        return (await self.engine()).sources.prepare(source, f"<{name}>")

    def _interviewer(self, answers: str | Interviewer | None) -> Interviewer | None:
        """The interviewer that answers; an unknown name is refused before anything starts."""
        if answers is None or answers == "wait":
            return None
        found = self.interviewers.get(answers) if isinstance(answers, str) else answers
        if found is None:
            names = ", ".join(sorted(self.interviewers))
            raise InvalidInput(f"there is no interviewer {answers!r}; registered: {names}.")
        return found

    async def _attended(self, folded: Folded, interviewer: Interviewer | None, stop: StopSwitch) -> Folded:
        if interviewer is None:
            return folded
        return await (await self.engine()).attend(folded, interviewer, stop)


def _simulation(simulate: bool | Mapping[str, Any], real_tools: bool) -> Simulation | None:
    if simulate is False:
        return None
    return Simulation(script={} if simulate is True else dict(simulate), real_tools=real_tools)
