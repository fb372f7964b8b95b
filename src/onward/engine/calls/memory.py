"""The calls of a step that were answered before, read from the log when a handler makes its first call."""

from __future__ import annotations

from typing import Any

import msgspec

from onward.engine.calls.content import KeptContent
from onward.engine.log.journal import Journal
from onward.errors import HistoryCorrupt
from onward.handlers.calls import StepPast
from onward.model.call import POSITIONAL, CallFinished, CallKind, CallLost, CallStarted, CallStatus
from onward.model.run import Run, StepCalls
from onward.store.codec import content_hash, unseal
from onward.store.port.log import KEPT_APART, TAIL_MAX, StoredEvent
from onward.store.port.retention import Blobs

GATE, MODEL = CallKind.GATE.value, CallKind.MODEL.value
KINDS = frozenset(kind.__name__ for kind in (CallStarted, CallFinished, CallLost))
_decode = msgspec.json.Decoder().decode


class CallMemory(msgspec.Struct):
    """The answers that are remembered, by call, and how often each call was begun.

    `content` is what the calls stored beside the log: large answers, and messages of conversations.
    """

    content: KeptContent
    answers: dict[str, CallFinished] = msgspec.field(default_factory=dict)
    tries: dict[str, int] = msgspec.field(default_factory=dict)
    messages: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """The messages that the tries of a call were stored in, in this generation."""
    dropped: dict[str, CallFinished] = msgspec.field(default_factory=dict)
    """The answers of tools that came after the last of the model, before the memory was cleared."""
    generation: int = 0
    past: StepPast = msgspec.field(default_factory=StepPast)

    def next_try(self, call: str) -> int:
        """The number of the next try of a call; it never comes back."""
        number = self.tries[call] = self.tries.get(call, 0) + 1
        return number

    def begin(self, call: str, message: str) -> None:
        """Remember where the text of a call's next try is stored."""
        self.messages.setdefault(call, []).append(message)

    def drop(self, finished: CallFinished) -> None:
        """Remember what tools answered in the last round of an earlier generation."""
        if finished.type == MODEL:
            self.dropped.clear()
        elif POSITIONAL.fullmatch(finished.call) and finished.type != GATE:  # a tool, or a person for it
            self.dropped[finished.call] = finished

    def note(self, finished: CallFinished) -> None:
        """Remember an answer. A call that ended in an error has none."""
        self.answers[finished.call] = finished


async def read_memory(journal: Journal, blobs: Blobs, run: Run, step: str) -> CallMemory:
    """What the log says about the calls of an open step."""
    memory, calls = CallMemory(KeptContent(blobs)), run.open_steps[step].calls
    if calls is None:
        return memory
    memory.generation = calls.generation
    if calls.has_acted:
        memory.past = StepPast(thread=calls.thread, failure=calls.failure)
    once: set[tuple[str, int]] = set()
    after = calls.since
    while after < run.head:
        page = await journal.read(run.id, after=after, limit=min(TAIL_MAX, run.head - after))
        if not page:
            break
        for record in page:
            if record.kind in KINDS:
                _note(memory, calls, step, record, once)
        after = page[-1].seq
    return memory


def _note(
    memory: CallMemory, calls: StepCalls, step: str, record: StoredEvent, once: set[tuple[str, int]]
) -> None:
    """Take one event in. `once` are the tries, by call, that must not be repeated."""
    event = unseal(record)
    assert isinstance(event, CallStarted | CallFinished | CallLost)
    if event.step != step:
        return
    memory.tries[event.call] = max(event.number, memory.tries.get(event.call, 0))
    said = (
        event.said if isinstance(event, CallFinished) else ""
    )  # what was streamed is for readers of messages
    memory.content.note(name for ref in record.refs if (name := ref.lstrip(KEPT_APART)) != said)
    if isinstance(event, CallStarted):
        if not event.repeatable and not POSITIONAL.fullmatch(event.call):
            once.add((event.call, event.number))
        if event.streamed is not None and record.seq > calls.calls_from:
            memory.begin(event.call, event.streamed.message)
        if event.definition and record.seq > calls.calls_from:
            memory.past = StepPast(event.definition, event.model, calls.thread)
    if not isinstance(event, CallFinished) or event.status is not CallStatus.OK:
        return
    if record.seq <= calls.calls_from:
        memory.drop(event)
    lasts = record.seq > calls.calls_from or (event.call, event.number) in once
    if lasts and record.seq > calls.repeats.get(event.call, 0):
        memory.answers[event.call] = event


async def value_of(memory: CallMemory, run_id: str, finished: CallFinished) -> Any:
    """What a call answered: a JSON value, or bytes."""
    if not finished.value_blob:
        return finished.value
    content = await memory.content.find(finished.value_blob)
    if content is None or content_hash(content) != finished.value_blob:
        why = f"the answer of call {finished.call} of step {finished.step} is missing or damaged"
        raise HistoryCorrupt(run_id, 0, why)
    return content if finished.is_bytes else _decode(content)
