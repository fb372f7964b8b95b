"""The format of an export: one JSON object per line, with closed schemas.

First a header with the runs, parents before their forks. Then, for each run, its events, effects and
messages; content comes before the first of these that refers to it. Last an end with the number of lines and
the hash of their bytes, so that a truncated or changed file is noticed.

An export that is being imported is first copied into a private file (`Spool`), so that what was checked is
what is written.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterator
from typing import Annotated, BinaryIO, cast

import msgspec
import zstandard

from onward.errors import Refused
from onward.model.chat import Message, Role
from onward.model.row import MessageState
from onward.model.values import INTEGER_MAX, Count, Instant, Number
from onward.store.codec import content_hash
from onward.store.port.leases import Effect
from onward.store.port.log import Position, StoredEvent

FORMAT, VERSION = "onward-export", 2
"""Version 2 has messages; everything else is as in version 1."""
# Text that every database can store: a file with any other is refused before anything is written.
Text = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*\Z")]


class ExportLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="line"):
    """Any line."""


class CarriedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run in the header: where its log ends, and what it was forked from."""

    id: str
    head: Number
    hash: str
    parent: str | None = None
    parent_seq: Number = 0
    parent_hash: str = ""

    @property
    def end(self) -> Position:
        return Position(self.head, bytes.fromhex(self.hash))

    @property
    def start(self) -> Position:
        """The position that its own events follow."""
        return Position(self.parent_seq, bytes.fromhex(self.parent_hash))


class Header(ExportLine, frozen=True, kw_only=True, tag="header"):
    """The first line."""

    format: str
    version: int
    onward: str
    runs: tuple[CarriedRun, ...]


class BlobLine(ExportLine, frozen=True, kw_only=True, tag="blob"):
    """Content under its BLAKE3."""

    hash: str
    content: bytes


class EventLine(ExportLine, frozen=True, kw_only=True, tag="event"):
    """An event exactly as it is stored."""

    run: str
    seq: Number
    kind: str
    v: Annotated[int, msgspec.Meta(ge=1, le=INTEGER_MAX)]
    at_us: Instant
    token: Count
    body: str
    hash: str
    refs: tuple[str, ...] = ()

    @classmethod
    def of(cls, record: StoredEvent) -> EventLine:
        return cls(
            run=record.run_id,
            seq=record.seq,
            kind=record.kind,
            v=record.v,
            at_us=record.at_us,
            token=record.token,
            body=record.body,
            hash=record.hash.hex(),
            refs=record.refs,
        )

    def record(self) -> StoredEvent:
        hash_ = bytes.fromhex(self.hash)
        return StoredEvent(
            self.run, self.seq, self.kind, self.v, self.at_us, self.token, self.body, hash_, self.refs
        )


class EffectLine(ExportLine, frozen=True, kw_only=True, tag="effect"):
    """An effect of a run; without a result it is in doubt once it is imported."""

    key: Text
    token: Text
    owner: Text
    begun_at_us: Instant
    finished_at_us: Instant | None = None
    result: bytes | None = None

    @classmethod
    def of(cls, effect: Effect) -> EffectLine:
        return cls(
            key=effect.key,
            token=effect.token,
            owner=effect.owner,
            begun_at_us=effect.begun_at_us,
            finished_at_us=effect.finished_at_us,
            result=effect.result,
        )

    def effect(self) -> Effect:
        return Effect(
            self.key, self.token, self.owner, False, self.begun_at_us, self.finished_at_us, self.result
        )


class MessageLine(ExportLine, frozen=True, kw_only=True, tag="message"):
    """A message of a run, in the state that the run's log in this file gives it. `content` names its text."""

    id: Text
    chat: Text
    run: Text
    step: Text
    call: Text
    number: Count = msgspec.field(name="try")
    role: Role
    state: MessageState
    model: Text
    begun_at_us: Instant
    ended_at_us: Instant | None = None
    content: str

    def message(self, *, ended_at_us: int) -> Message:
        """The message as it arrives: nobody writes it any more, and it has no chunks."""
        is_cut_off = self.state is MessageState.STREAMING
        over_at_us = ended_at_us if self.ended_at_us is None else self.ended_at_us
        return Message(
            id=self.id,
            chat=self.chat,
            run_id=self.run,
            step=self.step,
            call=self.call,
            number=self.number,
            role=self.role,
            state=MessageState.INTERRUPTED if is_cut_off else self.state,
            model=self.model,
            begun_at_us=self.begun_at_us,
            changed_at_us=over_at_us,
            ended_at_us=over_at_us,
            first_position=0,
            last_position=0,
            content=self.content,
            is_tidied=True,
        )


