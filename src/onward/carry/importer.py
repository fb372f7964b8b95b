"""Import the runs of an export: check everything first, then write each run whole, held by no process.

`Survey` checks the file from end to end before anything is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from onward.carry.exporter import content_of, row_of, sources_of
from onward.carry.format import (
    EVENT_BEGINS,
    FORMAT,
    MESSAGE_BEGINS,
    VERSION,
    AnyLine,
    BlobLine,
    CarriedRun,
    EffectLine,
    End,
    EventLine,
    Header,
    MessageLine,
    Spool,
    read_line,
    unreadable,
)
from onward.clock import Clock
from onward.engine.log import applied
from onward.errors import HistoryCorrupt, InvalidInput, Refused
from onward.machine.decide.owner_loss import decide_arrival, decide_held_back
from onward.machine.fold.changes import IllegalEvent
from onward.machine.fold.rows import CallPlace, MessagesSeen, note_message, run_row
from onward.machine.fold.steps import gate_rows, note_gates
from onward.machine.lifecycle import apply
from onward.model.chat import RUN_CHATS, Message, chat_of_run, unseal_parts
from onward.model.events import Event
from onward.model.ids import check_run_id
from onward.model.limits import check_names
from onward.model.row import GateRow, RunRow
from onward.model.run import Run, RunStatus
from onward.store.codec import check_chain, seal, unseal
from onward.store.port.leases import Effect
from onward.store.port.log import Position, StoredEvent, Write, read_with
from onward.store.port.retention import Arrival
from onward.store.port.store import Store

NO_RUN = CarriedRun(id="", head=0, hash="")


class Section(msgspec.Struct):
    """A run in the file: its end, its fold, and where its events and effects are."""

    run: CarriedRun
    begins: int = 0
    ends: int = 0
    fold: Run | None = None
    gates: dict[str, GateRow] = msgspec.field(default_factory=dict)
    said: MessagesSeen = msgspec.field(default_factory=dict)


class Survey:
    """Checks a whole export.

    What it keeps in memory does not grow with the length of logs or content, only with the questions asked.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._blobs: dict[str, int] = {}
        self._forks: dict[tuple[str, int], tuple[Run | None, bytes]] = {}
        self._position = Position(0, b"")
        self._fold: Run | None = None
        self._section = Section(NO_RUN)
        self._known: dict[str, CarriedRun] = {}
        self._waiting: deque[CarriedRun] = deque()
        self.header = Header(format=FORMAT, version=VERSION, onward="", runs=())

    def sections(self) -> Iterator[Section]:
        """Each run, once it is complete. Only when this has ended is the whole file known to be intact."""
        hash_, is_over = blake3(), False
        for number, (place, line) in enumerate(self._spool.lines(), 1):
            if number == 1:
                self._begin(line)
            else:
                if not line.endswith(b"\n"):
                    raise self._cut_off()
                if is_over:
                    raise unreadable(self._spool.name, "continues after its end")
                found = self._read(number, line)
                if isinstance(found, End):
                    if (found.lines, found.hash) != (number - 1, hash_.hexdigest()):
                        raise unreadable(self._spool.name, "was changed since it was written")
                    is_over = True
                elif isinstance(found, EventLine) and self._is_whole():
                    if self._section.run is not NO_RUN:
                        yield self._section
                    self._next(number, found, place)
                self._take(number, place, place + len(line), found)
            hash_.update(line)
        if not self.header.onward:
            raise unreadable(self._spool.name, self._spool.why_nothing)
        if not is_over or self._waiting or not self._is_whole():
            raise self._cut_off()
        if self._section.run is not NO_RUN:
            yield self._section

    def blob(self, name: str) -> bytes:
        """Content that the file holds."""
        _, line = next(self._spool.lines(self._blobs[name]))
        found = read_line(line)
        assert isinstance(found, BlobLine)
        return found.content

    def _begin(self, line: bytes) -> None:
        name = self._spool.name
        try:
            said = msgspec.json.decode(line)
            is_ours = said["format"] == FORMAT
            version, by = int(said["version"]), str(said.get("onward"))
        except (msgspec.MsgspecError, RecursionError, KeyError, TypeError, ValueError, AttributeError):
            is_ours, version, by = False, 0, ""
        if not is_ours:
            raise unreadable(name, "is not an export of Onward")
        if version > VERSION:
            raise unreadable(
                name,
                f"was written by Onward {by} in version {version} of the format, but this version of Onward "
                f"reads up to {VERSION}: upgrade Onward",
            )
        if not line.endswith(b"\n"):
            raise self._cut_off()
        header = self._read(1, line)
        assert isinstance(header, Header)
        self.header, self._waiting = header, deque(header.runs)
        self._check_header(header)

    def _check_header(self, header: Header) -> None:
        known = self._known
        try:
            for run in header.runs:
                check_run_id(run.id)
                lengths = {len(run.end.hash), len(run.start.hash) or 32}
                if run.id in known or lengths != {32} or (run.parent is not None) != bool(run.parent_seq):
                    raise ValueError(run.id)
                if run.parent is not None:
                    self._forks[_origin(known, run)] = (None, b"")
                known[run.id] = run
        except (ValueError, KeyError, InvalidInput):
            raise unreadable(self._spool.name, "is damaged: its header names invalid runs") from None

    def _read(self, number: int, line: bytes) -> AnyLine:
        try:
            return read_line(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self._damaged(number, str(error)) from None

    def _is_whole(self) -> bool:
        return self._position == (self._section.run.end if self._section.run is not NO_RUN else (0, b""))

    def _next(self, number: int, line: EventLine, place: int) -> None:
        if not self._waiting or self._waiting[0].id != line.run:
            raise self._damaged(number, f"an event of run {line.run} is in the wrong place")
        run = self._waiting.popleft()
        self._section, self._position, self._fold = Section(run, place), run.start, None
        if run.parent is not None:
            self._fold, hash_ = self._forks[_origin(self._known, run)]
            if hash_ != run.start.hash:
                raise self._damaged(number, f"run {run.id} does not match the run it was forked from")

    def _take(self, number: int, place: int, end: int, line: object) -> None:
        section = self._section
        match line:
            case BlobLine(hash=name):
                self._blobs.setdefault(name, place)
            case EventLine():
                self._event(number, line)
                section.ends, section.fold = end, self._fold
            case EffectLine(key=key):
                if not self._is_whole() or not key.startswith(f"{section.run.id}/"):
                    raise self._damaged(number, f"the effect {key!r} is in the wrong place")
                section.ends = end
            case MessageLine():
                self._message(number, line)
                section.ends = end
            case Header():
                raise self._damaged(number, "it has a second header")

    def _message(self, number: int, line: MessageLine) -> None:
        place, run_id = CallPlace(line.step, line.call, line.number), self._section.run.id
        seen = self._section.said.get(place)
        is_of_call = seen is not None and (seen.message, seen.state) == (line.id, line.state)
        is_own_chat = not line.chat.startswith(RUN_CHATS) or line.chat == chat_of_run(run_id)
        if not self._is_whole() or line.run != run_id or not is_of_call or not is_own_chat:
            raise self._damaged(number, f"the message {line.id!r} is in the wrong place")
        if seen is not None and seen.said not in ("", line.content):
            why = f"the text of the message {line.id!r} is {line.content}, but its call names {seen.said}"
            raise self._damaged(number, why)
        if line.content not in self._blobs:
            raise self._damaged(number, f"the content {line.content} is missing")
        try:
            unseal_parts(self.blob(line.content))
        except (msgspec.MsgspecError, RecursionError):
            raise self._damaged(number, f"the content {line.content} is not the text of a message") from None

    def _event(self, number: int, line: EventLine) -> None:
        run = self._section.run
        try:
            record = line.record()
            if record.run_id != run.id or record.seq > run.head:
                raise self._damaged(number, f"an event of run {record.run_id} is in the wrong place")
            self._position = check_chain(self._position, (record,))
            missing = [name for name in content_of(record) if name not in self._blobs]
            if missing:
                raise self._damaged(number, f"the content {missing[0]} is missing")
            event = unseal(self._filled(record))
            before = self._fold
            self._fold = apply(before, event, run_id=run.id, at_us=record.at_us, token=record.token)
            note_gates(self._section.gates, before, event, self._fold, record.at_us)
            note_message(self._section.said, event)
        except HistoryCorrupt as error:
            raise self._damaged(number, f"event {error.seq} of run {error.run_id}: {error.why}") from None
        except (IllegalEvent, ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._damaged(number, f"event {line.seq} of run {line.run}: {error}") from None
        if (run.id, record.seq) in self._forks:
            self._forks[run.id, record.seq] = self._fold, record.hash

    def _filled(self, record: StoredEvent) -> StoredEvent:
        values = {name: self.blob(name) for name in read_with(record.refs)}
        return replace(record, values=values) if values else record

    def _damaged(self, number: int, why: str) -> Refused:
        return unreadable(self._spool.name, f"is damaged in line {number}: {why.rstrip('.')}")

    def _cut_off(self) -> Refused:
        return unreadable(self._spool.name, "is truncated: its end is missing")


def _origin(known: dict[str, CarriedRun], run: CarriedRun) -> tuple[str, int]:
    """The run whose own log has the event that a fork starts from; KeyError if it is not in the file."""
    parent = known[run.parent or ""]
    while run.parent_seq <= parent.parent_seq:
        parent = known[parent.parent or ""]
    return parent.id, run.parent_seq


PAGE = 500
BYTES_AT_ONCE = 4 * 1024 * 1024
TOUCH_EVERY_US = 600 * 1_000_000
HELD_BACK = "imported with --paused"
UNFINISHED = (RunStatus.RUNNING, RunStatus.QUEUED, RunStatus.WAITING, RunStatus.INTERRUPTED)


class Brought(msgspec.Struct, frozen=True):
    """A run that was imported or already existed; `says` tells a person which."""

    run: str
    is_new: bool
    status: str
    says: str


class _Planned(msgspec.Struct):
    """A run to import: its future row, and the events to append to its log."""

    section: Section
    row: RunRow
    head: Position
    at_us: int
    added: tuple[StoredEvent, ...] = ()
    closed: tuple[GateRow, ...] = ()


class CheckedExport:
    """A file that was read from end to end and is intact; any other file is refused.

    With `is_paused`, its unfinished runs will wait for a person.
    """

    def __init__(self, spool: Spool, *, is_paused: bool = False) -> None:
        self.spool, self.survey, self.is_paused = spool, Survey(spool), is_paused
        changed = UNFINISHED if is_paused else (RunStatus.RUNNING,)
        self.sections: list[Section] = []
        self.rows: list[RunRow] = []
        for section in self.survey.sections():
            assert section.fold is not None
            self._check_names(section.fold)
            self.sections.append(section)
            self.rows.append(run_row(section.fold))
            if section.fold.status not in changed:
                section.fold = None  # the row is enough, and there may be many

    def _check_names(self, run: Run) -> None:
        """Refuse a run that could be stored but never claimed."""
        try:
            check_names(run)
        except InvalidInput as error:
            why = f"holds run {run.id}, which cannot be stored: {str(error).rstrip('.')}"
            raise unreadable(self.spool.name, why) from None


class Importer(msgspec.Struct):
    """Imports one checked file."""

    store: Store
    clock: Clock
    checked: CheckedExport
    _kept: dict[str, int] = msgspec.field(default_factory=dict)

    async def bring(self) -> list[Brought]:
        """Import all runs of the file that do not exist here, in the order of the file."""
        brought: list[Brought] = []
        found = zip(self.checked.sections, self.checked.rows, strict=True)
        planned = [self._plan(section, row) for section, row in found]
        there = [await self._there(plan.section) for plan in planned]
        for plan, says in zip(planned, there, strict=True):
            if not says:
                await self._receive(plan)
            row = plan.row if not says else await row_of(self.store.runs, plan.row.id)
            said = says or f"imported, {row.status.value}" + (f": {row.detail}" if plan.added else "")
            brought.append(Brought(row.id, not says, row.status.value, said))
        return brought

    def _plan(self, section: Section, row: RunRow) -> _Planned:
        """No process holds a run that is imported: one that was running stops, as its policy says."""
        run, at_us = section.fold, self.clock.now_us()
        if run is None:
            return _Planned(section, row, section.run.end, at_us)
        events: Sequence[Event] = decide_arrival(run, self.store.leases.owner, now_us=at_us)
        after, _ = applied(run, events, run_id=run.id, at_us=at_us)
        if self.checked.is_paused:
            events = (*events, *decide_held_back(after, why=HELD_BACK))
        if not events:
            return _Planned(section, row, section.run.end, at_us)
        after, events = applied(run, events, run_id=run.id, at_us=at_us)
        sealed = seal(run.id, section.run.end, events, token=run.token, at_us=at_us)
        closed = gate_rows(run, events, after, at_us)
        return _Planned(section, run_row(after), sealed.head, at_us, sealed.records, closed)

    async def _there(self, section: Section) -> str:
        """Why a run need not be imported; empty if it is not here. Refuses if another run has its id."""
        run = section.run
        if not await self.store.log.read(run.id, after=0, limit=1):
            return ""
        found = await self.store.log.read(run.id, after=run.head - 1, limit=2)
        if found and (found[0].seq, found[0].hash) == run.end:
            return (
                "already exists here" if len(found) == 1 else "already exists here, and has continued since"
            )
        row = await row_of(self.store.runs, run.id)
        (last,) = await self.store.log.read(run.id, after=row.head - 1, limit=1)
        is_younger = any(record.hash == last.hash for page in self._pages(section) for record in page)
        why = (
            f"exists here up to event {row.head}, and the file has it up to event {run.head}: "
            "an import never changes an existing run; import into a database without it"
            if is_younger
            else "exists here with a different history; import into another database"
        )
        raise Refused("run_differs", f"run {run.id} {why}; nothing was imported.", details={"run": run.id})

    async def _receive(self, plan: _Planned) -> None:
        await self._keep(plan.section)
        pages = _joined(self._pages(plan.section), plan.added)
        first = next(pages)
        write = Write(
            run_id=plan.row.id,
            after=plan.section.run.start,
            head=plan.head,
            records=tuple(first),
            at_us=plan.at_us,
            next_node=plan.row.next_node,
            doubtful=plan.row.doubtful,
            steps_finished=plan.row.steps_finished,
            tokens=plan.row.tokens,
            cost_micro=plan.row.cost_micro,
            ticks=plan.row.ticks,
            row=plan.row,
            gates=tuple({**plan.section.gates, **{row.gate: row for row in plan.closed}}.values()),
            blobs={name: self.checked.survey.blob(name) for name in self._sources(plan.section)},
        )

        def rest() -> Iterator[Sequence[StoredEvent]]:
            again = _joined(self._pages(plan.section), plan.added)
            next(again)
            return again

        await self.store.carrying.receive(
            Arrival(write, rest, self._effects(plan.section), self._messages(plan))
        )

    async def _keep(self, section: Section) -> None:
        """Store what a run refers to, a few megabytes at a time."""
        now_us = self.clock.now_us()
        waiting: dict[str, bytes] = {}
        for name in self._content(section):
            if now_us - self._kept.get(name, 0) <= TOUCH_EVERY_US:
                continue
            waiting[name] = self.checked.survey.blob(name)
            self._kept[name] = now_us
            if sum(map(len, waiting.values())) >= BYTES_AT_ONCE:
                await self.store.blobs.put(waiting, at_us=now_us)
                waiting = {}
        await self.store.blobs.put(waiting, at_us=now_us)

    def _content(self, section: Section) -> Iterator[str]:
        for page in self._pages(section):
            for record in page:
                yield from content_of(record)
        for line in self._message_lines(section):
            yield line.content

    def _sources(self, section: Section) -> set[str]:
        """The pipelines of a run: no event refers to these as content, so they come with the run itself."""
        records = (record for page in self._pages(section) for record in page)
        return {name for record in records for name in sources_of(record)}

    def _pages(self, section: Section) -> Iterator[Sequence[StoredEvent]]:
        page: list[StoredEvent] = []
        size = 0
        for _, line in self.checked.spool.lines(section.begins, section.ends):
            if line.startswith(EVENT_BEGINS):
                found = read_line(line)
                assert isinstance(found, EventLine)
                page.append(found.record())
                size += len(line)
                if len(page) >= PAGE or size >= BYTES_AT_ONCE:
                    yield page
                    page, size = [], 0
        if page:
            yield page

    def _effects(self, section: Section) -> list[Effect]:
        lines = (line for _, line in self.checked.spool.lines(section.begins, section.ends))
        found = (read_line(line) for line in lines if line.startswith(b'{"line":"effect",'))
        return [line.effect() for line in found if isinstance(line, EffectLine)]

    def _message_lines(self, section: Section) -> Iterator[MessageLine]:
        for _, line in self.checked.spool.lines(section.begins, section.ends):
            if line.startswith(MESSAGE_BEGINS):
                found = read_line(line)
                assert isinstance(found, MessageLine)
                yield found

    def _messages(self, plan: _Planned) -> list[Message]:
        return [line.message(ended_at_us=plan.at_us) for line in self._message_lines(plan.section)]


def _joined(
    pages: Iterator[Sequence[StoredEvent]], added: Sequence[StoredEvent]
) -> Iterator[Sequence[StoredEvent]]:
    yield from pages
    if added:
        yield added
