"""Results and requests without secrets, before events are made of them.

What a step says and what people say is redacted once, here: the log, its hashes, receipts, files and exports
then agree. Fields that name something (a step, a node, a path, a hash) are not changed: the run could not be
continued. A pipeline's source is not changed either: its hash is its identity, and `validate` warns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace as with_fields

from onward.machine.catalogue import CATALOGUE
from onward.model.events import Event, LastOutput, Outcome, PrintedLine
from onward.model.gate import Choice
from onward.model.result import Result
from onward.redact.redactor import Redactor

EventT = TypeVar("EventT", bound=Event)
SAID: Mapping[type[msgspec.Struct], tuple[str, ...]] = {
    **{kind: row.said for kind, row in CATALOGUE.items()},
    Outcome: ("preferred_label", "suggested_next_ids", "notes", "failure_reason"),
    LastOutput: ("lines", "error", "traceback"),
    PrintedLine: ("text",),
    Choice: ("label", "data"),
}
"""The fields that hold what steps and people say, of events and of the parts of such fields."""


def redacted_events(redactor: Redactor, events: Sequence[Event]) -> Sequence[Event]:
    """The same events without secrets."""
    if redactor.is_empty:
        return events
    return [_struct(redactor, event) for event in events]


def redacted_event(redactor: Redactor, event: EventT) -> EventT:
    """The same event without secrets."""
    return event if redactor.is_empty else cast("EventT", _struct(redactor, event))


def _struct(redactor: Redactor, struct: Any) -> Any:
    changes = {}
    for name in SAID.get(type(struct), struct.__struct_fields__):  # of a part without a row, all
        if before := getattr(struct, name):
            after = _value(redactor, before)
            if after is not before and after != before:
                changes[name] = after
    return with_fields(struct, **changes) if changes else struct


def _value(redactor: Redactor, value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return _struct(redactor, value)
    if isinstance(value, tuple):
        return tuple(_value(redactor, one) for one in value)
    if isinstance(value, bytes):
        return redactor.redact_bytes(value)
    return redactor.redact_value(value)


def redacted_result(redactor: Redactor, result: Result) -> Result:
    """The same result without secrets. Its artifacts are redacted when they are stored."""
    if redactor.is_empty:
        return result
    redact = redactor.redact
    changes: dict[str, Any] = {}
    for name in ("notes", "failure_reason", "response", "preferred_label"):
        text = getattr(result, name)
        if text and (clean := redact(text)) is not text:
            changes[name] = clean
    for name in ("context_updates", "log", "suggested_next_ids"):
        value = getattr(result, name)
        if value and (clean := redactor.redact_value(value)) is not value:
            changes[name] = clean
    return replace(result, **changes) if changes else result
