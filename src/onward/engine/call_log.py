"""Calls as the log has them: the events of one try, and what was answered before.

The memory of a step is read from the log when its handler makes the first call. Content that the calls
stored is read in pages, since an agent that continues reads all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from onward.engine.journal import Journal
from onward.errors import CallFailed, HistoryCorrupt, UnstorableValue, said, told
from onward.handlers.calls import CallAnswer, CallOptions, PastCall, StepPast
from onward.model.call import (
    CALL_BYTES_MAX,
    POSITIONAL,
    CallFinished,
    CallKind,
    CallLost,
    CallStarted,
    CallStatus,
    Streamed,
)
from onward.model.events import RunningCall, StepStarted
from onward.model.limits import is_possible
from onward.model.run import Run, StepCalls
from onward.model.stored import as_stored, content_of
from onward.store.codec import content_hash, unseal
from onward.store.port.log import KEPT_APART, StoredEvent
from onward.store.port.retention import Blobs


class OneTry(msgspec.Struct, frozen=True):
    """Try `number` of the call `key` in an attempt."""

    attempt: StepStarted
    key: str
    number: int
    options: CallOptions

    def started(self, streamed: Streamed | None) -> CallStarted:
        """It begins; its text grows in a message, if it has one."""
        options = self.options
        return CallStarted(
            step=self.attempt.step,
            attempt=self.attempt.attempt,
            call=self.key,
            number=self.number,
            type=options.type,
            name=options.name,
            definition=options.definition,
            repeatable=options.repeatable,
            reserved=options.reserved,
            streamed=streamed,
            model=options.model,
            thread=options.thread,
            shortened_to=options.shortened_to,
            nodes=dict(options.nodes),
            about=options.about,
            steering=len(options.steering),
            inputs=options.inputs,
            patches=options.patches,
        )

    def answered(self, value: Any, duration_us: int) -> CallFinished:
        """It has an answer: bytes or what becomes JSON, or a `CallAnswer` with what else is known of it.

        UnstorableValue if that cannot be stored.
        """
        answer = value if type(value) is CallAnswer else CallAnswer(value)
        value, where = answer.value, f"the result of call {self.key!r}"
        content = content_of(value, where)
        if content is None:
            value = as_stored(value, where)
        _check_size(value if content is None else content, where)
        # What cannot be true could neither be stored nor added up, and the answer would be lost with it.
        is_counted = is_possible(answer.usage, answer.cost_micro)
        return CallFinished(
            step=self.attempt.step,
            attempt=self.attempt.attempt,
            call=self.key,
            number=self.number,
            status=CallStatus.OK,
            type=self.options.type,
            name=self.options.name,
            value=value if content is None else None,
            content=content,
            is_bytes=content is not None,
            usage=answer.usage if is_counted else None,
            cost_micro=answer.cost_micro if is_counted else None,
            model=answer.model or self.options.model,
            request_id=answer.request_id,
            thread=answer.thread,
            nodes=dict(answer.nodes),
            duration_us=duration_us,
            about=self.options.about,
            is_cost_unknown=bool(answer.note) or not is_counted,
            note=answer.note,
            inputs=self.options.inputs,
            patches=self.options.patches,
        )

    def failed(self, error: Exception, duration_us: int, retry_at_us: int | None = None) -> CallFinished:
        """It ended in an error; a flow makes the call again then."""
        failed = replace(
            self.answered(None, duration_us),
            status=CallStatus.ERROR,
            error=told(error),
            retry_at_us=retry_at_us,
        )
        if isinstance(error, CallFailed):
            failed = replace(failed, is_cost_unknown=error.may_have_cost, failure=error.kind)
        return failed

    def running(self, where: str) -> RunningCall:
        """Its function still runs, there."""
        return RunningCall(
            call=self.key,
            number=self.number,
            where=where,
            about=f"{self.options.name} {self.options.about}".strip(),
            inputs=self.options.inputs,
            patches=self.options.patches,
        )

    def lost(self, error: Exception, *, is_done: bool = False) -> CallLost:
        """It will never be answered, and may have done its work."""
        return CallLost(
            step=self.attempt.step, call=self.key, number=self.number, why=said(error), is_done=is_done
        )


def _check_size(value: Any, what: str) -> None:
    """UnstorableValue for an answer that no log should have to hold; nearly all are small."""
    if not isinstance(value, bytes | str | list | dict):
        return
    size = len(value) if isinstance(value, bytes) else len(_encode(value))
    if size > CALL_BYTES_MAX:
        raise UnstorableValue(
            f"{what} has {size:,} bytes, and at most {CALL_BYTES_MAX:,} can be stored; write it into a file "
            "and return its path."
        )


PAGE = 100


class KeptContent:
    """Finds content by its hash; `note` says what there is, in the order in which it was stored.

    Messages of a conversation are read one after the other, because each names the one before it: one by one
    that would be a trip to the database for each.
    """

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._names: list[str] = []
        self._places: dict[str, int] = {}
        self._ahead: dict[str, bytes] = {}

    def note(self, names: Iterable[str]) -> None:
        """What was stored next."""
        for name in names:
            self._places[name] = len(self._names)
            self._names.append(name)

    async def find(self, name: str) -> bytes | None:
        """The content, or None."""
        place = self._places.get(name)
        if place is None:
            return await self._blobs.find(name)
        if name not in self._ahead:
            first = place // PAGE * PAGE
            self._ahead |= await self._blobs.find_many(self._names[first : first + PAGE])
        return self._ahead.pop(name, None)


GATE, MODEL = CallKind.GATE.value, CallKind.MODEL.value
KINDS = frozenset((CallStarted.__name__, CallFinished.__name__, CallLost.__name__))
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class CallMemory(msgspec.Struct):
    """The answers that are remembered, by call, and how often each call was begun.

    `content` is what the calls stored beside the log: large answers, and messages of conversations.
    """

    content: KeptContent
    answers: dict[str, CallFinished] = msgspec.field(default_factory=dict)
    tries: dict[str, int] = msgspec.field(default_factory=dict)
    messages: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """The messages that the tries of a call were stored in, in this generation."""
    failures: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """How the service failed in the tries of a call, in this generation."""
    dropped: dict[str, CallFinished] = msgspec.field(default_factory=dict)
    """The answers of tools that came after the last of the model, before the memory was cleared."""
    generation: int = 0
    past: StepPast = msgspec.field(default_factory=StepPast)
    keeps_answers: bool = True
    """Whether answers are kept: a flow asks for each of its calls once."""
    retried: dict[str, int] = msgspec.field(default_factory=dict)
    """How many tries of a flow's call have failed that is to be made again."""

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
        if self.keeps_answers:
            self.answers[finished.call] = finished
        else:
            self.tries.pop(finished.call, None)

    def note_failure(self, finished: CallFinished) -> None:
        """Remember how a try of a call failed."""
        if finished.failure:
            self.failures.setdefault(finished.call, []).append(finished.failure)


