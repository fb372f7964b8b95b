"""Registered pipelines, from a store."""

from __future__ import annotations

import msgspec

from onward.clock import Clock
from onward.engine.registry.pipelines import Registry
from onward.errors import InvalidInput, PipelineNotFound
from onward.model.values.names import check_name
from onward.model.values.registered import Wanted, check_pipeline_name
from onward.operations.replies.pipelines import (
    PipelineAdded,
    PipelineList,
    PipelineListed,
    PipelinePage,
    PipelineRemoved,
    PipelineVersion,
)
from onward.operations.requests.pipelines import (
    AddPipeline,
    EnablePipeline,
    GetPipeline,
    ListPipelines,
    RemovePipeline,
)
from onward.read.view import instant
from onward.store.port.registry.pipelines import NewSource, RegisteredPipeline, RegisteredVersion


class LocalPipelines(msgspec.Struct, frozen=True):
    """The registered pipelines of one store."""

    registry: Registry
    clock: Clock

    async def list_pipelines(self, request: ListPipelines) -> PipelineList:
        """Registered pipelines, by name."""
        limit = request.limit
        found = await self.registry.store.pipelines.list(after=request.cursor or "", limit=limit)
        cursor = found[-1].name if found and len(found) == limit else None
        return {"pipelines": [_view(one) for one in found], "cursor": cursor}

    async def show_pipeline(self, request: GetPipeline) -> PipelinePage:
        """A registered pipeline with the source of one version."""
        name = check_pipeline_name(request.name)
        version = await self.registry.version(Wanted(name, request.version))
        pipeline = await self.registry.pipeline(name)
        versions = await self.registry.store.pipelines.versions(name, limit=request.limit)
        return {
            **_view(pipeline),
            "version": version.version,
            "source": await self.registry.source(version),
            "versions": [_view_version(one) for one in versions],
        }

    async def add_pipeline(self, request: AddPipeline) -> PipelineAdded:
        """Check a source, and store it as the next version of its name, unless it is one already."""
        by = _who(request.by)
        pipeline = self.registry.check(request.source, request.file)
        name = _name(request.name, pipeline.name)
        file = (request.path or request.file).encode(errors="replace").decode()
        new = NewSource(name, pipeline.hash, request.source.encode(), file, by)
        at_us = self.clock.now_us()
        added = await self.registry.store.pipelines.add(new, at_us=at_us, enables=request.enable)
        version = added.version
        return {
            **_view(added.pipeline),
            "version": version.version,
            # Also if the reply to the first try was lost, and this is the answer to the second.
            "is_new": (version.added_by, version.added_at_us) == (by, at_us),
            "pipeline_hash": version.hash,
            "warnings": [str(warning) for warning in pipeline.warnings],
        }

    async def enable_pipeline(self, request: EnablePipeline) -> PipelineListed:
        """Let new runs get this version."""
        by, name = _who(request.by), check_pipeline_name(request.name)
        # One whose source was collected while the name was removed could start no run.
        await self.registry.source(await self.registry.version(Wanted(name, request.version)))
        changed = await self.registry.store.pipelines.enable(
            name, request.version, by=by, at_us=self.clock.now_us()
        )
        if changed is None or changed.enabled is None:  # it was removed just now
            raise PipelineNotFound(name)
        return _view(changed)

    async def remove_pipeline(self, request: RemovePipeline) -> PipelineRemoved:
        """Take a name away from new runs."""
        by, name = _who(request.by), check_pipeline_name(request.name)
        await self.registry.pipeline(name)
        removed = await self.registry.store.pipelines.remove(name, by=by, at_us=self.clock.now_us())
        assert removed is not None  # names never go
        return {
            "name": removed.name,
            "newest": removed.newest,
            "removed_by": removed.changed_by,
            "removed_at": instant(removed.changed_at_us) or "",
        }


def _name(given: str | None, own: str) -> str:
    """The name that is given, or else the pipeline's own: that of the graph, or of the file."""
    if given is not None:
        return check_pipeline_name(given)
    try:
        return check_pipeline_name(own)
    except InvalidInput as error:
        raise InvalidInput(
            f"its own name {str(error).rstrip('.')}; or give it another with --name."
        ) from None


def _who(by: str) -> str:
    if not (by and by.isprintable()):
        raise InvalidInput(f"{by[:40]!r} is nobody's name; say who does it in printable characters.")
    return check_name("the name", by)


def _view(one: RegisteredPipeline) -> PipelineListed:
    assert one.enabled is not None
    return {
        "name": one.name,
        "enabled": one.enabled,
        "newest": one.newest,
        "changed_by": one.changed_by,
        "changed_at": instant(one.changed_at_us) or "",
    }


def _view_version(one: RegisteredVersion) -> PipelineVersion:
    return {
        "version": one.version,
        "pipeline_hash": one.hash,
        "file": one.file,
        "added_by": one.added_by,
        "added_at": instant(one.added_at_us) or "",
    }
