"""Document 000's replies, from those of operations: the state of a chat, its checkpoints, and its limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from onward.errors import InvalidInput
from onward.model.ids import node_of, place_of
from onward.model.limits import AMOUNT_MAX, CALLS_PER_CHAT_RUN, CHAT_TOKENS, MICRO
from onward.operations.requests import ResetLimits, SetLimit
from onward.server.documents import statuses

if TYPE_CHECKING:
    from onward.replies.chats import ChatPage, ChatRunShown, MessageSent
    from onward.replies.database import LimitList
    from onward.replies.documents import (
        AgentCheckpointOpen,
        AgentExecution,
        AgentsStatus,
        LimitsShown,
        MessageTaken,
        SettingsShown,
    )
    from onward.replies.runs import GateShown, RunState
    from onward.replies.steps import StepOutline

RESTARTED = "Server restarted — pipeline interrupted"
"""What document 000 says of an agent that a restart cut off."""
APPROVE, DESIGN_DIRECTION = "approve", "design_direction"


def milliseconds(instant: str | None) -> int | None:
    """A time as document 000 has it."""
    if instant is None:
        return None
    return int(datetime.fromisoformat(instant.replace("Z", "+00:00")).timestamp() * 1_000_000) // 1_000


def message_taken(sent: MessageSent) -> MessageTaken:
    """The result of a message."""
    run = sent["run"]
    taken: MessageTaken = {
        "status": sent["outcome"],
        "chatId": sent["chat"],
        "pipelineRunId": run["id"] if run is not None else sent["behind"],
        "messageId": sent["message"],
    }
    if sent["notice"]:
        taken["notice"] = sent["notice"]
    return taken


REFUSED = {"limit": statuses.COST_LIMIT, "refused": "refused"}
"""The outcomes of a message that are refusals, and their error types."""


# -- how a chat stands -----------------------------------------------------------------------------------
NOTHING: AgentsStatus = {
    "running": False,
    "executions": [],
    "interruptedPipelineId": None,
    "interruptedReason": None,
    "pendingCheckpoint": None,
}
"""How a chat stands that nobody knows."""


class AgentWork(msgspec.Struct, frozen=True):
    """A step of an agent: its request and its answer."""

    step: StepOutline
    input: str | None
    output: str | None


def agents_status(
    page: ChatPage, works: Sequence[AgentWork], interrupted: RunState | ChatRunShown | None
) -> AgentsStatus:
    """How a chat stands. `works` are the agents of its newest run; `interrupted` is the run that a message
    would resume."""
    newest = page["runs"][0] if page["runs"] else None
    asking = next((gate for run in page["runs"] for gate in open_gates(run)), None)
    return {
        "running": page["running"],
        "executions": [] if newest is None else [execution(page["chat"], newest, one) for one in works],
        "interruptedPipelineId": None if interrupted is None else interrupted["id"],
        "interruptedReason": None
        if interrupted is None
        else statuses.interrupted_reason(interrupted["reason"]),
        "pendingCheckpoint": None if asking is None else checkpoint_open(asking),
    }


def execution(chat: str, run: RunState | ChatRunShown, work: AgentWork) -> AgentExecution:
    """A step of an agent. One that a restart cut off has failed with the words for that."""
    step = work.step
    status, error = statuses.agent_status(step["status"]), step["reason"]
    is_cut_off = status == statuses.AGENT_STOPPED and run["status"] == "interrupted"
    if is_cut_off and statuses.interrupted_reason(run["reason"]) == statuses.RESTART:
        status, error = statuses.FAILED, RESTARTED
    return {
        "id": f"{run['id']}/{step['step']}",
        "chat_id": chat,
        "agent_name": node_of(place_of(step["step"])),
        "status": status,
        "input": work.input,
        "output": None if work.output is None else msgspec.json.encode({"content": work.output}).decode(),
        "error": error or None,
        "retry_count": step["attempts"] - 1,
        "started_at": milliseconds(step["started_at"]),
        "completed_at": milliseconds(step["finished_at"]),
    }


# -- checkpoints -----------------------------------------------------------------------------------------
def open_gates(run: RunState | ChatRunShown) -> list[GateShown]:
    """The questions of a run that can still be answered."""
    return [gate for gate in run["gates"] if gate["decided"] is None]


def checkpoint_open(gate: GateShown) -> AgentCheckpointOpen:
    """A question as a checkpoint."""
    opened, until = milliseconds(gate["opened_at"]), milliseconds(gate["deadline"])
    has_data = any(choice["data"] for choice in gate["choices"])
    return {
        "id": gate["gate"],
        "nodeId": gate["node"],
        "label": gate["text"],
        "type": DESIGN_DIRECTION if has_data else APPROVE,
        "message": gate["about"],
        "options": [
            {
                "name": choice["label"],
                "description": str(choice["data"].get("description", "")),
                "data": choice["data"],
            }
            for choice in gate["choices"]
        ],
        "timeoutMs": None if until is None or opened is None else until - opened,
    }


def choice_at(gate: GateShown, index: int) -> str:
    """The key of the option that was selected."""
    if not 0 <= index < len(gate["choices"]):
        raise InvalidInput(
            f"checkpoint {gate['gate']} has no option {index}; use 0 to {len(gate['choices']) - 1}."
        )
    return gate["choices"][index]["key"]


# -- limits ----------------------------------------------------------------------------------------------
class LimitsWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Some of the limits; 0 is none, costs are in dollars."""

    max_tokens_per_chat: int | None = None
    max_agent_calls_per_run: int | None = None
    max_cost_per_day: float | None = None
    max_cost_per_project: float | None = None


