"""Who answers requests: small groups of one method per request.

`Operations` at the end has all groups. `operations/local/` answers them in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol

from onward.operations.requests import (
    AddPipeline,
    AnswerGate,
    CancelRun,
    DismissRun,
    DrawRun,
    EnablePipeline,
    ForgetEffect,
    ForkRun,
    GetArtifact,
    GetEffect,
    GetPipeline,
    GetRun,
    GetStats,
    GetUsage,
    ListArtifacts,
    ListCalls,
    ListChats,
    ListCheckpoints,
    ListGates,
    ListLimits,
    ListMessages,
    ListNotifications,
    ListPipelines,
    ListRuns,
    ListWorkers,
    PauseRun,
    PreviewResume,
    ReadEvents,
    ReadMessages,
    RecoverRuns,
    RemovePipeline,
    ResetLimits,
    ResumeRun,
    RetryNotification,
    RunGates,
    SendMessage,
    SetLimit,
    SettleEffect,
    ShowChat,
    ShowRun,
    ShowStep,
    SteerRun,
    SubmitRun,
    SubmitRuns,
)
from onward.replies.chats import ChatList, ChatPage, MessagePiece, MessageSent, MessageShown
from onward.replies.database import (
    LimitChanged,
    LimitList,
    NotificationList,
    PipelineAdded,
    PipelineList,
    PipelineListed,
    PipelinePage,
    PipelineRemoved,
    Recovered,
    Stats,
    UsageList,
    WorkerListed,
)
from onward.replies.runs import (
    GateList,
    GateShown,
    LimitStop,
    ResumePreview,
    RunList,
    RunState,
    RunWithNotice,
    Submitted,
    SubmittedRuns,
)
from onward.replies.steps import (
    ArtifactContent,
    ArtifactList,
    CallList,
    Checkpoint,
    Drawing,
    EffectShown,
    EventShown,
    RunPage,
    StepPage,
)


class ListOperations(Protocol):
    """Looks over all runs; changes nothing."""

    async def list_runs(self, request: ListRuns) -> RunList: ...

    async def list_gates(self, request: ListGates) -> GateList: ...

    async def run_gates(self, request: RunGates) -> list[GateShown]: ...

    async def run_limit(self, request: GetRun) -> LimitStop | None: ...

    async def list_workers(self, request: ListWorkers) -> list[WorkerListed]: ...

    async def get_stats(self, request: GetStats) -> Stats: ...


class LookOperations(Protocol):
    """Looks at one run; changes nothing."""

    async def get_run(self, request: GetRun) -> RunState: ...

    async def show_run(self, request: ShowRun) -> RunPage: ...

    async def show_step(self, request: ShowStep) -> StepPage: ...

    def read_events(
        self, request: ReadEvents, *, stop: asyncio.Event | None = None
    ) -> AsyncGenerator[EventShown]:
        """Events as they come; `stop` ends a wait for more."""
        ...

    def list_checkpoints(self, request: ListCheckpoints) -> AsyncIterator[Checkpoint]: ...

    async def list_artifacts(self, request: ListArtifacts) -> ArtifactList: ...

    async def get_artifact(self, request: GetArtifact) -> ArtifactContent: ...

    async def list_calls(self, request: ListCalls) -> CallList: ...

    async def draw_run(self, request: DrawRun) -> Drawing: ...


class DecideOperations(Protocol):
    """Decides about a run, and executes nothing: the decision is written, and a worker does the rest."""

    async def preview_resume(self, request: PreviewResume) -> ResumePreview: ...

    async def resume_run(self, request: ResumeRun) -> RunWithNotice: ...

    async def answer_gate(self, request: AnswerGate) -> RunState: ...

    async def pause_run(self, request: PauseRun) -> RunState: ...

    async def cancel_run(self, request: CancelRun) -> RunState: ...

    async def dismiss_run(self, request: DismissRun) -> RunState: ...

    async def steer_run(self, request: SteerRun) -> RunState: ...

    async def recover_runs(self, request: RecoverRuns) -> Recovered: ...


class EffectOperations(Protocol):
    """Looks at effects, and decides about those in doubt. Their callers run them."""

    async def get_effect(self, request: GetEffect) -> EffectShown: ...

    async def forget_effect(self, request: ForgetEffect) -> EffectShown: ...

    async def settle_effect(self, request: SettleEffect) -> EffectShown: ...


class NotificationOperations(Protocol):
    """Looks at what is told of runs, and asks for another try. Workers deliver."""

    async def list_notifications(self, request: ListNotifications) -> NotificationList: ...

    async def retry_notification(self, request: RetryNotification) -> NotificationList: ...


class LimitOperations(Protocol):
    """Looks at limits and at what was spent, and changes limits."""

    async def list_limits(self, request: ListLimits) -> LimitList: ...

    async def set_limit(self, request: SetLimit) -> LimitChanged: ...

    async def reset_limits(self, request: ResetLimits) -> LimitChanged: ...

    async def get_usage(self, request: GetUsage) -> UsageList: ...


class MessageOperations(Protocol):
    """Reads what is said in chats."""

    async def list_messages(self, request: ListMessages) -> list[MessageShown]: ...

    def read_messages(
        self, request: ReadMessages, *, stop: asyncio.Event | None = None
    ) -> AsyncGenerator[MessagePiece]:
        """Pieces of messages as they come; `stop` ends a wait for more."""
        ...


class PipelineOperations(Protocol):
    """Looks at registered pipelines, and adds, enables and removes them."""

    async def list_pipelines(self, request: ListPipelines) -> PipelineList: ...

    async def show_pipeline(self, request: GetPipeline) -> PipelinePage: ...

    async def add_pipeline(self, request: AddPipeline) -> PipelineAdded: ...

    async def enable_pipeline(self, request: EnablePipeline) -> PipelineListed: ...

    async def remove_pipeline(self, request: RemovePipeline) -> PipelineRemoved: ...


class ChatOperations(Protocol):
    """Sends messages, and looks at chats."""

    async def send_message(self, request: SendMessage) -> MessageSent: ...

    async def list_chats(self, request: ListChats) -> ChatList: ...

    async def show_chat(self, request: ShowChat) -> ChatPage: ...


class StartOperations(Protocol):
    """Makes runs, and executes nothing."""

    async def submit_run(self, request: SubmitRun) -> Submitted: ...

    async def submit_runs(self, request: SubmitRuns) -> SubmittedRuns: ...

    async def fork_run(self, request: ForkRun) -> RunWithNotice: ...


class Operations(Protocol):
    """Everything that can be asked, in its groups."""

    @property
    def lists(self) -> ListOperations: ...

    @property
    def look(self) -> LookOperations: ...

    @property
    def decide(self) -> DecideOperations: ...

    @property
    def effects(self) -> EffectOperations: ...

    @property
    def notifications(self) -> NotificationOperations: ...

    @property
    def limits(self) -> LimitOperations: ...

    @property
    def messages(self) -> MessageOperations: ...

    @property
    def chats(self) -> ChatOperations: ...

    @property
    def pipelines(self) -> PipelineOperations: ...

    @property
    def start(self) -> StartOperations: ...
