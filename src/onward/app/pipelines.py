"""An app and registered pipelines: definitions are stored under names, and runs are started by them."""

from __future__ import annotations

from typing import Any

from onward.app.opening import Opening
from onward.clock import SystemClock
from onward.model.values.registered import read_wanted
from onward.operations.local.pipelines import LocalPipelines
from onward.operations.local_only.submission import addition, is_registered_name, named
from onward.operations.replies.pipelines import (
    PipelineAdded,
    PipelineList,
    PipelineListed,
    PipelinePage,
    PipelineRemoved,
)
from onward.operations.requests.pipelines import (
    AddPipeline,
    EnablePipeline,
    GetPipeline,
    ListPipelines,
    RemovePipeline,
)
from onward.pipeline.build import Pipeline


class NamedPipelines(Opening):
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