SCOPES = ("chat", "run", "day", "project")
"""The defaults that document 000's limits are."""
DEFAULTS: LimitsShown = {
    "maxTokensPerChat": CHAT_TOKENS,
    "maxAgentCallsPerRun": CALLS_PER_CHAT_RUN,
    "maxCostPerDay": 0,
    "maxCostPerProject": 0,
}


def settings_shown(listed: LimitList) -> SettingsShown:
    """The limits that count for every chat, run, day and project."""
    found: Mapping[str, Any] = {one["scope"]: one for one in listed["scopes"]}

    def limit(scope: str, measure: str) -> int:
        return found[scope][measure]["limit"] or 0 if scope in found else 0

    return {
        "limits": {
            "maxTokensPerChat": limit("chat", "tokens"),
            "maxAgentCallsPerRun": listed["chat_run_calls"] or limit("run", "calls"),
            "maxCostPerDay": limit("day", "cost_micro") / MICRO,
            "maxCostPerProject": limit("project", "cost_micro") / MICRO,
        },
        "defaults": DEFAULTS,
    }


def limit_changes(wanted: LimitsWanted, *, by: str) -> list[SetLimit]:
    """The limits to set. All are checked here, so that none is set if one is invalid."""
    cost_day, cost_project = _micro(wanted.max_cost_per_day), _micro(wanted.max_cost_per_project)
    asked: tuple[tuple[str, Literal["tokens", "cost", "calls"], int | None], ...] = (
        ("chat", "tokens", wanted.max_tokens_per_chat),
        ("run", "calls", wanted.max_agent_calls_per_run),
        ("day", "cost", cost_day),
        ("project", "cost", cost_project),
    )
    return [
        SetLimit(scope=scope, measure=measure, value=value, by=by)
        for scope, measure, value in asked
        if value is not None
    ]


def _micro(dollars: float | None) -> int | None:
    if dollars is None:
        return None
    too_small = 0 < dollars < 1 / MICRO  # it would be rounded to 0, and end the limit
    if not 0 <= dollars <= AMOUNT_MAX or too_small:
        raise InvalidInput(f"{dollars:g} cannot be a limit in dollars; write 0 for no limit, or more.")
    return round(dollars * MICRO)


def limit_resets(*, by: str) -> Iterable[ResetLimits]:
    """The limits to reset."""
    return [ResetLimits(scope=scope, by=by) for scope in SCOPES]
