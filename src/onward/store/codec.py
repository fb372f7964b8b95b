"""Events to records and back: closed JSON schemas, the hash chain, and large values by content.

Each hash covers its event's run, number, kind, version, time, token and body hash, and the hash before it.
So a lost, edited, moved or foreign line is found, and an append can be recognised by its last hash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from onward.errors import HistoryCorrupt
from onward.model.call import CallFinished, CallStarted
from onward.model.events import ContextEvent, Event, RunClaimed, StepFinished, event_kinds
from onward.model.run import Frozen
from onward.store.port.log import KEPT_APART, Position, StoredEvent

VALUE_BYTES_MAX = 4096
_position = partial(tuple.__new__, Position)  # a fifth of what its own constructor costs
NO_REFS: tuple[str, ...] = ()
_KINDS: Mapping[str, type[Event]] = {kind.__name__: kind for kind in event_kinds()}
_DECODERS = {name: msgspec.json.Decoder(kind) for name, kind in _KINDS.items()}
_encode = msgspec.json.Encoder().encode
_decode_value = msgspec.json.Decoder().decode


def content_hash(content: bytes) -> str:
    """The name of a blob."""
    return blake3(content).hexdigest()


def chain_hash(record: StoredEvent, before: bytes) -> bytes:
    """The hash of a record that stands behind `before`."""
    head = f"{record.run_id}|{record.seq}|{record.kind}|{record.v}|{record.at_us}|{record.token}|"
    return blake3(head.encode() + blake3(record.body.encode()).digest() + before).digest()


class Sealed(Frozen, frozen=True):
    """Chained records, the large values to store beside them, where they end, and their bodies' bytes."""

    records: tuple[StoredEvent, ...]
    blobs: dict[str, bytes]
    head: Position
    size: int


def seal(run_id: str, after: Position, events: Sequence[Event], *, token: int, at_us: int) -> Sealed:
    """Records for these events behind `after`; `token` is the run's, until one of them claims it."""
    records: list[StoredEvent] = []
    blobs: dict[str, bytes] = {}
    size = 0
    hasher = blake3()  # one for all: making one costs more than using it
    seq, before = after
    stamp = f"{at_us}|{token}|"
    for seq, event in enumerate(events, after.seq + 1):
        kind, version, label, without_content = _LABELS[type(event)]
        refs = NO_REFS
        if without_content is not None:
            event, refs = without_content(event, blobs)
        elif type(event) is RunClaimed:
            token = event.token
            stamp = f"{at_us}|{token}|"
        body = _encode(event)
        size += len(body)
        body_hash = hasher.update(body).digest()
        hasher.reset()
        head = f"{run_id}|{seq}{label}{stamp}".encode()
        before = hasher.update(head + body_hash + before).digest()
        hasher.reset()
        records.append(StoredEvent(run_id, seq, kind, version, at_us, token, body.decode(), before, refs))
    return Sealed(tuple(records), blobs, _position((seq, before)), size)


def _without_context(event: Any, blobs: dict[str, bytes]) -> tuple[Event, tuple[str, ...]]:
    """The event without its large values, which go to `blobs`, and what it then refers to."""
    if not event.context:
        return event, NO_REFS
    event, values = _split(event)
    blobs.update(values)
    return event, tuple(values)


def _without_result(event: Any, blobs: dict[str, bytes]) -> tuple[Event, tuple[str, ...]]:
    """The same for what a step left."""
    if not (event.context or event.response or event.artifacts):
        return event, NO_REFS
    event, refs = _without_context(event, blobs)
    if event.response or event.artifacts:
        event, values, more = _split_step(event)
        blobs.update(values)
        refs += more
    return event, refs


def _without_nodes(event: Any, blobs: dict[str, bytes]) -> tuple[Event, tuple[str, ...]]:
    """The same for what a call says in its thread."""
    if not event.nodes:
        return event, ()
    blobs.update(event.nodes)
    refs = tuple(f"{KEPT_APART}{name}" for name in event.nodes)
    return replace(event, nodes={}), refs


def _without_answer(event: Any, blobs: dict[str, bytes]) -> tuple[Event, tuple[str, ...]]:
    """The same for a call's answer."""
    event, refs = _split_call(event, blobs)
    event, more = _without_nodes(event, blobs)
    return event, refs + more


_Without = Callable[[Any, dict[str, bytes]], tuple[Event, tuple[str, ...]]]


