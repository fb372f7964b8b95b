"""The calls of a flow as the log has them, read in one pass when its handler begins.

A flow may have made a hundred thousand of them, so little is kept of each: no events, and no answers that
are stored beside the log.
"""

from __future__ import annotations

import sys
from collections.abc import Collection

from onward.engine.call_log import CallMemory, KeptContent
from onward.engine.journal import Journal
from onward.handlers.calls import PastCall
from onward.model.call import CallFinished, CallKind, CallLost, CallStarted, CallStatus
from onward.model.events import Event, StepFinished
from onward.model.gate import GateOpened
from onward.model.ids import node_of, place_of
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
            past.type, past.about = sys.intern(event.type) or past.type, event.about or past.about
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
                past.type, past.inputs, past.patches = CallKind.GATE.value, event.question, event.patches


def _past(found: _Calls, call: str, record: StoredEvent) -> PastCall:
    """The call, whose last event this is."""
    past = found.get(call)
    if past is None:
        past = found[call] = PastCall(call, record.run_id, record.seq, record.seq, record.at_us)
        return past
    past.seq, past.at_us = record.seq, record.at_us
    return past


async def before_call(journal: Journal, run: Run, nodes: Collection[str], key: str) -> int | None:
    """Where a fork begins that makes this call of a flow again; None if no flow of the run made it.

    That is the last event before the call's first at which nothing is left half written: another call's
    answer, or a finished step.
    """
    if not nodes:
        return None
    place, after = 0, 0
    while after < run.head:
        page = await journal.read(run.id, after=after, limit=min(TAIL_MAX, run.head - after))
        if not page:
            break
        for record in page:
            if record.kind in _KINDS and place and _is_of(unseal(record), nodes, key):
                return place
            if record.kind in _PLACES:
                place = record.seq
        after = page[-1].seq
    return None


_PLACES = frozenset((CallFinished.__name__, StepFinished.__name__))


def _is_of(event: Event, nodes: Collection[str], key: str) -> bool:
    match event:
        case CallStarted(step=step, call=call) | CallFinished(step=step, call=call):
            return call == key and node_of(place_of(step)) in nodes
        case GateOpened(gate=gate):
            step, _, call = gate.partition(":")
            return call == key and node_of(place_of(step)) in nodes
        case _:
            return False
