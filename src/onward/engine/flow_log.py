"""The calls of a flow as the log has them, read in one pass when its handler begins.

A flow may have made a hundred thousand of them, so little is kept of each: no events, and no answers that
are stored beside the log.
"""

from __future__ import annotations

from onward.engine.call_log import CallMemory, KeptContent
from onward.engine.journal import Journal
from onward.handlers.calls import PastCall
from onward.model.call import CallFinished, CallKind, CallLost, CallStarted, CallStatus
from onward.model.gate import GateOpened
from onward.model.run import Run, StepCalls
from onward.store.codec import unseal
from onward.store.port.log import KEPT_APART, TAIL_MAX, StoredEvent
from onward.store.port.retention import Blobs

_KINDS = frozenset(kind.__name__ for kind in (CallStarted, CallFinished, CallLost, GateOpened))
_Calls = dict[str, PastCall]


async def read_history(
    journal: Journal, blobs: Blobs, run: Run, step: str
) -> tuple[list[PastCall], CallMemory]:
    """The calls of an open step in the order in which they began, and what later tries of them need."""
    memory, opened = CallMemory(KeptContent(blobs), keeps_answers=False), run.open_steps[step]
    found: _Calls = {}
    calls = opened.calls
    if calls is None:
        return [], memory
    after = calls.since
    while after < run.head:
        page = await journal.read(run.id, after=after, limit=min(TAIL_MAX, run.head - after))
        if not page:
            break
        for record in page:
            if record.kind in _KINDS:
                _note(found, memory, calls, step, record)
        after = page[-1].seq
    return list(found.values()), memory


def _note(found: _Calls, memory: CallMemory, calls: StepCalls, step: str, record: StoredEvent) -> None:
    event = unseal(record)
    match event:
        case CallFinished():  # nearly always
            if event.step != step:
                return
            past = _past(found, event.call, record)
            past.type, past.about = event.type or past.type, event.about or past.about
            past.inputs, past.patches = event.inputs or past.inputs, event.patches or past.patches
            if event.status is CallStatus.OK and record.seq > calls.repeats.get(event.call, 0):
                past.is_answered, past.by, past.error = True, event.by, ""
                past.value, past.value_blob, past.is_bytes = event.value, event.value_blob, event.is_bytes
                memory.tries.pop(event.call, None)
                if record.refs:
                    memory.content.note(name.lstrip(KEPT_APART) for name in record.refs)
                return
            past.is_answered, past.error = False, event.error
            memory.tries[event.call] = event.number
        case CallStarted():
            if event.step != step:
                return
            past = _past(found, event.call, record)
            past.type, past.is_once, past.about = event.type, not event.repeatable, event.about
            past.inputs, past.patches, past.error = event.inputs, event.patches, ""
            past.is_answered = False
            memory.tries[event.call] = event.number
        case CallLost():
            if event.step == step:
                _past(found, event.call, record)
        case GateOpened():
            asking, _, call = event.gate.partition(":")
            if call and asking == step:
                past = _past(found, call, record)
                past.type, past.inputs = CallKind.GATE.value, event.question


def _past(found: _Calls, call: str, record: StoredEvent) -> PastCall:
    """The call, whose last event this is."""
    past = found.get(call)
    if past is None:
        past = found[call] = PastCall(call, record.run_id, record.seq, record.seq, record.at_us)
        return past
    past.seq, past.at_us = record.seq, record.at_us
    return past
