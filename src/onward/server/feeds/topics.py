"""What can be followed from a position: the events of a run, the messages of a chat, which runs changed.

A topic reads pages after a position, for all its readers or for one that is behind. From the result of a
poll it decides whether there is more, and whether it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from onward.errors import ChatNotFound, RunNotFound
from onward.model.chat import RUN_CHATS, Message, chat_of_run
from onward.model.row import GateRow
from onward.model.run import RunStatus
from onward.operations import requests
from onward.operations.local.chats import view_piece
from onward.operations.local.lists import view_gate_row
from onward.read.dialect_events import Translator, in_dialect
from onward.read.lookup import get_run
from onward.read.view import known_row, view_event
from onward.server.feeds.frames import Frame, frame, notice
from onward.store.port.log import StoredEvent
from onward.store.port.messages import MessageQuery
from onward.store.port.runs import Listed, RunHead
from onward.store.port.store import Store

if TYPE_CHECKING:
    from onward.operations.protocol import ListOperations, LookOperations

PAGE_MAX = 1_000
PAGE_MIN = 16
PAGE_BYTES = 128 * 1024
"""About how much a page may be: of long events it has fewer."""
FINAL = (RunStatus.COMPLETED, RunStatus.CANCELLED)
"""Nothing comes after these. A failed run can be resumed, so its streams stay open."""


class Reading(msgspec.Struct, frozen=True, eq=False):
    """What the hub reads with: a store that nobody else uses, and operations on it that only look."""

    store: Store
    look: LookOperations
    lists: ListOperations


class Seen(NamedTuple):
    """What one look has found of all that is watched."""

    heads: Mapping[str, RunHead] = {}
    positions: Mapping[str, int] = {}
    number: int = 0

    def is_final(self, run: str) -> bool:
        """Whether nothing can happen to a run any more."""
        return run not in self.heads or self.heads[run].status in FINAL


class Page(NamedTuple):
    """What was read, up to a place; `has_more`: there was no room for the rest."""

    frames: Sequence[Frame]
    upto: int
    has_more: bool


class Topic(Protocol):
    """Something that is told in order. `runs` and `chats` are what a look must see for it."""

    @property
    def runs(self) -> Sequence[str]: ...

    @property
    def chats(self) -> Sequence[str]: ...

    def end(self, seen: Seen) -> int:
        """The place where it ends so far."""
        ...

    def last(self, seen: Seen) -> Frame | None:
        """The frame after which nothing comes, if it is over."""
        ...

    async def read(self, after: int) -> Page:
        """What comes after a place."""
        ...


class _Pages:
    """How much to read at a time, by how long things were so far."""

    def __init__(self) -> None:
        self.limit = PAGE_MIN * 8

    def note(self, frames: Sequence[Frame]) -> None:
        """Learn from a page."""
        if frames:
            average = sum(len(one.data) for one in frames) // len(frames) + 1
            self.limit = max(PAGE_MIN, min(PAGE_MAX, PAGE_BYTES // average))


class RunEvents:
    """The log of one run. Of a fork, what is below the fork point is in the log of its parent."""

    chats: Sequence[str] = ()

    def __init__(self, reading: Reading, run: str) -> None:
        self._log, self.runs = reading.store.log, (run,)
        self._run, self._pages = run, _Pages()

    def end(self, seen: Seen) -> int:
        """The run's head."""
        head = seen.heads.get(self._run)
        return 0 if head is None else head.head

    def last(self, seen: Seen) -> Frame | None:
        """After the end of a run nothing comes; nor of one that was deleted."""
        head = seen.heads.get(self._run)
        if head is None:
            return notice("end", {"run": self._run, "status": "deleted"}, stream="events", run=self._run)
        if head.status not in FINAL:
            return None
        said = {"run": self._run, "status": head.status.value}
        return notice("end", said, stream="events", run=self._run)

    async def read(self, after: int) -> Page:
        """Events after an event."""
        limit = self._pages.limit
        found = await self._log.read(self._run, after=after, limit=limit)
        frames = await self._frames(found, after)
        self._pages.note(frames)
        return Page(frames, found[-1].seq if found else after, len(found) == limit)

    async def _frames(self, found: Sequence[StoredEvent], after: int) -> list[Frame]:
        return [frame("events", "event", one.seq, view_event(one)) for one in found]


class DialectEvents(RunEvents):
    """The same under the event names of the dialect. An event has none of them, one or several.

    A name may depend on earlier events. So what translated up to a place is kept for whoever reads on from
    there; whoever begins in the middle of a log waits until all before it was translated.
    """

    def __init__(self, reading: Reading, run: str) -> None:
        super().__init__(reading, run)
        self._kept: tuple[int, Translator] | None = None

    async def _frames(self, found: Sequence[StoredEvent], after: int) -> list[Frame]:
        translator = await self._translator(after)
        shown = [(one.seq, event) for one in found for event in in_dialect(translator, one)]
        self._kept = found[-1].seq if found else after, translator
        return _last_has_id([frame("events", "event", seq, event, has_id=False) for seq, event in shown])

    async def _translator(self, after: int) -> Translator:
        """One that has seen everything up to here; nobody else has it."""
        kept, self._kept = self._kept, None
        if kept is not None and kept[0] == after:
            return kept[1]
        translator, upto = Translator(self._run), 0
        while upto < after and (
            page := await self._log.read(self._run, after=upto, limit=min(PAGE_MAX, after - upto))
        ):
            upto = page[-1].seq
            for one in page:
                tuple(in_dialect(translator, one))
        return translator