async def read_memory(journal: Journal, blobs: Blobs, run: Run, step: str) -> CallMemory:
    """What the log says about the calls of an open step."""
    memory, calls = CallMemory(KeptContent(blobs)), run.open_steps[step].calls
    if calls is None:
        return memory
    memory.generation = calls.generation
    if calls.has_acted:
        memory.past = StepPast(thread=calls.thread, failure=calls.failure)
    once: set[tuple[str, int]] = set()
    async for page in journal.pages(run.id, after=calls.since, upto=run.head):
        for record in page:
            if record.kind in KINDS:
                _note(memory, calls, step, record, once)
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
    if isinstance(event, CallFinished) and record.seq > calls.calls_from:
        memory.note_failure(event)
    if not isinstance(event, CallFinished) or event.status is not CallStatus.OK:
        return
    if record.seq <= calls.calls_from:
        memory.drop(event)
    lasts = record.seq > calls.calls_from or (event.call, event.number) in once
    if lasts and record.seq > calls.repeats.get(event.call, 0):
        memory.answers[event.call] = event


async def value_of(memory: CallMemory, run_id: str, finished: CallFinished | PastCall) -> Any:
    """What a call answered: a JSON value, or bytes."""
    if not finished.value_blob:
        return finished.value
    content = await memory.content.find(finished.value_blob)
    if content is None or content_hash(content) != finished.value_blob:
        call = finished.key if isinstance(finished, PastCall) else finished.call
        why = f"the answer of call {call} is missing or damaged"
        raise HistoryCorrupt(run_id, 0, why)
    return content if finished.is_bytes else _decode(content)
