"""Write runs into a file as they are at one moment: events never change, so the heads are enough."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
from blake3 import blake3

from onward.carry import format as lines
from onward.errors import HistoryCorrupt, Refused, RunNotFound, StoreCorrupt
from onward.machine.fold.rows import MessagesSeen, note_message
from onward.model.call import CallFinished, CallLost, CallStarted
from onward.model.chat import Message, seal_parts
from onward.model.row import MessageState, RunRow
from onward.store.codec import check_chain, content_hash, unseal
from onward.store.port.log import KEPT_APART, StoredEvent
from onward.store.port.messages import MessageQuery
from onward.store.port.runs import Runs
from onward.store.port.store import Store
from onward.version import VERSION as ONWARD

EFFECTS_MAX = MESSAGES_MAX = 2**31 - 1  # all of them
CALLS = frozenset(kind.__name__ for kind in (CallStarted, CallFinished, CallLost))

PAGE_FIRST, PAGE_MAX = 8, 512
BYTES_AT_ONCE = 2 * 1024 * 1024


class Carried(msgspec.Struct):
    """What an export holds."""

    runs: list[str] = msgspec.field(default_factory=list)
    events: int = 0
    blobs: int = 0
    effects: int = 0
    messages: int = 0
    bytes: int = 0


async def with_parents(runs: Runs, rows: Sequence[RunRow], *, may_add: bool) -> list[RunRow]:
    """These runs and those they were forked from, parents first; each once."""
    known = {row.id: row for row in rows}
    ordered: dict[str, RunRow] = {}
    for row in rows:
        line = [row]
        while (parent := line[-1].parent) is not None and parent not in ordered:
            if parent not in known and not may_add:
                raise Refused(
                    "parent_missing",
                    f"run {line[-1].id} was forked from run {parent}, which is not exported; name it too, or "
                    "leave out --no-with-parents.",
                    details={"run": line[-1].id, "parent": parent},
                )
            line.append(known.get(parent) or await row_of(runs, parent))
        ordered.update((one.id, one) for one in reversed(line))
    return list(ordered.values())


async def row_of(runs: Runs, run_id: str) -> RunRow:
    """The row of the run with exactly this id."""
    found = [listed.row for listed in await runs.find(run_id) if listed.row.id == run_id]
    if not found:
        raise RunNotFound(run_id)
    return found[0]


class Exporter:
    """Writes one export. `write` takes its bytes as they come."""

    def __init__(self, store: Store, write: Callable[[bytes], object]) -> None:
        self._store, self._write = store, write
        self._hash, self._lines = blake3(), 0
        self._stored: set[str] = set()
        self.carried = Carried()

    async def export(self, rows: Sequence[RunRow]) -> Carried:
        """Export these runs; parents must come before their forks."""
        runs = [await self._named(row) for row in rows]
        self._put(lines.Header(format=lines.FORMAT, version=lines.VERSION, onward=ONWARD, runs=tuple(runs)))
        for run in runs:
            await self._run(run)
        self._put(lines.End(lines=self._lines, hash=self._hash.hexdigest()))
        return self.carried

    async def _named(self, row: RunRow) -> lines.CarriedRun:
        end = await self._record(row.id, row.head)
        if row.parent is None or row.parent_seq is None:
            return lines.CarriedRun(id=row.id, head=row.head, hash=end.hash.hex())
        below = await self._record(row.parent, row.parent_seq)
        return lines.CarriedRun(
            id=row.id,
            head=row.head,
            hash=end.hash.hex(),
            parent=row.parent,
            parent_seq=row.parent_seq,
            parent_hash=below.hash.hex(),
        )

    async def _record(self, run_id: str, seq: int) -> StoredEvent:
        found = await self._store.log.read(run_id, after=seq - 1, limit=1)
        if not found or found[0].seq != seq:
            raise HistoryCorrupt(run_id, seq, "the event is missing")
        return found[0]

    async def _run(self, run: lines.CarriedRun) -> None:
        position, said = run.start, MessagesSeen()
        async for page in self._pages(run):
            position = check_chain(position, page)
            for record in page:
                for name in content_of(record):
                    await self._blob(record, name)
                self._put(lines.EventLine.of(record))
                if record.kind in CALLS:
                    note_message(said, unseal(record))
            self.carried.events += len(page)
        if position != run.end:
            raise HistoryCorrupt(run.id, position.seq + 1, "the event is missing")
        for effect in await self._store.effects.read(run.id, limit=EFFECTS_MAX):
            self._put(lines.EffectLine.of(effect))
            self.carried.effects += 1
        await self._messages(run.id, said)
        self.carried.runs.append(run.id)

    async def _messages(self, run_id: str, said: MessagesSeen) -> None:
        """The messages of the calls in the log that is exported, and their text up to now."""
        states = {seen.message: seen.state for seen in said.values()}
        query = MessageQuery(run_id=run_id, limit=MESSAGES_MAX)
        for one in await self._store.messages.list(query) if said else ():
            if one.id not in states:
                continue
            parts = await self._store.messages.content(one.id)
            if parts is None:
                raise StoreCorrupt(f"the text of message {one.id} of run {run_id} is missing or damaged.")
            content = seal_parts(parts)
            self._put_blob(content_hash(content), content)
            self._put(message_line(one, states[one.id], content_hash(content)))
            self.carried.messages += 1

    async def _pages(self, run: lines.CarriedRun) -> AsyncIterator[Sequence[StoredEvent]]:
        """The events in pages whose size depends on their large values."""
        after, limit = run.parent_seq, PAGE_FIRST
        while after < run.head and (
            page := await self._store.log.read(run.id, after=after, limit=min(limit, run.head - after))
        ):
            yield page
            after = page[-1].seq
            limit = min(PAGE_MAX, limit * 2) if sum(map(_size, page)) < BYTES_AT_ONCE else max(1, limit // 4)

    async def _blob(self, record: StoredEvent, name: str) -> None:
        if name in self._stored:
            return
        content = record.values.get(name) or await self._store.blobs.find(name)
        if content is None:
            raise HistoryCorrupt(record.run_id, record.seq, f"its content {name} is missing or damaged")
        self._put_blob(name, content)

    def _put_blob(self, name: str, content: bytes) -> None:
        if name in self._stored:
            return
        self._put(lines.BlobLine(hash=name, content=content))
        self._stored.add(name)
        self.carried.blobs += 1

    def _put(self, line: lines.AnyLine) -> None:
        written = lines.write_line(line)
        self._hash.update(written)
        self._lines += 1
        self.carried.bytes += len(written)
        self._write(written)


def message_line(message: Message, state: MessageState, content: str) -> lines.MessageLine:
    """A message as an export has it; one that streams in this log may have ended since."""
    return lines.MessageLine(
        id=message.id,
        chat=message.chat,
        run=message.run_id,
        step=message.step,
        call=message.call,
        number=message.number,
        role=message.role,
        state=state,
        model=message.model,
        begun_at_us=message.begun_at_us,
        ended_at_us=None if state is MessageState.STREAMING else message.ended_at_us,
        content=content,
    )


def _size(record: StoredEvent) -> int:
    return len(record.body) + sum(map(len, record.values.values()))


def content_of(record: StoredEvent) -> list[str]:
    """The content that an event names: values, artifacts, and the source of a pipeline."""
    return [*(name.lstrip(KEPT_APART) for name in record.refs), *sources_of(record)]


def sources_of(record: StoredEvent) -> list[str]:
    """The source of the pipeline that an event names."""
    if record.kind not in ("RunCreated", "PipelineChanged"):
        return []
    return [json.loads(record.body)["pipeline_hash"]]
