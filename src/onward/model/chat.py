"""Chats: what is said in them, what a user's message asks for, and what became of it.

A message is stored while it grows, in chunks that a reader gets by their position. A user's message has an
intake: what it asks for and what became of it. Before its run begins, a message is read once
(`MessageReading`): what it wants, where, and with which pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from onward.errors import StoreCorrupt
from onward.model.ids import derived_run_id
from onward.model.row import MessageState
from onward.model.run import Frozen, Run

RUN_CHATS = "run/"
"""How the chat of a run begins that was given none. The name of no other chat begins like that."""


class Role(StrEnum):
    """Who says a message: a person, a model, or Onward itself."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"


class ChunkKind(StrEnum):
    """What a chunk is. The beginning and the end of a message are chunks too: a reader needs one cursor."""

    START = "start"
    TEXT = "text"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    END = "end"


WRITTEN = frozenset({ChunkKind.TEXT, ChunkKind.REASONING, ChunkKind.TOOL_CALL, ChunkKind.TOOL_RESULT})
"""What a stream writes; the other kinds come with the events of its call."""
RUNNING_TEXT = frozenset({ChunkKind.TEXT, ChunkKind.REASONING})
"""Text that goes on from chunk to chunk. Of the other kinds each chunk is whole."""


class Message(Frozen, frozen=True, kw_only=True):
    """A message, without its text. `number` is the try of its call; `changed_at_us` is when it last grew.

    Its chunks are at positions of its chat from `first_position` on, and if it has ended, up to
    `last_position`. `content` names the blob of its sealed text; once it is `is_tidied`, only that is left.
    """

    id: str
    chat: str
    run_id: str
    step: str
    call: str
    number: int
    role: Role
    state: MessageState
    model: str
    begun_at_us: int
    changed_at_us: int
    ended_at_us: int | None
    first_position: int
    last_position: int | None
    content: str | None = None
    is_tidied: bool = False


class Part(NamedTuple):
    """A piece of a message's content: all text or reasoning up to something else, or one tool's."""

    kind: ChunkKind
    text: str


class EarlierMessage(NamedTuple):
    """What was said in a chat before a run, by a user or by the agents of an earlier run."""

    role: Role
    text: str


class Chunk(Frozen, frozen=True, kw_only=True):
    """A piece of a message at its position in the chat. A start has the role as its text, an end the
    state."""

    position: int
    message: str
    index: int
    kind: ChunkKind
    text: str


class Reset(Frozen, frozen=True, kw_only=True):
    """A whole message whose chunks are gone. It replaces whatever a reader has of it."""

    position: int
    message: str
    role: Role
    state: MessageState
    parts: tuple[Part, ...]


Heard = Chunk | Reset
"""What a reader of a chat gets."""
_parts_decoder = msgspec.json.Decoder(tuple[Part, ...])


def chat_of_run(run_id: str) -> str:
    """The chat of a run that was given none."""
    return f"{RUN_CHATS}{run_id}"


def message_id(run_id: str, step: str, call: str, number: int) -> str:
    """The id of the message of a call: the four never recur together, so nothing else ever has it."""
    return blake3(f"{run_id}/{step}/{call}~{number}".encode()).hexdigest(length=13)


def joined_parts(chunks: Iterable[tuple[ChunkKind, str]]) -> tuple[Part, ...]:
    """The content of a message from its chunks, however its text was cut."""
    found: list[Part] = []
    for kind, text in chunks:
        if kind not in WRITTEN:
            continue
        if found and found[-1].kind is kind and kind in RUNNING_TEXT:
            found[-1] = Part(kind, found[-1].text + text)
        else:
            found.append(Part(kind, text))
    return tuple(found)


def text_of(parts: Iterable[Part]) -> str:
    """What a message says, without its reasoning and its tools."""
    return "".join(part.text for part in parts if part.kind is ChunkKind.TEXT)


def seal_parts(parts: Iterable[Part]) -> bytes:
    """The content of a message as its blob has it."""
    return msgspec.json.encode(tuple(parts))


def unseal_parts(content: bytes) -> tuple[Part, ...]:
    """The content of a message from its blob; `msgspec.MsgspecError` if it is none."""
    return _parts_decoder.decode(content)


class Wish(StrEnum):
    """What a user says about a message: nothing, start anew, or continue what stopped."""

    NONE = ""
    FRESH = "fresh"
    RESUME = "resume"


class IntakeState(StrEnum):
    """How a message stands: nothing is decided yet or it waits for a run; its run has an id and may not be
    created yet; or it is dealt with."""

    PENDING = "pending"
    STARTING = "starting"
    DONE = "done"


class IntakeOutcome(StrEnum):
    """What became of a message."""

    STARTED = "started"
    RESUMED = "resumed"
    STEERED = "steered"
    ANSWERED = "answered"
    GATE = "gate"
    ASKED = "asked"
    LIMIT = "limit"
    REFUSED = "refused"


