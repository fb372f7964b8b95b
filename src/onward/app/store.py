"""An app with its store: opened by the first call that needs it, closed at the end.

With it come registered pipelines: definitions are stored under names, and runs are started by them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from onward.app.registrations import AppRegistrations
from onward.chats.settings import DEFAULT_CHATS, ChatSettings
from onward.clock import SystemClock
from onward.config import file_mode, load_settings, own_redactor
from onward.engine.claims import Observer
from onward.engine.definitions import Around
from onward.engine.engine import Engine, Extensions, ignore
from onward.handlers.function import find_culprit
from onward.handlers.port import Handler
from onward.handlers.room import ShowLine
from onward.machine.definition import AGENT
from onward.model.ids import read_wanted
from onward.operations.here.submission import addition, is_registered_name, named
from onward.operations.local.database import LocalPipelines
from onward.operations.requests import AddPipeline, EnablePipeline, GetPipeline, ListPipelines, RemovePipeline
from onward.pipeline.build import Pipeline
from onward.replies.database import (
    PipelineAdded,
    PipelineList,
    PipelineListed,
    PipelinePage,
    PipelineRemoved,
)
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
    runs_of,
)

if TYPE_CHECKING:
    from onward.agents.models import Models
    from onward.agents.tools.mcp.source import McpTools


BLOCKED_S = 1.0


class AppWithStore(AppRegistrations):
    """An app that opens its store and closes it."""

    def __init__(
        self, store: str | Store = ".onward/onward.db", *, runs: str | None = None, files: str | None = None
    ) -> None:
        """`store`: a path, a postgresql:// address, or a store. `runs`: where steps have their directories;
        without it, next to the database. `files`: what they leave there (full, lazy or off), which overrides
        the pipelines."""
        super().__init__(own_redactor(store if isinstance(store, str) else None))
        self.store, self.runs, self.files = store, runs, file_mode(files)
        self.lease_s: float | None = None
        self.blocked_s = BLOCKED_S
        """After how long a handler that blocks the event loop is named in a warning; 0: never."""
        self.chats: ChatSettings | None = None
        """What messages in chats do; None: what `[chats]` of the settings says."""
        self._watch: LoopWatch | None = None
        self._engine: Engine | None = None
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
                    handlers={**self._agent(warn), **self.handlers},
                    extensions=Extensions(
                        transforms=self.transforms,
                        rules=self.rules,
                        observe=observe,
                        around=around,
                        show=show,
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

        The same source again is the same version. New runs get it; without `enable`, only if the name has no
        other version. InvalidPipeline says what is wrong with it.
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

    async def _prepared(self, pipeline: str | Pipeline) -> Pipeline:
        """The pipeline of a new run: a file, or else the registered one of this name."""
        if not isinstance(pipeline, str):
            return pipeline
        engine = await self.engine()
        if not is_registered_name(pipeline):
            return engine.sources.read(pipeline)
        with named(pipeline):
            return await engine.registry.find(read_wanted(pipeline))
