"""The calls of a flow as the log has them, read in one pass when its handler begins.

A flow may have made a hundred thousand of them, so little is kept of each: no events, and no answers that
are stored beside the log.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence

import msgspec

from onward.engine.agent_log import AGAIN, AgentPast, agent_of
from onward.engine.call_log import CallMemory, KeptContent
from onward.engine.journal import Journal
from onward.handlers.calls import PastCall
from onward.model.call import STARTED, CallFinished, CallKind, CallLost, CallStarted, CallStatus
from onward.model.events import AttemptInterrupted, Event, StepFinished
from onward.model.gate import GateOpened, asked_about
from onward.model.ids import node_of, place_of
from onward.model.run import Run, StepCalls
from onward.store.codec import unseal
from onward.store.port.log import KEPT_APART, StoredEvent
from onward.store.port.retention import Blobs

_KINDS = frozenset(
    kind.__name__ for kind in (CallStarted, CallFinished, CallLost, GateOpened, AttemptInterrupted)
)
_Calls = dict[str, PastCall]
AGENT, RUN = CallKind.AGENT.value, CallKind.RUN.value


class FlowHistory(msgspec.Struct, frozen=True):
    """The calls of a flow in the order in which they began, and what later tries of them need.

    `agents` are those that have not ended, by their keys.
    """

    calls: Sequence[PastCall]
    memory: CallMemory
    agents: Mapping[str, AgentPast]


async def read_history(journal: Journal, blobs: Blobs, run: Run, step: str) -> FlowHistory:
    """The calls of an open step."""
    memory, opened = CallMemory(KeptContent(blobs), keeps_answers=False), run.open_steps[step]
    found: _Calls = {}
    calls, agents = opened.calls, _Agents(blobs)
    if calls is None:
        return FlowHistory([], memory, {})
    async for page in journal.pages(run.id, after=calls.since, upto=run.head):
        for record in page:
            if record.kind in _KINDS:
                _note(found, memory, calls, step, record, agents)
    return FlowHistory(list(found.values()), memory, agents.past)


class _Agents:
    """The agents of a flow whose calls were read so far."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.past: dict[str, AgentPast] = {}
        self.known: set[str] = set()

    def of(self, call: str) -> str:
        """The key of the agent whose call this is; empty if it is none's."""
        if "/" not in call:
            return ""
        path = call if self.known else ""
        while path := path.rpartition("/")[0]:  # its tools choose keys for their calls, also with slashes
            agent = path.rpartition(AGAIN)[0] or path
            if agent in self.known:
                return agent
        if agent := agent_of(call):
            self.known.add(agent)
        return agent

    def at(self, agent: str) -> AgentPast:
        """What the log has of an agent."""
        found = self.past.get(agent)
        if found is None:
            found = self.past[agent] = AgentPast.empty(self._blobs)
        return found


def _note(
    found: _Calls,
    memory: CallMemory,
    calls: StepCalls,
    step: str,
    record: StoredEvent,
    agents: _Agents,
) -> None:
    event = unseal(record)
    match event:
        case CallFinished(call=call) | CallStarted(call=call) | CallLost(call=call) if agent := agents.of(
            call
        ):
            if event.step == step:
                _note_agents(_past(found, agent, record), agents.at(agent), event, record, calls)
            return
        case CallFinished():  # nearly always
            if event.step != step:
                return
            if event.type == RUN and event.call.endswith(STARTED):
                _note_started(_past(found, event.call.removesuffix(STARTED), record), event)
                return
            past = _past(found, event.call, record)
            past.type, past.about = sys.intern(event.type) or past.type, event.about or past.about
            past.inputs, past.patches = event.inputs or past.inputs, event.patches or past.patches
            if event.status is CallStatus.OK and record.seq > calls.repeats.get(event.call, 0):
                past.is_answered, past.by, past.error = True, event.by, ""
                past.value, past.value_blob, past.is_bytes = event.value, event.value_blob, event.is_bytes
                memory.tries.pop(event.call, None)
                if event.type == AGENT:
                    agents.past.pop(event.call, None)
                if record.refs:
                    memory.content.note(name.lstrip(KEPT_APART) for name in record.refs)
                return
            past.is_answered, past.error = False, event.error
            past.retry_at_us = event.retry_at_us or 0
            if past.retry_at_us:
                memory.retried[event.call] = memory.retried.get(event.call, 0) + 1
            else:
                memory.retried.pop(event.call, None)
            memory.tries[event.call] = event.number
            if event.type == AGENT:
                agents.at(event.call).failed(event)
        case CallStarted():
            if event.step != step:
                return
            past = _past(found, event.call, record)
            past.type, past.is_once, past.about = event.type, not event.repeatable, event.about
            past.inputs, past.patches, past.error = event.inputs, event.patches, ""
            past.is_answered, past.retry_at_us = False, 0
            memory.tries[event.call] = event.number
        case CallLost():
            if event.step == step:
                _past(found, event.call, record)
        case AttemptInterrupted(step=interrupted, running=running) if interrupted == step:
            for one in running:
                past = _past(found, agents.of(one.call) or one.call, record)
                past.inputs, past.patches, past.about = one.inputs, one.patches, one.about
                memory.tries[one.call] = one.number
        case GateOpened():
            asking, _, call = event.gate.partition(":")
            if call and asking == step and (agent := agents.of(call)):
                _past(found, agent, record)
            elif call and asking == step:
                past = _past(found, call, record)
                past.type, past.inputs, past.patches = CallKind.GATE.value, event.question, event.patches
                past.about = asked_about(event.text)


def _note_started(past: PastCall, named: CallFinished) -> None:
    """A call has begun that waits for a run; until it has an answer, its value says which."""
    past.type, past.inputs, past.patches, past.value = RUN, named.inputs, named.patches, named.value


def _note_agents(
    past: PastCall,
    agent: AgentPast,
    event: CallStarted | CallFinished | CallLost,
    record: StoredEvent,
    calls: StepCalls,
) -> None:
    """A call of an agent: so the agent has begun, and has no answer."""
    past.type, past.is_answered, past.error = AGENT, False, ""
    is_gate = not isinstance(event, CallLost) and event.type == CallKind.GATE.value
    if not isinstance(event, CallLost) and event.inputs and not is_gate:  # a question has inputs of its own
        past.inputs, past.patches = event.inputs, event.patches
    agent.note(event, record, calls)


def _past(found: _Calls, call: str, record: StoredEvent) -> PastCall:
    """The call, whose last event this is."""
    past = found.get(call)
    if past is None:
        run_id = sys.intern(record.run_id)  # each record has its own copy
        past = found[call] = PastCall(call, run_id, record.seq, record.seq, record.at_us)
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
    place = 0
    async for page in journal.pages(run.id, after=0, upto=run.head):
        for record in page:
            if record.kind in _KINDS and place and _is_of(unseal(record), nodes, key):
                return place
            if record.kind in _PLACES:
                place = record.seq
    return None


_PLACES = frozenset((CallFinished.__name__, StepFinished.__name__))


def _is_of(event: Event, nodes: Collection[str], key: str) -> bool:
    match event:
        case CallStarted(step=step, call=call) | CallFinished(step=step, call=call):
            return _is_at(call, key) and node_of(place_of(step)) in nodes
        case GateOpened(gate=gate):
            step, _, call = gate.partition(":")
            return _is_at(call, key) and node_of(place_of(step)) in nodes
        case _:
            return False


def _is_at(call: str, key: str) -> bool:
    """Whether it is this call, or one of the agent or of the flow inside the flow that has this key."""
    return call == key or call.startswith((f"{key}/", f"{key}{AGAIN}"))