class Intake(Frozen, frozen=True, kw_only=True):
    """A user's message with what it asks for, and what became of it. `n` is its place in the order of all.

    `body_hash` is that of the request that said it. `project`, `pipeline` and `workdir` (where the
    commands of its run work) are what it named, if anything.
    `behind` is the run that it waits for; `run_id` the run that it started, resumed or spoke to. `reading` is
    what was made of it before its run began, as JSON. `notice` is what its sender was told.
    """

    n: int
    message: str
    chat: str
    body_hash: str
    said_by: str
    wish: Wish
    project: str
    pipeline: str
    workdir: str
    state: IntakeState
    behind: str
    outcome: IntakeOutcome | None
    run_id: str
    reading: str
    notice: str
    at_us: int
    done_at_us: int | None


def keyed_message_id(by: str, key: str) -> str:
    """The id of a message that was sent under a key: the same whenever the same sender sends it again."""
    return blake3(f"{by} says under {key}".encode()).hexdigest(length=13)


def run_of_message(message: str, at_us: int) -> str:
    """The id of the run that a message starts: no message starts two."""
    return derived_run_id(at_us, f"run of message {message}")


def reading_of_message(message: str, at_us: int) -> str:
    """The id of the run in which a model reads a message."""
    return derived_run_id(at_us, f"reading of message {message}")


def answer_to(message: str, what: str) -> str:
    """The id of what Onward says about a message: said again, it is said once."""
    return blake3(f"{what} for message {message}".encode()).hexdigest(length=13)


KIND_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,49}")
"""The names of intents and scopes, which pipelines choose."""
BY_RULES = "rules"
READING_TAG = "onward-reading"
"""What runs are tagged with in which a model reads a message: they are no work of the chat."""


class Act(Frozen, frozen=True, kw_only=True):
    """A request to a run, as of an event of its log. `gate` is the question that it answers."""

    does: str
    run: str
    head: int
    gate: str = ""


class MessageReading(Frozen, frozen=True, kw_only=True):
    """A message as it was read, once. `by` is who read it: `rules`, or a model; empty if nothing was to read.

    `pipeline` and `version` are what its run is of (0: the one that is built in); `planned_agents` are those
    that it may come to. `instead_of` is the run that it starts anew. `asked` is the run in which a model
    reads it. `act` is what is about to be done to a run, noted before: whoever takes the message up after a
    crash does the same. `may_answer`: it may answer a gate; it is known as soon as the message is stored.
    """

    intent: str | None = None
    scope: str | None = None
    by: str = ""
    pipeline: str = ""
    version: int = 0
    planned_agents: tuple[str, ...] = ()
    has_files: bool = False
    instead_of: str = ""
    asked: str = ""
    act: Act | None = None
    may_answer: bool = True


NOT_READ = MessageReading()
CANNOT_ANSWER = MessageReading(may_answer=False)
_reading_decoder = msgspec.json.Decoder(MessageReading)
_reading_encoder = msgspec.json.Encoder()


def read_reading(text: str) -> MessageReading:
    """A reading as it is stored; an empty text is none."""
    try:
        return _reading_decoder.decode(text) if text else NOT_READ
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"how a message was read is damaged: {error}.") from None


def write_reading(reading: MessageReading) -> str:
    """A reading as it is stored."""
    return _reading_encoder.encode(reading).decode()


def noted(before: str, reading: MessageReading) -> str:
    """A reading that takes the place of `before`, as it is stored: who may answer does not change."""
    return write_reading(replace(reading, may_answer=read_reading(before).may_answer))


GIVEN_BY_CHATS = ("intent", "scope", "user_message", "planned_agents", "has_files")
"""What the run of a message is given, whatever its pipeline declares."""


def inputs_of(reading: MessageReading, text: str) -> dict[str, Any]:
    """What the run of a message is given."""
    return {
        "intent": reading.intent,
        "scope": reading.scope,
        "user_message": text,
        "planned_agents": list(reading.planned_agents),
        "has_files": reading.has_files,
    }


class ChatFacts(Frozen, frozen=True, kw_only=True):
    """What the run of a message was given, as far as it was."""

    intent: str | None
    scope: str | None
    user_message: str | None
    planned_agents: tuple[str, ...]


def facts_of(run: Run) -> ChatFacts:
    """What a run says about the message that started it. Steps may have changed values: what is no text is
    nothing."""
    context = run.context
    planned = context.get("planned_agents")
    names = planned if isinstance(planned, list | tuple) else ()
    return ChatFacts(
        intent=_text(context.get("intent")),
        scope=_text(context.get("scope")),
        user_message=_text(context.get("user_message")),
        planned_agents=tuple(name for name in names if isinstance(name, str)),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
