"""Registered pipelines: checked when they are added, and found by name when runs are created."""

from __future__ import annotations

from difflib import get_close_matches

import msgspec
from msgspec.structs import replace

from onward.engine.control.sources import Sources
from onward.errors import InvalidInput, PipelineNotFound
from onward.model.ids import Wanted
from onward.model.values import Variables
from onward.pipeline.build import Pipeline
from onward.pipeline.rules.check import REGISTERED
from onward.store.port.retention import RegisteredPipeline, RegisteredVersion
from onward.store.port.store import Store

NEAR_MAX = 3
LOOKED_AT_MAX = 10_000


class Registry(msgspec.Struct, frozen=True):
    """The registered pipelines of a store, prepared as every definition is."""

    store: Store
    sources: Sources

    def check(self, source: str, file: str) -> Pipeline:
        """A pipeline that can be registered; it is refused for what it refers to beside its file."""
        rules = [*self.sources.rules, *REGISTERED]
        return replace(self.sources, rules=rules).prepare(source, file)

    async def find(self, wanted: Wanted, variables: Variables | None = None) -> Pipeline:
        """The definition of a new run. `variables` are those of this process, if it is to run it."""
        version = await self.version(wanted)
        pipeline = self.sources.prepare(await self.source(version), _named(version), variables)
        return replace(pipeline, name=version.name, path=None, version=version.version)

    async def pipeline(self, name: str) -> RegisteredPipeline:
        """The name, which is registered."""
        found = await self.store.pipelines.find(name)
        if found is None:
            raise PipelineNotFound(name, near=await self._near(name))
        if found.enabled is None:
            raise PipelineNotFound(name, removed_by=found.changed_by)
        return found

    async def version(self, wanted: Wanted) -> RegisteredVersion:
        """The version that is meant; without a number, the enabled one."""
        pipeline = await self.pipeline(wanted.name)
        number = pipeline.enabled if wanted.version is None else wanted.version
        found = await self.store.pipelines.versions(wanted.name, upto=number, limit=1)
        if not found or found[0].version != number:
            raise PipelineNotFound(str(wanted), newest=pipeline.newest)
        return found[0]

    async def source(self, version: RegisteredVersion) -> str:
        """The source of a version."""
        content = await self.store.blobs.find(version.hash)
        if content is None:
            raise InvalidInput(
                f"the source of {_named(version)} is missing or damaged; add it again with "
                f"`onward pipelines add FILE --name {version.name}`."
            )
        return content.decode()

    async def _near(self, name: str) -> list[str]:
        names = [one.name for one in await self.store.pipelines.list(limit=LOOKED_AT_MAX)]
        return get_close_matches(name, names, n=NEAR_MAX)


def _named(version: RegisteredVersion) -> str:
    return str(Wanted(version.name, version.version))
