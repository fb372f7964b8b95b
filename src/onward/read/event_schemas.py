"""The types of events as they are told: number, kind, time, holder and run, and then the event's own fields.

They are made from the classes of the model, for the description of the HTTP API and for the page. The kind
tells which type an event has.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec

from onward.model.events import Event, event_kinds

SHOWN = "EventShown"
"""The name of the type of any event."""
AROUND: Mapping[str, Mapping[str, Any]] = {
    "seq": {"type": "integer", "minimum": 1, "description": "its number in the log"},
    "at": {"type": "string", "format": "date-time"},
    "token": {"type": "integer", "minimum": 0, "description": "of the lease that it was written under"},
    "run": {"type": "string", "description": "the run that recorded it: a fork begins with its parent's"},
}
"""What every event has besides its kind; `view_event` puts it there."""


def event_schemas(ref_template: str) -> dict[str, dict[str, Any]]:
    """A JSON Schema of every kind of event, by name, of what they consist of, and of any event."""
    kinds = sorted(event_kinds(), key=lambda kind: kind.__name__)
    _, parts = msgspec.json.schema_components(kinds, ref_template=ref_template)
    # Patterns are those of Python, whose end of the text is written in another way.
    parts = msgspec.json.decode(msgspec.json.encode(parts).replace(rb"\\Z", b"$"))
    own = {kind.__name__: parts.pop(kind.__name__) for kind in kinds}
    types = {name_of(kind): _told(kind, own[kind.__name__]) for kind in kinds}
    refs = {kind.__name__: ref_template.format(name=name_of(kind)) for kind in kinds}
    anyone = {
        "title": SHOWN,
        "description": "One event of a run; `kind` says which, and docs/events.md what it means.",
        "oneOf": [{"$ref": ref} for ref in refs.values()],
        "discriminator": {"propertyName": "kind", "mapping": refs},
    }
    return {SHOWN: anyone, **types, **parts}


def name_of(kind: type[Event]) -> str:
    """What the type of a kind of event is called."""
    return f"{kind.__name__}Event"


def _told(kind: type[Event], own: Mapping[str, Any]) -> dict[str, Any]:
    fields = {
        name: schema
        for name, schema in own["properties"].items()
        if name not in AROUND and name not in kind.BESIDE
    }
    needed = [name for name in own.get("required", ()) if name in fields]
    return {
        "title": name_of(kind),
        "description": inspect.cleandoc(kind.__doc__ or ""),
        "type": "object",
        "properties": {"kind": {"const": kind.__name__}, **AROUND, **fields},
        "required": ["kind", *AROUND, *needed],
    }
