"""The lines of an export: JSON, one object a line, closed schemas.

A header that names the runs, parents before their forks; then, run by run, its events, each after the
content that it is the first in the file to name, and the run's effects; and an end with the number of lines
and the hash of their bytes, so that a truncated or changed file is recognised.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from onward.model.values.bounds import Instant, Number
from onward.store.codec import content_hash
from onward.store.port.effects import Effect
from onward.store.port.record import Position, Record

FORMAT, VERSION = "onward-export", 1
# What every database can hold: a file is refused before anything of it is written, not half-way.
Text = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*\Z")]


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="line"):
    """Any line."""


class CarriedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run as the header names it: where its log ends, and what it stands on."""

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


class Header(Line, frozen=True, kw_only=True, tag="header"):
    """The first line."""

    format: str
    version: int
    onward: str
    runs: tuple[CarriedRun, ...]


class BlobLine(Line, frozen=True, kw_only=True, tag="blob"):
    """Content under its BLAKE3."""

    hash: str
    content: bytes


class EventLine(Line, frozen=True, kw_only=True, tag="event"):
    """An event exactly as it is stored."""

    run: str
    seq: Number
    kind: str
    v: Number
    at_us: Instant
    token: Number
    body: str
    hash: str
    refs: tuple[str, ...] = ()

    @classmethod
    def of(cls, record: Record) -> EventLine:
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

    def record(self) -> Record:
        hash_ = bytes.fromhex(self.hash)
        return Record(
            self.run, self.seq, self.kind, self.v, self.at_us, self.token, self.body, hash_, self.refs
        )


class EffectLine(Line, frozen=True, kw_only=True, tag="effect"):
    """An effect of a run; without a result it is in doubt where it arrives."""

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


class End(Line, frozen=True, kw_only=True, tag="end"):
    """The last line: how many there were before it, and the BLAKE3 of their bytes."""

    lines: int
    hash: str


AnyLine = Header | BlobLine | EventLine | EffectLine | End
_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(AnyLine)
EVENT_BEGINS = b'{"line":"event",'


def write_line(line: AnyLine) -> bytes:
    """A line with its end."""
    return _encode(line) + b"\n"


def read_line(line: bytes) -> AnyLine:
    """What a line says; `msgspec.MsgspecError` or `ValueError` if nothing of ours."""
    found: AnyLine = _decoder.decode(line)
    if isinstance(found, BlobLine) and content_hash(found.content) != found.hash:
        raise ValueError(f"the content {found.hash} does not match its hash")
    return found