def _content_of(kind: type[Event]) -> _Without | None:
    """What takes the large content out of events of a kind; None if they have none."""
    special: dict[type[Event], _Without] = {
        StepFinished: _without_result,
        CallStarted: _without_nodes,
        CallFinished: _without_answer,
    }
    return special.get(kind) or (_without_context if issubclass(kind, ContextEvent) else None)


# A kind's stored name and version, the two as the chain has them, and what takes its large content out.
_LABELS = {
    kind: (kind.__name__, kind.VERSION, f"|{kind.__name__}|{kind.VERSION}|", _content_of(kind))
    for kind in _KINDS.values()
}


def _split_call(event: CallFinished, blobs: dict[str, bytes]) -> tuple[CallFinished, tuple[str, ...]]:
    """Move a large answer, or one in bytes, out of the event. A fold does not read it."""
    content = event.content
    if content is None:
        if not isinstance(event.value, str | list | dict):
            return event, ()
        content = _encode(event.value)
        if len(content) <= VALUE_BYTES_MAX:
            return event, ()
    name = content_hash(content)
    blobs[name] = content
    return replace(event, value=None, content=None, value_blob=name), (f"{KEPT_APART}{name}",)


def _split(event: ContextEvent) -> tuple[ContextEvent, dict[str, bytes]]:
    """Move values of more than a few KB out of the event, leaving their hash."""
    large: dict[str, bytes] = {}
    names: dict[str, str] = {}
    for key, value in event.context.items():
        if isinstance(value, str | list | dict) and len(content := _encode(value)) > VALUE_BYTES_MAX:
            names[key] = content_hash(content)
            large[names[key]] = content
    if not names:
        return event, large
    small = {key: value for key, value in event.context.items() if key not in names}
    return replace(event, context=small, blobs=names), large


def _split_step(event: StepFinished) -> tuple[StepFinished, dict[str, bytes], tuple[str, ...]]:
    """Move a long answer and the contents of artifacts out of the event; what to store and to refer to."""
    values = dict(event.contents)
    refs = [f"{KEPT_APART}{found.hash}" for found in event.artifacts.values() if found is not None]
    changes: dict[str, Any] = {"contents": {}}
    answer = event.response.encode()
    if len(answer) > VALUE_BYTES_MAX:
        changes.update(response="", response_blob=content_hash(answer))
        values[changes["response_blob"]] = answer
        refs.append(changes["response_blob"])
    return replace(event, **changes), values, tuple(refs)


def unseal(record: StoredEvent) -> Event:
    """The event of a record, with its large values back in place."""
    run_id = record.run_id
    decoder = _DECODERS.get(record.kind)
    if decoder is None:
        raise HistoryCorrupt(run_id, record.seq, f"unknown kind {record.kind!r} (written by a newer Onward?)")
    if record.v > _KINDS[record.kind].VERSION:
        raise HistoryCorrupt(run_id, record.seq, f"{record.kind} has version {record.v}; upgrade Onward")
    try:
        event: Event = decoder.decode(record.body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HistoryCorrupt(run_id, record.seq, f"{record.kind} cannot be decoded ({error})") from None
    if isinstance(event, ContextEvent) and event.blobs:
        event = replace(event, context={**event.context, **_values(record, event.blobs)}, blobs={})
    if isinstance(event, StepFinished) and event.response_blob:
        answer = _content(record, event.response_blob, "the response").decode()
        event = replace(event, response=answer, response_blob="")
    return event


def _values(record: StoredEvent, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        key: _decode_value(_content(record, name, f"the value of {key!r}")) for key, name in names.items()
    }


def _content(record: StoredEvent, name: str, what: str) -> bytes:
    content = record.values.get(name)
    if content is None or content_hash(content) != name:
        raise HistoryCorrupt(record.run_id, record.seq, f"{what} (blob {name}) is missing or damaged")
    return content


def check_chain(after: Position, records: Sequence[StoredEvent]) -> Position:
    """The position behind `records` if each stands where its hash says; else HistoryCorrupt."""
    for record in records:
        if record.seq != after.seq + 1:
            raise HistoryCorrupt(record.run_id, after.seq + 1, "the event is missing")
        if chain_hash(record, after.hash) != record.hash:
            why = "its hash does not match its content and the event before it"
            raise HistoryCorrupt(record.run_id, record.seq, why)
        after = Position(record.seq, record.hash)
    return after
