"""Document 000's socket: the log of a run and the messages of its chat, as frames for a page of the chat.

`AgentFeed` follows one run from its first event. Each event returns the frames for pages that are open, and
`redraw` those for a page that opens now: the plan, the agents, and what the run waits for. `said` returns
those for pieces of messages.

A limit is reported when it stops the run, not when it holds a step, because until then it may be raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from onward.model.call import CallKind
from onward.model.gate import Choice, content_hash
from onward.model.ids import node_of, place_of
from onward.model.values import rfc3339
from onward.server.documents import statuses
from onward.server.documents.agents import checkpoint_open

if TYPE_CHECKING:
    from onward.replies.chats import MessagePiece
    from onward.replies.documents import AgentMessage
    from onward.replies.runs import ChoiceOffered, GateShown
    from onward.replies.steps import EventShown

    Messages = Iterator[AgentMessage]

ORCHESTRATOR = "orchestrator"
"""The agent whose status is that of the whole pipeline: how a page learns that it has ended."""
ASKING = (CallKind.MODEL.value, CallKind.PROGRAM.value)
MET = ("success", "partial_success", "skipped")


class AgentSeen(msgspec.Struct):
    """An agent as its last step stands."""

    status: str
    retries: int = 0


class AgentFeed:
    """Follows one run. `agents` are the nodes that are agents, for a run whose plan does not name them."""

    def __init__(self, chat: str, run: str, agents: Sequence[str] = ()) -> None:
        self.chat, self.run, self.head = chat, run, 0
        self._agents = list(agents)
        self._facts: Mapping[str, Any] = {}
        self._is_resumed = False
        self._seen: dict[str, AgentSeen] = {}
        self._steps: dict[str, str] = {}
        self._gates: dict[str, GateShown] = {}
        self._limit: Mapping[str, Any] | None = None
        self._limited = ""
        self._stop: tuple[AgentMessage, ...] = ()
        self.is_over = False

    def event(self, event: EventShown) -> Messages:
        """What a page is sent when this has happened; an event that was seen before says nothing."""
        if event["seq"] <= self.head:
            return
        self.head = event["seq"]
        told = _EVENTS.get(event["kind"])
        if told is not None:
            yield from told(self, event)

    def redraw(self) -> Messages:
        """What a page is sent that opens now."""
        yield self._plan(resumed=self._is_resumed)
        yield from self._every_status()
        for gate in self._gates.values():
            yield self._message("pipeline_checkpoint", checkpoint=checkpoint_open(gate))
        yield from self._stop

    # -- the run ---------------------------------------------------------------------------------------

    def _created(self, event: EventShown) -> Messages:
        self._facts = event.get("context", {})
        planned = self._facts.get("planned_agents")
        if isinstance(planned, list) and planned:
            self._agents = [name for name in planned if isinstance(name, str)]
        yield self._plan(resumed=False)

    def _forked(self, event: EventShown) -> Messages:
        """A run that continues from another's log shows what that one finished."""
        self._facts = {**self._facts, **event.get("context", {})}
        self._continue()
        yield self._plan(resumed=True)
        yield from self._every_status()

    def _resumed(self, event: EventShown) -> Messages:
        self._continue()
        yield self._plan(resumed=True)
        yield from self._every_status()

    def _continue(self) -> None:
        self._is_resumed, self._stop, self._limit = True, (), None
        self._seen = {name: one for name, one in self._seen.items() if one.status == statuses.COMPLETED}

    def _stopped(self, event: EventShown) -> Messages:
        """The run is paused or interrupted."""
        yield from self._close()
        self._stop = tuple(self._interruption(event["reason"]))
        yield from self._stop

    def _interruption(self, reason: str) -> Messages:
        word, hit = statuses.interrupted_reason(reason), self._limit
        if word == statuses.COST_LIMIT:
            measure = "visits" if hit is None else hit["measure"]
            yield self._message(
                "agent_error",
                agentName=self._limited or None,
                errorType=word,
                error=statuses.limit_words(measure),
            )
        done = [name for name, one in self._seen.items() if one.status == statuses.COMPLETED]
        is_tokens = hit is not None and hit["measure"] == "tokens" and word == statuses.COST_LIMIT
        yield self._message(
            "pipeline_interrupted",
            reason=word,
            completedAgents=done,
            skippedAgents=[name for name in self._agents if name not in done],
            tokensUsed=hit["spent"] if hit is not None and is_tokens else None,
            tokenLimit=hit["limit"] if hit is not None and is_tokens else None,
        )

    def _failed(self, event: EventShown) -> Messages:
        yield from self._close()
        step = event.get("step", "")
        kind, why = statuses.error_type(event["reason"]), event.get("detail") or event["reason"]
        yield self._message("agent_error", agentName=_agent_of(step) or None, errorType=kind, error=why)
        yield from self._ended(statuses.FAILED)

    def _completed(self, event: EventShown) -> Messages:
        yield from self._ended(statuses.COMPLETED)

    def _cancelled(self, event: EventShown) -> Messages:
        yield from self._close()
        yield from self._ended(statuses.AGENT_STOPPED)

    def _ended(self, status: str) -> Messages:
        self.is_over = status != statuses.FAILED
        yield self._message("agent_status", agentName=ORCHESTRATOR, status=status, retryCount=0)

    def _close(self) -> Messages:
        """Stop the agents that were at work."""
        for name, one in self._seen.items():
            if one.status in (statuses.RUNNING, statuses.RETRYING):
                yield from self._is(name, statuses.AGENT_STOPPED, one.retries)

    # -- agents ----------------------------------------------------------------------------------------

    def _started(self, event: EventShown) -> Messages:
        self._steps[event["step"]] = event["node"]
        yield from self._is(event["node"], statuses.RUNNING, event["attempt"] - 1)

    def _attempt_failed(self, event: EventShown) -> Messages:
        again = event.get("retry_at_us") is not None
        status = statuses.RETRYING if again else statuses.FAILED
        yield from self._is(self._node(event), status, event["attempt"] - 1)

    def _attempt_interrupted(self, event: EventShown) -> Messages:
        yield from self._is(self._node(event), statuses.AGENT_STOPPED, event["attempt"] - 1)

    def _held(self, event: EventShown) -> Messages:
        if event.get("limit") is not None:
            self._limit, self._limited = event["limit"], self._node(event)
        if event["reason"] != "gate":
            yield from self._is(self._node(event), statuses.AGENT_STOPPED, event["attempt"] - 1)

    def _finished(self, event: EventShown) -> Messages:
        self._steps.pop(event["step"], None)
        has_met = event["outcome"]["status"] in MET
        status = statuses.COMPLETED if has_met else statuses.FAILED
        yield from self._is(event["node"], status, event["attempt"] - 1)

    def _called(self, event: EventShown) -> Messages:
        usage = event.get("usage")
        if usage is None or event.get("type") not in ASKING:
            return
        yield self._message(
            "token_usage",
            agentName=self._node(event),
            inputTokens=usage.get("input", 0),
            outputTokens=usage.get("output", 0),
            costMicro=event.get("cost_micro"),
        )

    def _node(self, event: EventShown) -> str:
        step = event["step"]
        return self._steps.get(step) or _agent_of(step)

    def _is(self, name: str, status: str, retries: int) -> Messages:
        """Tell how an agent stands, if that is new; what is no agent is not told of."""
        before = self._seen.get(name)
        if name not in self._agents or before == AgentSeen(status, retries):
            return
        self._seen[name] = AgentSeen(status, retries)
        yield self._status(name)

    def _status(self, name: str) -> AgentMessage:
        one = self._seen[name]
        return self._message("agent_status", agentName=name, status=one.status, retryCount=one.retries)

    def _every_status(self) -> Messages:
        for name in self._seen:
            yield self._status(name)

    # -- checkpoints -----------------------------------------------------------------------------------

    def _asked(self, event: EventShown) -> Messages:
        gate = _gate_of(event)
        self._gates[gate["gate"]] = gate
        yield self._message("pipeline_checkpoint", checkpoint=checkpoint_open(gate))

    def _answered(self, event: EventShown) -> Messages:
        gate = self._gates.pop(event["gate"], None)
        keys = [] if gate is None else [choice["key"] for choice in gate["choices"]]
        chosen = event["choice"]["key"]
        yield self._message(
            "pipeline_checkpoint_resolved",
            checkpointId=event["gate"],
            selectedIndex=keys.index(chosen) if chosen in keys else None,
            timedOut=event.get("expired", False),
        )

    def _withdrawn(self, event: EventShown) -> Messages:
        self._gates.pop(event["gate"], None)
        yield self._message(
            "pipeline_checkpoint_resolved", checkpointId=event["gate"], selectedIndex=None, timedOut=False
        )

    # -- messages --------------------------------------------------------------------------------------

    def _plan(self, *, resumed: bool) -> AgentMessage:
        return self._message(
            "pipeline_plan",
            intent=self._facts.get("intent"),
            scope=self._facts.get("scope"),
            agents=list(self._agents),
            resumed=resumed,
        )

    def _message(self, type: str, **fields: Any) -> AgentMessage:
        message: Any = {"type": type, "chatId": self.chat, "pipelineRunId": self.run, **fields}
        found: AgentMessage = message
        return found


