"""The calls of an agent inside a flow, as the log has them: read with the history of the flow.

They are answered by their keys, not in order: the agent's conversation decides what comes next. An agent
that failed for good and is tried anew asks anew, under another key: `agent#2~1/m1`. If its tools did
something that must not be repeated, it goes on with the conversation that it had.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from onward.engine.call_log import GATE, MODEL, CallMemory, KeptContent
from onward.handlers.calls import StepPast
from onward.model.call import POSITIONAL, CallFinished, CallLost, CallStarted, CallStatus
from onward.model.run import StepCalls
from onward.store.port.log import KEPT_APART, StoredEvent
from onward.store.port.retention import Blobs

AGAIN = "~"
"""Between the key of an agent and how often it was tried anew."""
KEPT = "kept"
"""What is recorded of an agent that failed, if its answers count when it is tried again."""


def agent_of(call: str) -> str:
    """The key of the agent whose call this is; empty if it is none's."""
    path, _, name = call.rpartition("/")
    if path and name[:1] == "m" and POSITIONAL.fullmatch(name):
        return path.rpartition(AGAIN)[0] or path
    return ""


class AgentPast(msgspec.Struct):
    """What the log has of an agent that has not ended.

    `generation` counts how often it was tried anew; `memory` is of the last time. `has_acted`: a tool did
    something that must not be repeated.
    """

    blobs: Blobs
    memory: CallMemory
    generation: int = 0
    has_acted: bool = False
    thread: str = ""
    once: set[str] = msgspec.field(default_factory=set)
    last_round: dict[str, CallFinished] = msgspec.field(default_factory=dict)

    @classmethod
    def empty(cls, blobs: Blobs) -> AgentPast:
        """That of an agent without calls."""
        return cls(blobs, CallMemory(KeptContent(blobs)))

    def note(
        self, event: CallStarted | CallFinished | CallLost, record: StoredEvent, calls: StepCalls
    ) -> None:
        """Take an event of one of its calls in."""
        memory = self.memory
        memory.tries[event.call] = max(event.number, memory.tries.get(event.call, 0))
        said = event.said if isinstance(event, CallFinished) else ""
        memory.content.note(name for ref in record.refs if (name := ref.lstrip(KEPT_APART)) != said)
        match event:
            case CallStarted():
                self._begun(event)
            case CallFinished(status=CallStatus.OK):
                if record.seq > calls.repeats.get(event.call, 0):
                    self._answered(event)
            case CallFinished():
                memory.note_failure(event)

    def _begun(self, started: CallStarted) -> None:
        memory = self.memory
        self.thread = started.thread or self.thread
        if not started.repeatable:
            self.once.add(started.call)
        if started.streamed is not None:
            memory.begin(started.call, started.streamed.message)
        if started.definition:
            memory.past = StepPast(started.definition, started.model, self.thread)

    def _answered(self, finished: CallFinished) -> None:
        self.memory.answers[finished.call] = finished
        if finished.type == MODEL:
            self.last_round.clear()
            self.thread = finished.thread or self.thread
            past = self.memory.past
            self.memory.past = replace(past, thread=self.thread)
        elif finished.type != GATE:
            self.last_round[finished.call] = finished
            self.has_acted = self.has_acted or finished.call in self.once

    def failed(self, finished: CallFinished) -> None:
        """The agent itself failed; unless its answers are kept, it asks anew when it is tried again.

        What its tools did once under keys of their own, such as effects, lasts as long as the flow. (Other
        calls have other keys then.)
        """
        if finished.failure == KEPT:
            return
        before = self.memory
        self.generation += 1
        lasting = {call: one for call, one in before.answers.items() if call in self.once}
        self.memory = CallMemory(before.content, lasting, before.tries)
        if self.has_acted:
            self.memory.past = StepPast(thread=self.thread, failure=finished.error)
            self.memory.dropped = dict(self.last_round)
