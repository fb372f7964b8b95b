"""The format of an export: one JSON object per line, with closed schemas.

First a header with the runs, parents before their forks. Then, for each run, its events, effects and
messages; content comes before the first of these that refers to it. Last an end with the number of lines and
the hash of their bytes, so that a truncated or changed file is noticed.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from onward.model.chats.message import Message, Role
from onward.model.row import MessageState
from onward.model.values.bounds import Instant, Number
from onward.store.codec import content_hash
from onward.store.port.effects import Effect
from onward.store.port.stored import Position, StoredEvent

FORMAT, VERSION = "onward-export", 2
"""Version 2 has messages; everything else is as in version 1."""
# Text that every database can store: a file with any other is refused before anything is written.
Text = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*\Z")]


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="line"):
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


class EffectLine(Line, frozen=True, kw_only=True, tag="effect"):
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


class MessageLine(Line, frozen=True, kw_only=True, tag="message"):
    """A message of a run, in the state that the run's log in this file gives it. `content` names its text."""

    id: Text
    chat: Text
    run: Text
    step: Text
    call: Text
    number: Number = msgspec.field(name="try")
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


class End(Line, frozen=True, kw_only=True, tag="end"):
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