_EVENTS: Mapping[str, Any] = {
    "RunCreated": AgentFeed._created,
    "RunForked": AgentFeed._forked,
    "RunResumed": AgentFeed._resumed,
    "RunPaused": AgentFeed._stopped,
    "RunInterrupted": AgentFeed._stopped,
    "RunFailed": AgentFeed._failed,
    "RunCompleted": AgentFeed._completed,
    "RunCancelled": AgentFeed._cancelled,
    "StepStarted": AgentFeed._started,
    "AttemptFailed": AgentFeed._attempt_failed,
    "AttemptInterrupted": AgentFeed._attempt_interrupted,
    "AttemptHeld": AgentFeed._held,
    "StepFinished": AgentFeed._finished,
    "CallFinished": AgentFeed._called,
    "GateOpened": AgentFeed._asked,
    "GateDecided": AgentFeed._answered,
    "GateWithdrawn": AgentFeed._withdrawn,
}
"""What the events of a run say; the others say nothing to a page of a chat."""


def _agent_of(step: str) -> str:
    """The node of a step, or of the step whose call asked."""
    return node_of(place_of(step)) if step else ""


def _gate_of(event: EventShown) -> GateShown:
    """A question that has just been asked, as an operation shows it."""
    choices: list[ChoiceOffered] = [
        {"key": one["key"], "label": one["label"], "to": one["to"], "data": one.get("data", {})}
        for one in event["choices"]
    ]
    kind, about = event.get("type", "multiple_choice"), event.get("about", "")
    return {
        "gate": event["gate"],
        "node": event["node"],
        "type": kind,
        "text": event["text"],
        "about": about,
        "choices": choices,
        "content_hash": content_hash(
            gate=event["gate"],
            node=event["node"],
            type=kind,
            text=event["text"],
            about=about,
            choices=msgspec.convert(choices, list[Choice]),
        ),
        "default": event.get("default"),
        "opened_at": event["at"],
        "deadline": rfc3339(event["deadline_us"]) if "deadline_us" in event else None,
        "on_timeout": event.get("on_timeout", "none"),
        "remind_s": None,
        "metadata": event.get("metadata", {}),
        "decided": None,
        "by": None,
        "answer": "",
        "rejected": False,
        "expired": False,
    }


