"""Registered pipelines in memory."""

from __future__ import annotations

from collections.abc import Sequence

from onward.store.memory.state import State
from onward.store.port.registry.pipelines import Added, NewSource, RegisteredPipeline, RegisteredVersion


class MemoryPipelines:
    """The registered pipelines of a database."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def add(self, new: NewSource, *, at_us: int, enables: bool = True) -> Added:
        versions = self._state.versions.setdefault(new.name, [])
        self._state.put({new.hash: new.content}, at_us)
        number = next((one.version for one in versions if one.hash == new.hash), len(versions) + 1)
        if number > len(versions):
            versions.append(RegisteredVersion(new.name, number, new.hash, new.file, new.by, at_us))
        there = self._state.pipelines.get(new.name)
        if there is None or there.enabled is None or (enables and there.enabled != number):
            there = RegisteredPipeline(new.name, number, 0, new.by, at_us)
        self._state.pipelines[new.name] = there._replace(newest=len(versions))
        return Added(self._state.pipelines[new.name], versions[number - 1])

    async def enable(self, name: str, version: int, *, by: str, at_us: int) -> RegisteredPipeline | None:
        there = self._state.pipelines.get(name)
        if there is not None and there.enabled not in (None, version):
            changed = there._replace(enabled=version, changed_by=by, changed_at_us=at_us)
            self._state.pipelines[name] = changed
        return self._state.pipelines.get(name)

    async def remove(self, name: str, *, by: str, at_us: int) -> RegisteredPipeline | None:
        there = self._state.pipelines.get(name)
        if there is not None and there.enabled is not None:
            changed = there._replace(enabled=None, changed_by=by, changed_at_us=at_us)
            self._state.pipelines[name] = changed
        return self._state.pipelines.get(name)

    async def find(self, name: str) -> RegisteredPipeline | None:
        return self._state.pipelines.get(name)

    async def list(self, *, after: str = "", limit: int) -> Sequence[RegisteredPipeline]:
        named = sorted(self._state.pipelines.items())
        return [one for name, one in named if name > after and one.enabled is not None][:limit]

    async def versions(
        self, name: str, *, upto: int | None = None, limit: int
    ) -> Sequence[RegisteredVersion]:
        return self._state.versions.get(name, [])[:upto][::-1][:limit]
