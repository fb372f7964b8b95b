"""What users' messages ask for, as rows: for every SQL database alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from onward.errors import StoreCorrupt
from onward.model.chats.intake import Intake
from onward.store.port.chats.intakes import ChatRow

_FIELDS = Intake.__struct_fields__
_CHAT_FIELDS = ChatRow.__struct_fields__


def intake_of(columns: Sequence[Any]) -> Intake:
    """What a message asks for, from its columns, which are in the order of its fields."""
    values = dict(zip(_FIELDS, columns, strict=True))
    try:
        return msgspec.convert({**values, "outcome": values["outcome"] or None}, Intake)
    except msgspec.ValidationError as error:
        raise StoreCorrupt(f"the intake of message {columns[1]!r} is damaged: {error}.") from None


def intake_values(intake: Intake) -> dict[str, Any]:
    """The columns of a message that was just said."""
    return {
        "message": intake.message,
        "chat": intake.chat,
        "body_hash": intake.body_hash,
        "said_by": intake.said_by,
        "wish": intake.wish.value,
        "project": intake.project,
        "pipeline": intake.pipeline,
        "workdir": intake.workdir,
        "at_us": intake.at_us,
    }


def chat_of(columns: Sequence[Any]) -> ChatRow:
    """A chat from its columns, which are in the order of its fields."""
    try:
        return msgspec.convert(dict(zip(_CHAT_FIELDS, columns, strict=True)), ChatRow)
    except msgspec.ValidationError as error:
        raise StoreCorrupt(f"the row of chat {columns[1]!r} is damaged: {error}.") from None
