"""Replies and messages under the names of the source documents' own interfaces.

They say nothing that the replies about runs, steps and chats do not say; a client that was written for one
of these interfaces finds here the words it knows. First document 000's agents, then 002's checkpoints, 003's
pipelines and 004's workflows.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from onward.replies.runs import Instant
from onward.replies.steps import EventShown


# -- document 000: agents of a chat ----------------------------------------------------------------------
class MessageTaken(TypedDict):
    """What became of a message: `status` is started, resumed, steered, answered, queued, gate or asked.

    `pipelineRunId` is the run that it started, resumed or spoke to. `notice` says more, if there is more.
    """

    status: str
    chatId: str
    pipelineRunId: str | None
    messageId: str
    notice: NotRequired[str]


class AgentExecution(TypedDict):
    """One execution of an agent; times are in milliseconds since 1970, UTC.

    `status` is pending, running, completed, failed, retrying or stopped. `output` is JSON: `{"content": …}`.
    """

    id: str
    chat_id: str
    agent_name: str
    status: str
    input: str | None
    output: str | None
    error: str | None
    retry_count: int
    started_at: int | None
    completed_at: int | None


class CheckpointOption(TypedDict):
    """What can be chosen at a checkpoint."""

    name: str
    description: str
    data: dict[str, Any]


class AgentCheckpointOpen(TypedDict):
    """A checkpoint that waits for a person; `type` is approve, or design_direction if options have data."""

    id: str
    nodeId: str
    label: str
    type: str
    message: str
    options: list[CheckpointOption]
    timeoutMs: int | None


class AgentsStatus(TypedDict):
    """The state of a chat: what runs, the agents of its newest run, and what can be resumed or answered.

    `interruptedReason` is restart, cost_limit, stopped, rate_limit or in_doubt.
    """

    running: bool
    executions: list[AgentExecution]
    interruptedPipelineId: str | None
    interruptedReason: str | None
    pendingCheckpoint: AgentCheckpointOpen | None


class AgentsStopped(TypedDict):
    """A chat's run has been requested to stop; it can be resumed."""

    status: str
    chatId: str
    pipelineRunId: str


class CheckpointResolved(TypedDict):
    """A checkpoint has its answer."""

    status: str


class LimitsShown(TypedDict):
    """The limits of every chat, run, day and project; 0 means none, costs are in dollars."""

    maxTokensPerChat: int
    maxAgentCallsPerRun: int
    maxCostPerDay: float
    maxCostPerProject: float


class SettingsShown(TypedDict):
    """The limits, and their defaults."""

    limits: LimitsShown
    defaults: LimitsShown


class AgentMessage(TypedDict):
    """One message of `/ws?chatId=`. Which fields it has depends on its `type`.

    pipeline_plan: intent scope agents resumed. agent_status: agentName status retryCount. agent_stream and
    agent_thinking: agentName messageId position content, and `replaces` where the content is all of the
    message. chat_message: messageId role content position. agent_error: agentName errorType error.
    pipeline_interrupted: reason completedAgents skippedAgents tokensUsed tokenLimit. pipeline_checkpoint:
    checkpoint. pipeline_checkpoint_resolved: checkpointId selectedIndex timedOut. token_usage: agentName
    inputTokens outputTokens costMicro.
    """

    type: str
    chatId: str
    pipelineRunId: NotRequired[str]
    agentName: NotRequired[str | None]
    status: NotRequired[str]
    retryCount: NotRequired[int]
    intent: NotRequired[str | None]
    scope: NotRequired[str | None]
    agents: NotRequired[list[str]]
    resumed: NotRequired[bool]
    errorType: NotRequired[str]
    error: NotRequired[str]
    reason: NotRequired[str]
    completedAgents: NotRequired[list[str]]
    skippedAgents: NotRequired[list[str]]
    tokensUsed: NotRequired[int | None]
    tokenLimit: NotRequired[int | None]
    checkpoint: NotRequired[AgentCheckpointOpen]
    checkpointId: NotRequired[str]
    selectedIndex: NotRequired[int | None]
    timedOut: NotRequired[bool]
    inputTokens: NotRequired[int]
    outputTokens: NotRequired[int]
    costMicro: NotRequired[int | None]
    messageId: NotRequired[str]
    position: NotRequired[int]
    content: NotRequired[str]
    replaces: NotRequired[bool]
    role: NotRequired[str]


# -- document 002: the progress of a generation ----------------------------------------------------------
class GenerationCheckpoint(TypedDict):
    """How far an open step has come with its calls, as document 002 stores it.

    `toolCalls` and `toolResults` are JSON, the results of those calls that have one. `messageId` is the
    message that grows, if one does.
    """

    id: str
    workspaceId: str
    messageId: str | None
    stepNumber: int
    textCollected: str
    toolCalls: str
    toolResults: str
    reasoning: str
    status: str
    lockedAt: Instant | None
    lockedBy: str | None
    model: str
    maxSteps: int | None


# -- document 003 and its dialect: pipelines -------------------------------------------------------------
class PipelineStarted(TypedDict):
    """A pipeline was started; the id is that of its run."""

    id: str


class PipelineEvents(TypedDict):
    """A page of what happened, under the names of the dialect. `cursor`: the next one begins after it."""

    events: list[EventShown]
    cursor: int | None


class PipelineState(TypedDict):
    """A pipeline's run: what it has done, and where it continues.

    `completed_nodes` are those of the newest 100 steps that finished; the checkpoint has all of them.
    """

    id: str
    display_id: str
    pipeline: str
    status: str
    reason: str
    detail: str
    next_node_id: str | None
    completed_nodes: list[str]


class OptionOffered(TypedDict):
    """An answer that a question offers."""

    key: str
    label: str


class PipelineQuestion(TypedDict):
    """A question that waits for a person; `stage` is the node that asks."""

    id: str
    text: str
    type: str
    stage: str
    options: list[OptionOffered]
    default: str | None
    timeout_seconds: float | None
    metadata: dict[str, Any]


# -- document 004: workflows -----------------------------------------------------------------------------
class WorkflowState(TypedDict):
    """A workflow. Why it failed, and whether it can be resumed, is present only while it is FAILED."""

    id: str
    status: str
    failure_reason: str | None
    recoverable: bool | None
    pipeline: str
    worktree_path: str | None
    started_at: Instant
    completed_at: Instant | None


class WorkflowList(TypedDict):
    """A page of workflows, newest first; `cursor` gets the next page, if there may be one."""

    workflows: list[WorkflowState]
    cursor: str | None


class WorkflowMessage(TypedDict):
    """One message of `/ws`.

    In `data`, WORKFLOW_STARTED has `resumed`, WORKFLOW_FAILED `recoverable` and `failure_reason`, and
    APPROVAL_REQUIRED `gate` and `text`. WORKFLOW_COMPLETED and WORKFLOW_CANCELLED have nothing there.
    """

    type: str
    workflow_id: str
    data: dict[str, Any]
