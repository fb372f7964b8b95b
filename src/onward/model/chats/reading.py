"""What is made of a message before its run begins: what it wants, where, and with which pipeline."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from onward.errors import StoreCorrupt
from onward.model.run import Frozen, Run


class Intent(StrEnum):
    """What a message wants: something new, something mended, or an answer."""

    BUILD = "build"
    FIX = "fix"
    QUESTION = "question"


class ChatScope(StrEnum):
    """Which part of the work a message is about."""

    FRONTEND = "frontend"
    BACKEND = "backend"
    STYLING = "styling"
    FULL = "full"


INTENTS = tuple(intent.value for intent in Intent)
SCOPES = tuple(scope.value for scope in ChatScope)
RULES = "rules"
READING_TAG = "onward-reading"
"""What runs are tagged with in which a model reads a message: they are no work of the chat."""


class Act(Frozen, frozen=True, kw_only=True):
    """A request to a run, as of an event of its log. `gate` is the question that it answers."""

    does: str
    run: str
    head: int
    gate: str = ""


class Reading(Frozen, frozen=True, kw_only=True):
    """A message as it was read, once. `by` is who read it: `rules`, or a model.

    `pipeline` and `version` are what its run is of; `planned_agents` are those that it may come to.
    `instead_of` is the run that it starts anew. `asked` is the run in which a model reads it. `act` is what
    is about to be done to a run, noted before: whoever takes the message up after a crash does the same.
    """

    intent: Intent | None = None
    scope: ChatScope | None = None
    by: str = ""
    pipeline: str = ""
    version: int = 0
    planned_agents: tuple[str, ...] = ()
    has_files: bool = False
    instead_of: str = ""
    asked: str = ""
    act: Act | None = None


NOT_READ = Reading()
_decoder = msgspec.json.Decoder(Reading)
_encoder = msgspec.json.Encoder()


def read_reading(text: str) -> Reading:
    """A reading as it is stored; an empty text is none."""
    try:
        return _decoder.decode(text) if text else NOT_READ
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"how a message was read is damaged: {error}.") from None


def write_reading(reading: Reading) -> str:
    """A reading as it is stored."""
    return _encoder.encode(reading).decode()


def inputs_of(reading: Reading, text: str) -> dict[str, Any]:
    """What the run of a message is given."""
    return {
        "intent": None if reading.intent is None else reading.intent.value,
        "scope": None if reading.scope is None else reading.scope.value,
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
        intent=_known(context.get("intent"), INTENTS),
        scope=_known(context.get("scope"), SCOPES),
        user_message=found if isinstance(found := context.get("user_message"), str) else None,
        planned_agents=tuple(name for name in names if isinstance(name, str)),
    )


def _known(value: object, known: tuple[str, ...]) -> str | None:
    return value if isinstance(value, str) and value in known else None