class End(ExportLine, frozen=True, kw_only=True, tag="end"):
    """The last line: how many there were before it, and the BLAKE3 of their bytes."""

    lines: int
    hash: str


AnyLine = Header | BlobLine | EventLine | EffectLine | MessageLine | End
_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(AnyLine)
EVENT_BEGINS = b'{"line":"event",'
MESSAGE_BEGINS = b'{"line":"message",'


def write_line(line: AnyLine) -> bytes:
    """A line with its end."""
    return _encode(line) + b"\n"


def read_line(line: bytes) -> AnyLine:
    """Decode a line; `msgspec.MsgspecError` or `ValueError` if it is invalid."""
    found: AnyLine = _decoder.decode(line)
    if isinstance(found, BlobLine) and content_hash(found.content) != found.hash:
        raise ValueError(f"the content {found.hash} does not match its hash")
    return found


ZSTD = b"\x28\xb5\x2f\xfd"
# Enough for the largest possible artifact, as text.
LINE_BYTES_MAX = 256 * 1024 * 1024
CHUNK = 1024 * 1024
GIB = 1024**3


class UnpackLimits(msgspec.Struct, frozen=True):
    """How much a file may unpack to: `free` bytes, or `ratio` times what was read, if that is more.

    Every event has a hash, which does not compress, so logs never reach the ratio; artifacts that are all
    alike may.
    """

    free: int = GIB
    ratio: int = 1_000
    line: int = LINE_BYTES_MAX

    def unpacked(self, packed: int) -> int:
        return max(self.free, packed * self.ratio)


def unreadable(name: str, why: str) -> Refused:
    """One sentence about a file that cannot be imported."""
    return Refused("export_unreadable", f"{name} {why}; nothing was imported.", details={"file": name})


class Spool:
    """The plain lines of an export. Its first bytes show whether it is compressed."""

    def __init__(self, source: BinaryIO, name: str, limits: UnpackLimits | None = None) -> None:
        self.name, self._limits = name, limits or UnpackLimits()
        self.why_nothing = "is empty"
        self._file: BinaryIO = tempfile.TemporaryFile(prefix="onward-import-")  # noqa: SIM115
        try:
            self._fill(source)
        except BaseException:
            with contextlib.suppress(OSError):  # a full disk, which was already reported
                self._file.close()
            raise

    def _fill(self, source: BinaryIO) -> None:
        head = source.read(len(ZSTD))
        if head == ZSTD:
            self.why_nothing = "is truncated: it ends before its first line"
            self._unpack(_Rejoined(head, source))
        else:
            self._copy(_Rejoined(head, source))

    def _unpack(self, source: _Rejoined) -> None:
        try:
            with zstandard.ZstdDecompressor().stream_reader(cast(BinaryIO, source)) as plain:
                self._copy(plain, source)
        except zstandard.ZstdError:
            raise unreadable(self.name, "is damaged: it does not decompress") from None

    def _copy(
        self, source: _Rejoined | zstandard.ZstdDecompressionReader, packed: _Rejoined | None = None
    ) -> None:
        """Copy the input, and refuse it as soon as it exceeds a limit."""
        total = line = 0
        while chunk := source.read(CHUNK):
            total += len(chunk)
            end = chunk.rfind(b"\n")
            line = line + len(chunk) if end < 0 else len(chunk) - end - 1
            if line > self._limits.line:
                raise unreadable(self.name, f"has a line of more than {self._limits.line:,} bytes")
            if packed is not None and total > self._limits.unpacked(packed.count):
                raise unreadable(
                    self.name,
                    f"unpacks to more than {self._limits.unpacked(packed.count):,} bytes out of "
                    f"{packed.count:,}, more than an export should; if you trust it, pass --unpacked-max GIB",
                )
            self._keep(chunk)

    def _keep(self, chunk: bytes) -> None:
        try:
            self._file.write(chunk)
            self._file.flush()
        except OSError as error:
            why = f"cannot be copied into {tempfile.gettempdir()} to be checked: {error.strerror}"
            raise unreadable(self.name, f"{why}; name another directory with TMPDIR") from error

    def lines(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Every line from one offset to another, with the offset where it begins."""
        while end is None or start < end:
            self._file.seek(start)
            line = self._file.readline(LINE_BYTES_MAX)
            if not line:
                return
            yield start, line
            start += len(line)

    def close(self) -> None:
        self._file.close()


class _Rejoined(io.RawIOBase):
    """The bytes that were already read, then the rest."""

    def __init__(self, head: bytes, source: BinaryIO) -> None:
        self._head, self._source = head, source
        self.count = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        head, self._head = self._head, b""
        found = head or self._source.read(size)
        self.count += len(found)
        return found
