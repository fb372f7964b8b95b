"""Check an export from end to end before anything is written."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from onward.carry.exporting import content_of
from onward.carry.lines import (
    FORMAT,
    VERSION,
    AnyLine,
    BlobLine,
    CarriedRun,
    EffectLine,
    End,
    EventLine,
    Header,
    MessageLine,
    read_line,
)
from onward.carry.spool import Spool, unreadable
from onward.errors import HistoryCorrupt, InvalidInput, Refused
from onward.machine.fold.apply import apply
from onward.machine.fold.change import IllegalEvent
from onward.machine.fold.gates import note_gates
from onward.machine.fold.messages import CallPlace, MessagesSeen, note_message
from onward.model.chats.message import RUN_CHATS, chat_of_run, unseal_parts
from onward.model.ids import check_run_id
from onward.model.row import GateRow
from onward.model.run import Run
from onward.store.codec import check_chain, unseal
from onward.store.port.stored import Position, StoredEvent, read_with

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
                f"was written by Onward {by} in version {version} of the format, and this Onward knows up to "
                f"{VERSION}: upgrade Onward",
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
            raise unreadable(self._spool.name, "is damaged: its header names impossible runs") from None

    def _read(self, number: int, line: bytes) -> AnyLine:
        try:
            return read_line(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self._damaged(number, str(error)) from None

    def _is_whole(self) -> bool:
        return self._position == (self._section.run.end if self._section.run is not NO_RUN else (0, b""))

    def _next(self, number: int, line: EventLine, place: int) -> None:
        if not self._waiting or self._waiting[0].id != line.run:
            raise self._damaged(number, f"an event of run {line.run} does not belong here")
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
                    raise self._damaged(number, f"the effect {key!r} does not belong here")
                section.ends = end
            case MessageLine():
                self._message(number, line)
                section.ends = end
            case Header():
                raise self._damaged(number, "there is a second header")

    def _message(self, number: int, line: MessageLine) -> None:
        place, run_id = CallPlace(line.step, line.call, line.number), self._section.run.id
        seen = self._section.said.get(place)
        is_of_call = seen is not None and (seen.message, seen.state) == (line.id, line.state)
        is_own_chat = not line.chat.startswith(RUN_CHATS) or line.chat == chat_of_run(run_id)
        if not self._is_whole() or line.run != run_id or not is_of_call or not is_own_chat:
            raise self._damaged(number, f"the message {line.id!r} does not belong here")
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
                raise self._damaged(number, f"an event of run {record.run_id} does not belong here")
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