class Said:
    """What is said in a chat, or by one run in it."""

    def __init__(self, reading: Reading, chat: str, run: str | None) -> None:
        self._messages, self._chat, self._run = reading.store.messages, chat, run
        self.runs, self.chats = (() if run is None else (run,)), (chat,)
        self._known: dict[str, Message] = {}
        self._pages = _Pages()

    def end(self, seen: Seen) -> int:
        """The chat's position."""
        return seen.positions.get(self._chat, 0)

    def last(self, seen: Seen) -> Frame | None:
        """A chat never ends; a run in it does."""
        if self._run is None or not seen.is_final(self._run):
            return None
        head = seen.heads.get(self._run)
        said = {"run": self._run, "status": "deleted" if head is None else head.status.value}
        return notice("end", said, stream="messages", run=self._run)

    async def read(self, after: int) -> Page:
        """Pieces after a position."""
        limit = self._pages.limit
        heard = await self._messages.read(self._chat, after=after, limit=limit)
        await self._know({one.message for one in heard})
        frames = []
        for one in heard:
            about = self._known.get(one.message)
            if about is not None and self._run in (None, about.run_id):
                frames.append(frame("messages", "piece", one.position, view_piece(one, about)))
        self._pages.note(frames)
        return Page(frames, heard[-1].position if heard else after, len(heard) == limit)

    async def _know(self, wanted: set[str]) -> None:
        """Look up the messages that are new."""
        if new := wanted - self._known.keys():
            if len(self._known) > KNOWN_MAX:
                self._known = {id: one for id, one in self._known.items() if id in wanted}
            query = MessageQuery(ids=tuple(sorted(new)))
            self._known.update((one.id, one) for one in await self._messages.list(query))


KNOWN_MAX = 1_000
CLOSED_MAX = 5
"""Of so many closed gates at most a reader is told with their run's change."""
CHANGES_MAX = 200
SNAPSHOT_MAX = 200
STOPPED = (RunStatus.PAUSED, RunStatus.INTERRUPTED, RunStatus.FAILED)


class ChangedRuns:
    """Which runs changed their status or their gates, by the number of their last change.

    A run that changed twice is told once, as it is now. Its frames have one place: `gate` frames, then `run`
    with the id. `gates` in it are all that are open, so nobody keeps one that was closed long ago.
    """

    runs: Sequence[str] = ()
    chats: Sequence[str] = ()

    def __init__(self, reading: Reading) -> None:
        self._reading, self._store = reading, reading.store

    def end(self, seen: Seen) -> int:
        """The number of the last change."""
        return seen.number

    def last(self, seen: Seen) -> Frame | None:
        """There is always more to come."""
        return None

    async def read(self, after: int) -> Page:
        """Runs that changed after a number."""
        changed = await self._store.runs.changed(after, CHANGES_MAX)
        frames: list[Frame] = []
        for one in changed.runs:
            frames += await self._told(one.listed, one.changed)
        return Page(_last_has_id(frames), changed.next, len(changed.runs) >= CHANGES_MAX)

    async def _told(self, listed: Listed, number: int) -> list[Frame]:
        row = known_row(listed.row, listed.holder)
        gates = await self._store.gates.of(row.id)
        open_now = [gate for gate in gates if gate.closed_at_us is None]
        closed = sorted(_closed(gates), key=lambda gate: gate.closed_at_us or 0)[-CLOSED_MAX:]
        values: list[tuple[str, Any]] = [("gate", view_gate_row(gate)) for gate in open_now]
        values += [("gate", {"run": row.id, "gate": gate.gate, "closed": True}) for gate in closed]
        values.append(
            (
                "run",
                {
                    "run": row.id,
                    "display_id": row.display_id,
                    "head": row.head,
                    "status": row.status.value,
                    "reason": row.reason,
                    "recoverable": row.recoverable,
                    "is_dismissed": row.is_dismissed,
                    "pipeline": row.pipeline,
                    "chat": row.chat or chat_of_run(row.id),
                    "gates": [gate.gate for gate in open_now],
                },
            )
        )
        return [frame("feed", event, number, value, has_id=False) for event, value in values]

    async def snapshot(self, number: int) -> Frame:
        """What waits for a person: open gates, and stopped runs that can be resumed."""
        lists = self._reading.lists
        gates = await lists.list_gates(requests.ListGates(limit=SNAPSHOT_MAX))
        stopped = await lists.list_runs(requests.ListRuns(statuses=STOPPED, limit=SNAPSHOT_MAX))
        wanted = [run for run in stopped["runs"] if run["recoverable"] and not run["is_dismissed"]]
        return frame("feed", "snapshot", number, {"gates": gates["gates"], "stopped": wanted})


def _closed(gates: Sequence[GateRow]) -> list[GateRow]:
    return [gate for gate in gates if gate.closed_at_us is not None]


def _last_has_id(frames: list[Frame]) -> list[Frame]:
    """The last frame of each place has it as its id."""
    for index, one in enumerate(frames):
        if index + 1 == len(frames) or frames[index + 1].at != one.at:
            frames[index] = one._replace(id=one.at)
    return frames


async def place_of_messages(reading: Reading, of: str) -> tuple[str, str | None]:
    """The chat, and the run in it, whose messages are meant by the name of a chat or the id of a run."""
    if of.startswith(RUN_CHATS) or of in await reading.store.messages.positions([of]):
        return of, None
    try:
        row = (await get_run(reading.store.runs, of)).row
    except RunNotFound as missing:
        raise ChatNotFound(of, missing.near) from None
    return row.chat or chat_of_run(row.id), row.id
