"""Content by its hash, in memory."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping

from onward.store.memory.state import State, StoredRun
from onward.store.port.blobs import Swept
from onward.store.port.stored import content_named


class MemoryBlobs:
    """The content of a database."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def find(self, hash: str) -> bytes | None:
        return self._state.blobs.get(hash)

    async def find_many(self, hashes: Collection[str]) -> Mapping[str, bytes]:
        blobs = self._state.blobs
        return {hash: blobs[hash] for hash in hashes if hash in blobs}

    async def put(self, blobs: Mapping[str, bytes], *, at_us: int) -> None:
        self._state.put(blobs, at_us)

    async def sweep(self, before_us: int, limit: int) -> Swept:
        blobs, touched = self._state.blobs, self._state.touched
        used = {name for run in self._state.runs.values() for name in _names(run)}
        used.update(said.message.content or "" for said in self._state.said.values())
        used.update(one.hash for name in self._registered() for one in self._state.versions[name])
        old = [name for name, at_us in touched.items() if at_us < before_us and name not in used][:limit]
        for name in old:
            del touched[name]
        return Swept(len(old), sum(len(blobs.pop(name)) for name in old))

    def _registered(self) -> list[str]:
        return [name for name, one in self._state.pipelines.items() if one.enabled is not None]


def _names(run: StoredRun) -> Iterator[str]:
    """The content that a run refers to."""
    yield run.row.pipeline_hash
    yield from content_named(run.records)
    for record in run.records:
        if record.kind == "PipelineChanged":
            yield json.loads(record.body)["before"]
