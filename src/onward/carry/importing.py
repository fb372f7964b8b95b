"""Import the runs of an export: check everything first, then write each run whole, held by no process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from onward.carry.exporting import content_of, row_of, sources_of
from onward.carry.lines import EVENT_BEGINS, MESSAGE_BEGINS, EffectLine, EventLine, MessageLine, read_line
from onward.carry.spool import Spool, unreadable
from onward.carry.survey import Section, Survey
from onward.clock import Clock
from onward.engine.log.write import applied
from onward.errors import InvalidInput, Refused
from onward.machine.decide.owner_loss import decide_arrival, decide_held_back
from onward.machine.fold.gates import gate_rows
from onward.machine.fold.row import project
from onward.model.chats.message import Message
from onward.model.events.event import Event
from onward.model.row import GateRow, RunRow
from onward.model.run import Run, RunStatus
from onward.model.values.names import check_names
from onward.store.codec import seal
from onward.store.port.carrying import Arrival
from onward.store.port.effects import Effect
from onward.store.port.store import Store
from onward.store.port.stored import Position, StoredEvent, Write

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


class Checked:
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
            self.rows.append(project(section.fold))
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
    checked: Checked
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
        return _Planned(section, project(after), sealed.head, at_us, sealed.records, closed)

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
            else "exists here with another history: import into another database"
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
