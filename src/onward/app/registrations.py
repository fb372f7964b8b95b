"""What a program registers with its app, and the app with its store.

Handlers, tools, transforms, rules and interviewers are registered. The store is opened by the first
call that needs it and closed at the end. With it come registered pipelines: definitions are stored
under names, and runs are started by them.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, overload

import msgspec

from onward.clock import SystemClock
from onward.config import file_mode, load_settings, own_environment, own_redactor
from onward.engine.claims import Observer
from onward.engine.control.requests import AutoApprove, CallbackInterviewer, Interviewer
from onward.engine.definitions import Around
from onward.engine.engine import Engine, Extensions, ignore
from onward.engine.messages import Hear
from onward.engine.sources import is_source
from onward.errors import InvalidInput
from onward.handlers.function import (
    ANSWER_BYTES_MAX,
    Elsewhere,
    FunctionHandler,
    IsolatedHandler,
    Returned,
    find_culprit,
    importable,
)
from onward.handlers.port import Handler
from onward.handlers.room import ShowLine
from onward.machine.definition import AGENT
from onward.model.events import STDERR, Event
from onward.model.ids import read_wanted
from onward.model.run import Run
from onward.model.settings import DEFAULT_CHATS, ChatSettings
from onward.model.values import shown
from onward.operations.here.submission import addition, is_registered_name, named
from onward.operations.local.database import LocalPipelines
from onward.operations.requests import AddPipeline, EnablePipeline, GetPipeline, ListPipelines, RemovePipeline
from onward.pipeline.build import Pipeline, Transform, build, checked_transform
from onward.pipeline.flow_source import is_flow_kind
from onward.pipeline.rules.check import (
    RULES,
    Problem,
    Rule,
    Subject,
    custom_rule,
    secret_rule,
    with_one_severity,
)
from onward.pipeline.rules.steps import rules_beside
from onward.process import SystemSpawn
from onward.redact.redactor import Redactor, cleaner_of
from onward.replies.database import PipelineAdded, PipelineList, PipelineListed, PipelinePage, PipelineRemoved
from onward.store.port.store import Store
from onward.threads import LoopWatch
from onward.wiring import (
    has_programs,
    log_warning,
    make_agent,
    make_engine,
    make_mcp,
    make_toolbox,
    open_models,
    open_store,
    open_traces,
    runs_of,
)

if TYPE_CHECKING:
    from onward.agents.models import Models
    from onward.agents.tools.mcp.source import McpTools
    from onward.agents.tools.port import AgentTool, ToolRules
    from onward.flows.define import Bound, Flow, Step
    from onward.observe.traces import Traces


def _both(first: Observer, second: Observer) -> Observer:
    """Both hear what was committed."""

    def observe(run: Run, events: Sequence[Event]) -> None:
        first(run, events)
        second(run, events)

    return observe


# An isolated function is given an IsolatedStep, any other a StepContext.
F = TypeVar("F", bound=Callable[[Any], Returned | Awaitable[Returned]])
TransformT = TypeVar("TransformT", bound=Transform)
RuleT = TypeVar("RuleT", bound=Callable[[Subject], Iterable[Problem]])
ToolT = TypeVar("ToolT", bound=Callable[..., Any])
AnswersT = TypeVar("AnswersT", bound=Callable[..., Any] | Interviewer)


class AppRegistrations:
    """An app's handlers, transforms, rules and interviewers."""

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor
        """Knows the secrets that are stored nowhere; `add` those that the environment does not have."""
        # Standard output is the answer: it is read first, and redacted then.
        cleaner = cleaner_of(lambda: self.redactor, streams=(STDERR,))
        spawn = SystemSpawn(output_bytes_max=ANSWER_BYTES_MAX, cleaner=cleaner)
        self._elsewhere = Elsewhere(spawn, own_environment)
        self.handlers: dict[str, Handler] = {}
        self.flows: dict[str, Flow[Any, Any]] = {}
        """The flows that this app runs, by the names of their handlers."""
        self._places: dict[str, str] = {}  # where each handler was registered
        self.tools: dict[str, AgentTool] = {}
        """The functions that agents may use, by name."""
        self.transforms: list[Transform] = []
        self.rules: list[Rule] = [*RULES, secret_rule(lambda text: self.redactor.knows(text))]
        self.interviewers: dict[str, Interviewer] = {"auto": AutoApprove()}

    def handler(self, kind: str, *, isolated: bool = False, replace: bool = False) -> Callable[[F], F]:
        """Register a function as the handler of the nodes with this `type`; a built-in type may be replaced.

        `isolated`: call it in its own process, which can be ended at any time. Another process must be able
        to import the function: it is not async, and at the top level of a module. `replace`: a handler of
        this name that was registered before, instead of an error; for notebooks and tests.
        """
        _check_named(kind, "handler", "type")

        def register(function: F) -> F:
            place = _place(1)
            _check_function(function, kind, place)
            if kind in self._places and not replace:
                raise InvalidInput(
                    f"{place}: a handler {kind!r} is already registered at {self._places[kind]}; choose "
                    "another name, or pass replace=True."
                )
            self.handlers[kind] = self._isolated(function) if isolated else FunctionHandler(function)
            self._places[kind] = place
            self.rules[:] = rules_beside(kind, self.rules)
            return function

        return register

    def _isolated(self, function: Callable[..., Any]) -> Handler:
        return IsolatedHandler(importable(function), self._elsewhere)

    @overload
    def tool(self, function: ToolT, /) -> ToolT: ...

    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        repeatable: bool = True,
        approval: bool = False,
        time_limit_s: float | None = None,
        output_characters: int | None = None,
        concurrent: bool = True,
        isolated: bool = False,
        replace: bool = False,
    ) -> Callable[[ToolT], ToolT]: ...

    def tool(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        repeatable: bool = True,
        approval: bool = False,
        time_limit_s: float | None = None,
        output_characters: int | None = None,
        concurrent: bool = True,
        isolated: bool = False,
        replace: bool = False,
    ) -> Any:
        """Register a function that agents may use: `@app.tool`, or with options `@app.tool(approval=True)`.

        Its docstring tells the model what it is for, and the types of its parameters are the schema of its
        arguments; `Annotated[str, "text"]` describes one. A parameter of the type StepContext gets the step,
        one of the type ToolUse the use with its `key`.
        `repeatable=False`: a use whose process died in the middle is in doubt, and a person decides.
        `approval`: a person must allow each use. After `time_limit_s` (120) a use is ended; the model sees
        `output_characters` (30,000) of an answer. `concurrent=False`: it is not used at the same time as
        other tools that an answer asks for. `isolated`: call it in its own process, which can be ended at any
        time, as `handler` says. `replace`: a tool of this name that was registered before.
        """
        from onward.agents.tools.port import ToolRules  # here, as most apps have none

        rules = ToolRules(repeatable=repeatable, approval=approval, is_concurrent=concurrent)
        if time_limit_s is not None:
            rules = msgspec.structs.replace(rules, time_limit_s=time_limit_s)
        if output_characters is not None:
            rules = msgspec.structs.replace(rules, output_characters=output_characters)
        if function is not None:
            return self._add_tool(function, name, rules, isolated=isolated, replace=replace, place=_place(1))

        def register(function: ToolT) -> ToolT:
            return self._add_tool(function, name, rules, isolated=isolated, replace=replace, place=_place(1))

        return register

    def _add_tool(
        self,
        function: ToolT,
        name: str | None,
        rules: ToolRules,
        *,
        isolated: bool,
        replace: bool,
        place: str,
    ) -> ToolT:
        from onward.agents.tools.functions import IsolatedTool, function_tool, register_tool

        tool = function_tool(function, rules=rules, where=place, name=name)
        made: AgentTool = tool
        if isolated:
            made = IsolatedTool(tool, importable(function, "tool"), self._elsewhere)
        if made.described.name in self.tools and not replace:
            raise InvalidInput(
                f"{place}: a tool {made.described.name!r} already exists; choose another name with "
                "@app.tool(name='…'), or pass replace=True."
            )
        self.tools[made.described.name] = made
        register_tool(function, made)
        return function

    def add_flow(self, flow: Flow[Any, Any]) -> None:
        """Serve the runs of a flow; of one name and version there is one flow. What the app runs is added."""
        known = self.flows.get(flow.kind, flow)
        if known is not flow and _defined(known) != _defined(flow):
            raise InvalidInput(
                f"two flows are named {flow.name!r}, one {_defined(known)}, the other {_defined(flow)}; "
                'rename one: @flow(name="…").'
            )
        from onward.flows.handler import FlowHandler  # here, as most apps have none

        self.flows[flow.kind] = flow
        self.handlers[flow.kind] = FlowHandler(flow)
        self.rules[:] = rules_beside(flow.kind, self.rules)

    def add_step(self, step: Step[..., Any]) -> None:
        """Serve the nodes of graphs with `type="step:NAME"`."""
        from onward.flows.handler import StepHandler  # here, as most apps have none

        self.handlers[step.kind] = StepHandler(step)
        self.rules[:] = rules_beside(step.kind, self.rules)

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
        _check_named(name, "interviewer", "name")

        def register(who: AnswersT) -> AnswersT:
            is_function = not hasattr(who, "ask")
            self.interviewers[name] = (
                CallbackInterviewer(name, cast("Callable[..., Any]", who))
                if is_function
                else cast("Interviewer", who)
            )
            return who

        return register


