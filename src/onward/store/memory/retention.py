"""What is kept, forgotten and taken in, in memory: content, registered pipelines, and whole runs.

Memory has no past: no run in it is from before a migration, so its backfill is an empty list.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from onward.model.chat import chat_of_run
from onward.store import rows
from onward.store.memory.log import MemoryLog, check_content, forget_limits
from onward.store.memory.messages import receive_messages
from onward.store.memory.runs import by_age
from onward.store.memory.state import State, StoredRun
from onward.store.owner import content_missing
from onward.store.port import retention
from onward.store.port.log import content_named


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

    async def sweep(self, before_us: int, limit: int) -> retention.Swept:
        blobs, touched = self._state.blobs, self._state.touched
        used = {name for run in self._state.runs.values() for name in _content_of_run(run)}
        used.update(said.message.content or "" for said in self._state.said.values())
        used.update(one.hash for name in self._registered() for one in self._state.versions[name])
        old = [name for name, at_us in touched.items() if at_us < before_us and name not in used][:limit]
        for name in old:
            del touched[name]
        return retention.Swept(len(old), sum(len(blobs.pop(name)) for name in old))

    def _registered(self) -> list[str]:
        return [name for name, one in self._state.pipelines.items() if one.enabled is not None]


def _content_of_run(run: StoredRun) -> Iterator[str]:
    """The content that a run refers to."""
    yield run.row.pipeline_hash
    yield from content_named(run.records)
    for record in run.records:
        if record.kind == "PipelineChanged":
            yield json.loads(record.body)["before"]


class MemoryPipelines:
    """The registered pipelines of a database."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def add(self, new: retention.NewSource, *, at_us: int, enables: bool = True) -> retention.Added:
        versions = self._state.versions.setdefault(new.name, [])
        self._state.put({new.hash: new.content}, at_us)
        number = next((one.version for one in versions if one.hash == new.hash), len(versions) + 1)
        if number > len(versions):
            versions.append(retention.RegisteredVersion(new.name, number, new.hash, new.file, new.by, at_us))
        there = self._state.pipelines.get(new.name)
        if there is None or there.enabled is None or (enables and there.enabled != number):
            there = retention.RegisteredPipeline(new.name, number, 0, new.by, at_us)
        self._state.pipelines[new.name] = there._replace(newest=len(versions))
        return retention.Added(self._state.pipelines[new.name], versions[number - 1])

    async def enable(
        self, name: str, version: int, *, by: str, at_us: int
    ) -> retention.RegisteredPipeline | None:
        there = self._state.pipelines.get(name)
        if there is not None and there.enabled not in (None, version):
            changed = there._replace(enabled=version, changed_by=by, changed_at_us=at_us)
            self._state.pipelines[name] = changed
        return self._state.pipelines.get(name)

    async def remove(self, name: str, *, by: str, at_us: int) -> retention.RegisteredPipeline | None:
        there = self._state.pipelines.get(name)
        if there is not None and there.enabled is not None:
            changed = there._replace(enabled=None, changed_by=by, changed_at_us=at_us)
            self._state.pipelines[name] = changed
        return self._state.pipelines.get(name)

    async def find(self, name: str) -> retention.RegisteredPipeline | None:
        return self._state.pipelines.get(name)

    async def list(self, *, after: str = "", limit: int) -> Sequence[retention.RegisteredPipeline]:
        named = sorted(self._state.pipelines.items())
        return [one for name, one in named if name > after and one.enabled is not None][:limit]

    async def versions(
        self, name: str, *, upto: int | None = None, limit: int
    ) -> Sequence[retention.RegisteredVersion]:
        return self._state.versions.get(name, [])[:upto][::-1][:limit]


class MemoryRetention:
    """Old runs of a database."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def expired(self, expiry: retention.Expiry) -> Sequence[retention.Kin]:
        runs = sorted(self._state.runs.values(), key=by_age)
        chosen = [run for run in runs if run.row.status in expiry.statuses]
        old = chosen[: max(0, len(chosen) - expiry.keep)]
        return _kin(run for run in old if run.row.updated_at_us < expiry.before_us)

    async def attached(self) -> Sequence[retention.Kin]:
        every = _kin(self._state.runs.values())
        return [kin for kin in every if kin.parent is not None or not kin.is_final]

    async def delete(self, runs: Sequence[retention.Kin]) -> Sequence[str]:
        there = self._state.runs
        for kin in runs:
            run = there.get(kin.id)
            is_needed = any(other.row.parent == kin.id for other in there.values())
            if run is not None and run.row.head == kin.head and run.row.owner is None and not is_needed:
                del there[kin.id]
                forget_limits(self._state, kin.id)
                own = chat_of_run(kin.id)
                self._state.chats.pop(own, None)
                for id in [id for id, said in self._state.said.items() if said.message.chat == own]:
                    del self._state.said[id]
                first, behind = rows.keys_below(kin.id)
                for key in [key for key in self._state.effects if first <= key < behind]:
                    del self._state.effects[key]
                for place in [place for place, told in self._state.outbox.items() if told.run_id == kin.id]:
                    del self._state.outbox[place]
        return [kin.id for kin in runs if kin.id not in there]


def _kin(runs: Iterable[StoredRun]) -> list[retention.Kin]:
    return [
        retention.Kin(
            id=row.id,
            head=row.head,
            status=row.status,
            parent=row.parent,
            successor=row.restarted_as,
            manager=row.managed_by,
            restart_of=row.restart_of,
        )
        for row in (run.row for run in runs)
    ]


class MemoryCarrying:
    """Runs that arrive at a database."""

    def __init__(self, state: State, log: MemoryLog) -> None:
        self._state, self._log = state, log

    async def receive(self, arrival: retention.Arrival) -> None:
        write = arrival.write
        there = self._state.runs.get(write.run_id)
        if there is not None and there.has(write.head):
            return
        rest = [record for page in arrival.rest() for record in page]
        check_content(self._state, write, rest)
        if not arrival.message_content <= self._state.blobs.keys():
            raise content_missing(write.run_id)
        await self._log.create(write, arrival.append_id)
        self._state.runs[write.run_id].records.extend(rest)
        receive_messages(self._state, arrival.messages)
        for effect in arrival.effects:
            self._state.effects.setdefault(effect.key, (effect, 0))


class MemoryBackfill:
    """An empty list."""

    async def missing(self) -> Sequence[str]:
        return ()

    async def fill(self, filling: retention.Filling) -> bool:
        return True

    async def skip(self, run_id: str) -> None:
        return None
