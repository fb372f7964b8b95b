"""What every command prints with `--json`: `docs/json.md` is made from this table, and tests hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import msgspec

from onward.agents.lists import ModelList, ToolList
from onward.operations.here.replies import (
    Check,
    EffectMade,
    FilesWritten,
    Imported,
    ReceiptsWritten,
    RunsCollected,
    RunVerified,
)
from onward.replies import database as shapes
from onward.replies import steps as step_shapes
from onward.replies.access import AuditPage, TokenList, TokenListed, TokenMade
from onward.replies.chats import ChatList, ChatPage, MessagePiece, MessageSent
from onward.replies.runs import GateListed, ResumePreview, RunListed, RunState, RunWithNotice


class ErrorShown(TypedDict):
    """Why a command was refused or failed. Some codes come with more fields, such as `wanted` or `run`."""

    code: str
    message: str


class FailureShown(TypedDict):
    """What is printed instead of a reply if the exit code says that there is none."""

    error: ErrorShown


class ProblemShown(TypedDict):
    """A finding about a pipeline, with its place; lines and columns count from 1."""

    rule: str
    severity: str
    message: str
    file: str
    line: int
    column: int
    node_id: str | None
    edge: list[str] | None
    fix: str | None


class Steered(TypedDict):
    """A run that was given an instruction, and all instructions that no step has taken yet."""

    id: str
    steering: list[str]


class WorkerDone(TypedDict):
    """What a worker did until it stopped."""

    driven: int
    left_behind: int


class RunsRecovered(TypedDict):
    """The ids of the runs whose process died, and the runs that could not be recovered."""

    interrupted: list[str]
    requeued: list[str]
    waiting: list[str]
    broken: list[shapes.RunBroken]


class EffectForgotten(TypedDict):
    """An effect that the next call runs again."""

    key: str
    state: str


class ExportWritten(TypedDict):
    """A file of runs, and what it holds."""

    file: str
    runs: list[str]
    events: int
    blobs: int
    effects: int
    messages: int
    bytes: int


class VerificationShown(TypedDict):
    """The runs that were checked."""

    runs: list[RunVerified]
    events: int
    problems: int


class ProjectMade(TypedDict):
    """A new project, and its files."""

    directory: str
    files: list[str]


class VersionShown(TypedDict):
    """The installed version."""

    version: str


class CompletionShown(TypedDict):
    """The completion script of a shell."""

    shell: str
    script: str


class LinkMade(TypedDict):
    """A link that signs a browser in once."""

    link: str


class JsonReply(msgspec.Struct, frozen=True):
    """One kind of reply. `when` tells it from the command's others; `is_lines`: one value per line."""

    type: Any
    when: str = ""
    is_lines: bool = False


_EXECUTED = (JsonReply(RunState),)
_RESUMED = (JsonReply(RunState), JsonReply(RunWithNotice, "--queue"))

REPLIES: Mapping[str, Sequence[JsonReply]] = {
    "validate": (JsonReply(list[ProblemShown]),),
    "run": _EXECUTED,
    "simulate-script": (JsonReply(dict[str, list[dict[str, Any]]]),),
    "status": (
        JsonReply(list[RunListed]),
        JsonReply(RunListed, "with a run"),
        JsonReply(RunListed, "--watch", is_lines=True),
    ),
    "show": (JsonReply(step_shapes.RunPage), JsonReply(step_shapes.StepPage, "with a step")),
    "logs": (JsonReply(step_shapes.LogPiece, is_lines=True),),
    "messages": (JsonReply(MessagePiece, is_lines=True),),
    "events": (JsonReply(step_shapes.EventShown, is_lines=True),),
    "checkpoints": (JsonReply(list[step_shapes.Checkpoint]),),
    "graph": (JsonReply(step_shapes.Drawing),),
    "files": (JsonReply(FilesWritten),),
    "receipts": (JsonReply(ReceiptsWritten),),
    "calls": (JsonReply(list[step_shapes.CallListed]),),
    "artifacts": (
        JsonReply(list[step_shapes.ArtifactListed]),
        JsonReply(step_shapes.ArtifactContent, "with an artifact"),
    ),
    "notifications": (JsonReply(shapes.NotificationList),),
    "models": (JsonReply(ModelList),),
    "tools": (JsonReply(ToolList),),
    "limits": (JsonReply(shapes.LimitList), JsonReply(shapes.LimitChanged, "with set or reset")),
    "usage": (JsonReply(shapes.UsageList),),
    "resume": (*_RESUMED, JsonReply(ResumePreview, "--dry-run")),
    "retry": _RESUMED,
    "skip": _RESUMED,
    "abort": _EXECUTED,
    "replay": (JsonReply(RunState), JsonReply(RunWithNotice, "--no-run")),
    "pause": _EXECUTED,
    "cancel": _EXECUTED,
    "dismiss": _EXECUTED,
    "steer": (JsonReply(Steered),),
    "answer": (JsonReply(RunState), JsonReply(list[GateListed], "without a run")),
    "pipelines": (
        JsonReply(shapes.PipelineList),
        JsonReply(shapes.PipelineAdded, "with add"),
        JsonReply(shapes.PipelinePage, "with show"),
        JsonReply(shapes.PipelineListed, "with enable"),
        JsonReply(shapes.PipelineRemoved, "with remove"),
    ),
    "chat": (JsonReply(MessageSent),),
    "chats": (JsonReply(ChatList), JsonReply(ChatPage, "with show")),
    "submit": (JsonReply(RunState), JsonReply(list[RunListed], "--from-jsonl")),
    "serve": (JsonReply(WorkerDone),),
    "tokens": (
        JsonReply(TokenList),
        JsonReply(TokenMade, "with add"),
        JsonReply(TokenListed, "with revoke"),
        JsonReply(LinkMade, "with link"),
    ),
    "audit": (JsonReply(AuditPage),),
    "worker": (JsonReply(WorkerDone),),
    "workers": (JsonReply(list[shapes.WorkerListed]),),
    "recover": (JsonReply(RunsRecovered),),
    "stats": (JsonReply(shapes.Stats),),
    "effect": (
        JsonReply(EffectMade),
        JsonReply(step_shapes.EffectShown, "without a command, or --done"),
        JsonReply(EffectForgotten, "--forget"),
    ),
    "gc": (JsonReply(RunsCollected),),
    "export": (JsonReply(ExportWritten, "--out FILE"),),
    "import": (JsonReply(Imported),),
    "verify": (JsonReply(VerificationShown),),
    "doctor": (JsonReply(list[Check]),),
    "init": (JsonReply(ProjectMade),),
    "version": (JsonReply(VersionShown),),
    "completion": (JsonReply(CompletionShown),),
}