class ChatWords:
    """Tells of the pieces of a chat's messages. A user's message, and one of Onward's own, is told whole."""

    def __init__(self, chat: str) -> None:
        self._chat = chat
        self._whole: dict[str, list[str]] = {}

    def said(self, piece: MessagePiece) -> Messages:
        """What a page is sent for this piece."""
        if piece["role"] == "assistant":
            yield from self._streamed(piece)
        else:
            yield from self._whole_message(piece)

    def _streamed(self, piece: MessagePiece) -> Messages:
        kinds = {"text": "agent_stream", "reset": "agent_stream", "reasoning": "agent_thinking"}
        type = kinds.get(piece["kind"])
        if type is None:
            return
        told: AgentMessage = {
            "type": type,
            "chatId": self._chat,
            "agentName": _agent_of(piece["step"]) or None,
            "messageId": piece["message"],
            "position": piece["position"],
            "content": piece["text"],
        }
        if piece["kind"] == "reset":
            told["replaces"] = True
        yield told

    def _whole_message(self, piece: MessagePiece) -> Messages:
        texts = self._whole.setdefault(piece["message"], [])
        if piece["kind"] in ("text", "reset"):
            texts.append(piece["text"])
        if piece["kind"] in ("end", "reset"):
            del self._whole[piece["message"]]
            yield {
                "type": "chat_message",
                "chatId": self._chat,
                "messageId": piece["message"],
                "position": piece["position"],
                "role": piece["role"],
                "content": "".join(texts),
            }
