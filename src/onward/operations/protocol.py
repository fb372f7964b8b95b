"""Who answers requests: small groups of one method per request.

`Operations` at the end has all groups. `operations/local/` answers them in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol

from onward.operations import requests
from onward.replies import access as access_shapes
from onward.replies import database as shapes
from onward.replies import runs as run_shapes
from onward.replies import steps as step_shapes
from onward.replies.chats import ChatList, ChatPage, MessagePiece, MessageSent, MessageShown


class ListOperations(Protocol):
    """Looks over all runs; changes nothing."""

    async def list_runs(self, request: requests.ListRuns) -> run_shapes.RunList: ...

    async def list_gates(self, request: requests.ListGates) -> run_shapes.GateList: ...

    async def run_gates(self, request: requests.RunGates) -> list[run_shapes.GateShown]: ...

    async def run_limit(self, request: requests.GetRun) -> run_shapes.LimitStop | None: ...

    async def list_workers(self, request: requests.ListWorkers) -> list[shapes.WorkerListed]: ...

    async def get_stats(self, request: requests.GetStats) -> shapes.Stats: ...


class LookOperations(Protocol):
    """Looks at one run; changes nothing."""

    async def get_run(self, request: requests.GetRun) -> run_shapes.RunState: ...

    async def show_run(self, request: requests.ShowRun) -> step_shapes.RunPage: ...

    async def show_step(self, request: requests.ShowStep) -> step_shapes.StepPage: ...

    def read_events(
        self, request: requests.ReadEvents, *, stop: asyncio.Event | None = None
    ) -> AsyncGenerator[step_shapes.EventShown]:
        """Events as they come; `stop` ends a wait for more."""
        ...

    def list_checkpoints(
        self, request: requests.ListCheckpoints
    ) -> AsyncIterator[step_shapes.Checkpoint]: ...

    async def list_artifacts(self, request: requests.ListArtifacts) -> step_shapes.ArtifactList: ...

    async def get_artifact(self, request: requests.GetArtifact) -> step_shapes.ArtifactContent: ...

    async def list_receipts(self, request: requests.ListReceipts) -> step_shapes.ReceiptList: ...

    async def read_printed(self, request: requests.ReadPrinted) -> step_shapes.PrintedShown: ...

    async def list_calls(self, request: requests.ListCalls) -> step_shapes.CallList: ...

    async def draw_run(self, request: requests.DrawRun) -> step_shapes.Drawing: ...


class DecideOperations(Protocol):
    """Decides about a run, and executes nothing: the decision is written, and a worker does the rest."""

    async def preview_resume(self, request: requests.PreviewResume) -> run_shapes.ResumePreview: ...

    async def resume_run(self, request: requests.ResumeRun) -> run_shapes.RunWithNotice: ...

    async def answer_gate(self, request: requests.AnswerGate) -> run_shapes.RunState: ...

    async def pause_run(self, request: requests.PauseRun) -> run_shapes.RunState: ...

    async def cancel_run(self, request: requests.CancelRun) -> run_shapes.RunState: ...

    async def dismiss_run(self, request: requests.DismissRun) -> run_shapes.RunState: ...

    async def steer_run(self, request: requests.SteerRun) -> run_shapes.RunState: ...

    async def recover_runs(self, request: requests.RecoverRuns) -> shapes.Recovered: ...


class EffectOperations(Protocol):
    """Looks at effects, and decides about those in doubt. Their callers run them."""

    async def get_effect(self, request: requests.GetEffect) -> step_shapes.EffectShown: ...

    async def forget_effect(self, request: requests.ForgetEffect) -> step_shapes.EffectShown: ...

    async def settle_effect(self, request: requests.SettleEffect) -> step_shapes.EffectShown: ...


class NotificationOperations(Protocol):
    """Looks at what is told of runs, and asks for another try. Workers deliver."""

    async def list_notifications(self, request: requests.ListNotifications) -> shapes.NotificationList: ...

    async def retry_notification(self, request: requests.RetryNotification) -> shapes.NotificationList: ...


class LimitOperations(Protocol):
    """Looks at limits and at what was spent, and changes limits."""

    async def list_limits(self, request: requests.ListLimits) -> shapes.LimitList: ...

    async def set_limit(self, request: requests.SetLimit) -> shapes.LimitChanged: ...

    async def reset_limits(self, request: requests.ResetLimits) -> shapes.LimitChanged: ...

    async def get_usage(self, request: requests.GetUsage) -> shapes.UsageList: ...


class MessageOperations(Protocol):
    """Reads what is said in chats."""

    async def list_messages(self, request: requests.ListMessages) -> list[MessageShown]: ...

    def read_messages(
        self, request: requests.ReadMessages, *, stop: asyncio.Event | None = None
    ) -> AsyncGenerator[MessagePiece]:
        """Pieces of messages as they come; `stop` ends a wait for more."""
        ...


class PipelineOperations(Protocol):
    """Looks at registered pipelines, and adds, enables and removes them."""

    async def list_pipelines(self, request: requests.ListPipelines) -> shapes.PipelineList: ...

    async def show_pipeline(self, request: requests.GetPipeline) -> shapes.PipelinePage: ...

    async def check_pipeline(self, request: requests.CheckPipeline) -> shapes.PipelineChecked: ...

    async def add_pipeline(self, request: requests.AddPipeline) -> shapes.PipelineAdded: ...

    async def enable_pipeline(self, request: requests.EnablePipeline) -> shapes.PipelineListed: ...

    async def remove_pipeline(self, request: requests.RemovePipeline) -> shapes.PipelineRemoved: ...


class ChatOperations(Protocol):
    """Sends messages, and looks at chats."""

    async def send_message(self, request: requests.SendMessage) -> MessageSent: ...

    async def list_chats(self, request: requests.ListChats) -> ChatList: ...

    async def show_chat(self, request: requests.ShowChat) -> ChatPage: ...


class StartOperations(Protocol):
    """Makes runs, and executes nothing."""

    async def submit_run(self, request: requests.SubmitRun) -> run_shapes.Submitted: ...

    async def submit_runs(self, request: requests.SubmitRuns) -> run_shapes.SubmittedRuns: ...

    async def fork_run(self, request: requests.ForkRun) -> run_shapes.RunWithNotice: ...


class AccessOperations(Protocol):
    """Says who may use a server, and what they asked it to change."""

    async def list_tokens(self, request: requests.ListTokens) -> access_shapes.TokenList: ...

    async def add_token(self, request: requests.AddToken) -> access_shapes.TokenMade: ...

    async def revoke_token(self, request: requests.RevokeToken) -> access_shapes.TokenListed: ...

    async def list_audit(self, request: requests.ListAudit) -> access_shapes.AuditPage: ...


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

    @property
    def access(self) -> AccessOperations: ...