def _defined(flow: Flow[Any, Any]) -> str:
    return f"{flow.function.__module__}.{flow.function.__qualname__}"


def _place(above: int) -> str:
    """The line of the user's code that registers something, so many calls above the caller of this."""
    frame = sys._getframe(above + 1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _check_named(name: object, what: str, kind: str) -> None:
    """Refuse a decorator that was written without its parentheses, and an empty name."""
    if callable(name):
        called = getattr(name, "__name__", "name")
        raise InvalidInput(
            f"{_place(2)}: @app.{what} needs a {kind}: write @app.{what}({called!r}) above {called}."
        )
    if not isinstance(name, str) or not name:
        raise InvalidInput(
            f"@app.{what} needs a {kind}, and {shown(name)} is not one; write @app.{what}('name')."
        )


def _check_function(function: object, kind: str, place: str) -> None:
    """Refuse what cannot be called with a step."""
    if isinstance(function, type):
        raise InvalidInput(
            f"{place}: the handler {kind!r} is the class {function.__qualname__}, and must be a function; "
            "register a function that uses the class, or an object of it that can be called."
        )
    if not callable(function):
        raise InvalidInput(
            f"{place}: the handler {kind!r} is {shown(function)}, and must be a function that takes a step."
        )
    if not _takes_a_step(function):
        raise InvalidInput(
            f"{place}: the handler {kind!r} cannot be called with one argument, the step; "
            "give it one parameter: `def handler(step)`."
        )


def _takes_a_step(function: Callable[..., Any]) -> bool:
    """Whether it can be called with one value. What has no signature is believed."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


BLOCKED_S = 1.0


class AppWithStore(AppRegistrations):
    """An app that opens its store and closes it."""

    def __init__(
        self,
        store: str | os.PathLike[str] | Store = ".onward/onward.db",
        *,
        runs: str | None = None,
        files: str | None = None,
    ) -> None:
        """`store`: a path, a postgresql:// address, or a store. `runs`: where steps have their directories;
        default: next to the database. `files`: which files they leave there (full, lazy or off), which
        overrides the pipelines.
        """
        if not store:
            raise InvalidInput(
                f"Onward({store!r}) names no database; give a path or a postgresql:// address."
            )
        store = os.fspath(store) if isinstance(store, os.PathLike) else store
        super().__init__(own_redactor(store if isinstance(store, str) else None))
        self.store, self.runs, self.files = store, runs, file_mode(files)
        self.lease_s: float | None = None
        self.blocked_s = BLOCKED_S
        """After how long a handler that blocks the event loop is named in a warning; 0: never."""
        self.chats: ChatSettings | None = None
        """What messages in chats do; None: what `[chats]` of the settings says."""
        self._watch: LoopWatch | None = None
        self._engine: Engine | None = None
        self._traces: Traces | None = None
        self._models: Models | None = None
        self._mcp: McpTools | None = None
        self._opening = asyncio.Lock()

    async def engine(
        self,
        *,
        observe: Observer = ignore,
        tool_env: tuple[str, ...] = (),
        warn: Callable[[str], None] | None = None,
        around: Around | None = None,
        watched: Callable[[Store], Store] = lambda store: store,
        show: ShowLine | None = None,
        hear: Hear | None = None,
    ) -> Engine:
        """The engine of this app; the first call opens the store.

        `around` and `watched` wrap handlers and the store, to watch them; `show` gets what commands print,
        and `hear` what agents say.
        """
        async with self._opening:
            if self._engine is None:
                store = self.store
                self._traces = open_traces(load_settings())
                if isinstance(store, str):
                    store = await open_store(store, lease_s=self.lease_s)
                self._engine = make_engine(
                    watched(store),
                    handlers={**self._agent(warn), **self.handlers},
                    extensions=Extensions(
                        transforms=self.transforms,
                        rules=self.rules,
                        observe=observe if self._traces is None else _both(self._traces.observe, observe),
                        around=around,
                        show=show,
                        hear=hear,
                        find=self._find_flow,
                    ),
                    tool_env=tool_env,
                    runs=self.runs_directory,
                    files=self.files,
                    warn=warn,
                    db=self.store if isinstance(self.store, str) else None,
                    redactor=self.redactor,
                )
                if self.blocked_s and self.handlers:
                    self._watch = LoopWatch(self.blocked_s, find_culprit)
            return self._engine

    def add_flow(self, flow: Flow[Any, Any]) -> None:
        super().add_flow(flow)
        if self._engine is not None:
            self._engine.serve(flow.kind, self.handlers[flow.kind])

    def _find_flow(self, kind: str) -> Handler | None:
        """The handler of a flow that is defined in this process and was not added.

        The run's path names its file, but a row of a database never names code to load.
        """
        if not is_flow_kind(kind):
            return None
        from onward.flows.define import known_flow

        flow = known_flow(kind)
        if flow is None:
            return None
        self.add_flow(flow)
        return self.handlers[kind]

    @property
    def has_agent(self) -> bool:
        """Whether agent steps are served: by a handler of the app, or by the models of a provider."""
        return AGENT in self.handlers or load_settings().has_provider

    @property
    def chat_settings(self) -> ChatSettings:
        """What messages in chats do where a pipeline does not say it itself."""
        return self.chats or load_settings().chats or DEFAULT_CHATS

    def _agent(self, warn: Callable[[str], None] | None) -> dict[str, Handler]:
        """The handler of agent steps, if there is a provider or a program and the app has none of its own."""
        if AGENT in self.handlers:
            return {}
        settings = load_settings()
        if settings.has_provider:
            self._models = open_models(settings, self.redactor)
        elif not has_programs(settings):
            return {}
        self._mcp = make_mcp(settings, self.redactor, warn=warn or log_warning)
        toolbox = make_toolbox(
            settings,
            redactor=self.redactor,
            functions=self.tools,
            mcp=self._mcp,
            db=self.store if isinstance(self.store, str) else None,
            runs=self.runs_directory,
        )
        return {AGENT: make_agent(self._models, settings, toolbox, self.redactor)}

    @property
    def runs_directory(self) -> str | None:
        """Where runs have their directories; None if that is not set and the store has no path."""
        if self.runs is not None:
            return self.runs
        return runs_of(self.store) if isinstance(self.store, str) else None

    async def __aenter__(self) -> Self:
        await self.engine()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.close()
        if self._traces is not None:
            traces, self._traces = self._traces, None
            await traces.close()
        if self._models is not None:
            models, self._models = self._models, None
            await models.close()
        if self._mcp is not None:
            mcp, self._mcp = self._mcp, None
            await mcp.close()


class AppWithPipelines(AppWithStore):
    """An app that registers pipelines."""

    async def add_pipeline(
        self, pipeline: str | Pipeline, *, name: str | None = None, by: str = "user", enable: bool = True
    ) -> PipelineAdded:
        """Store a pipeline (a path, or one from `pipeline()`) as the next version of a name, or of its own.

        Adding the same source again creates no new version. New runs use the new version; without `enable`,
        only if the name has no other. Raises InvalidPipeline with all problems.
        """
        how: dict[str, Any] = {"name": name, "by": by, "enable": enable}
        if isinstance(pipeline, str):
            request = addition(pipeline, **how)
        else:
            file = pipeline.path or f"<{pipeline.name}>"
            request = AddPipeline(source=pipeline.source, file=file, path=pipeline.path, **how)
        return await (await self._registered()).add_pipeline(request)

    async def list_pipelines(self, *, cursor: str | None = None, limit: int = 50) -> PipelineList:
        """The registered pipelines by name, as `onward pipelines --json` shows them."""
        return await (await self._registered()).list_pipelines(ListPipelines(cursor=cursor, limit=limit))

    async def show_pipeline(self, name: str, *, version: int | None = None, limit: int = 50) -> PipelinePage:
        """A registered pipeline: the source of a version, or of the enabled one, and its newest versions."""
        request = GetPipeline(name=name, version=version, limit=limit)
        return await (await self._registered()).show_pipeline(request)

    async def enable_pipeline(self, name: str, version: int, *, by: str = "user") -> PipelineListed:
        """Choose the version that new runs get."""
        request = EnablePipeline(name=name, version=version, by=by)
        return await (await self._registered()).enable_pipeline(request)

    async def remove_pipeline(self, name: str, *, by: str = "user") -> PipelineRemoved:
        """Take a name away from new runs; runs that exist keep their source."""
        return await (await self._registered()).remove_pipeline(RemovePipeline(name=name, by=by))

    async def _registered(self) -> LocalPipelines:
        return LocalPipelines((await self.engine()).registry, SystemClock())

    async def _prepared(self, pipeline: str | Pipeline | Bound[Any]) -> Pipeline:
        """The pipeline of a new run: that of a flow, a file, or else the registered one of this name."""
        if isinstance(pipeline, Pipeline):
            return pipeline
        if not isinstance(pipeline, str):
            from onward.flows.define import checked_bound

            flow = checked_bound(pipeline).flow
            self.add_flow(flow)
            return build(flow.source, file=flow.path or f"<{flow.name}>", rules=())
        engine = await self.engine()
        if is_source(pipeline):
            return engine.sources.prepare(pipeline, "<pipeline>")
        if not is_registered_name(pipeline):
            return engine.sources.read(pipeline)
        with named(pipeline):
            return await engine.registry.find(read_wanted(pipeline))
