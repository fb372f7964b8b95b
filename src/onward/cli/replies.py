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
    LogPiece,
    ReceiptsWritten,
    RunsCollected,
    RunVerified,
)
from onward.operations.replies.chats import ChatList, ChatPage, MessagePiece, MessageSent
from onward.operations.replies.database import (
    LimitChanged,
    LimitList,
    NotificationList,
    PipelineAdded,
    PipelineList,
    PipelineListed,
    PipelinePage,
    PipelineRemoved,
    RunBroken,
    Stats,
    UsageList,
    WorkerListed,
)
from onward.operations.replies.runs import Forked, GateListed, Resumed, ResumePreview, RunListed, RunState
from onward.operations.replies.steps import (
    ArtifactContent,
    ArtifactListed,
    CallListed,
    Checkpoint,
    Drawing,
    EffectShown,
    EventShown,
    RunPage,
    StepPage,
)


class ErrorShown(TypedDict):
    """Why a command was refused or failed. Some codes come with more fields, such as `wanted` or `run`."""

    code: str
    message: str


class Failure(TypedDict):
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
    broken: list[RunBroken]


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


class Verified(TypedDict):
    """The runs that were checked."""

    runs: list[RunVerified]
    events: int
    problems: int


class VersionShown(TypedDict):
    """The installed version."""

    version: str


class CompletionShown(TypedDict):
    """The completion script of a shell."""

    shell: str
    script: str


class Reply(msgspec.Struct, frozen=True):
    """One kind of reply. `when` tells it from the command's others; `is_lines`: one value per line."""

    type: Any
    when: str = ""
    is_lines: bool = False


_EXECUTED = (Reply(RunState),)
_RESUMED = (Reply(RunState), Reply(Resumed, "--queue"))

REPLIES: Mapping[str, Sequence[Reply]] = {
    "validate": (Reply(list[ProblemShown]),),
    "run": _EXECUTED,
    "simulate-script": (Reply(dict[str, list[dict[str, Any]]]),),
    "status": (
        Reply(list[RunListed]),
        Reply(RunListed, "with a run"),
        Reply(RunListed, "--watch", is_lines=True),
    ),
    "show": (Reply(RunPage), Reply(StepPage, "with a step")),
    "logs": (Reply(LogPiece, is_lines=True),),
    "messages": (Reply(MessagePiece, is_lines=True),),
    "events": (Reply(EventShown, is_lines=True),),
    "checkpoints": (Reply(list[Checkpoint]),),
    "graph": (Reply(Drawing),),
    "files": (Reply(FilesWritten),),
    "receipts": (Reply(ReceiptsWritten),),
    "calls": (Reply(list[CallListed]),),
    "artifacts": (Reply(list[ArtifactListed]), Reply(ArtifactContent, "with an artifact")),
    "notifications": (Reply(NotificationList),),
    "models": (Reply(ModelList),),
    "tools": (Reply(ToolList),),
    "limits": (Reply(LimitList), Reply(LimitChanged, "with set or reset")),
    "usage": (Reply(UsageList),),
    "resume": (*_RESUMED, Reply(ResumePreview, "--dry-run")),
    "retry": _RESUMED,
    "skip": _RESUMED,
    "abort": _EXECUTED,
    "replay": (Reply(RunState), Reply(Forked, "--no-run")),
    "pause": _EXECUTED,
    "cancel": _EXECUTED,
    "dismiss": _EXECUTED,
    "steer": (Reply(Steered),),
    "answer": (Reply(RunState), Reply(list[GateListed], "without a run")),
    "pipelines": (
        Reply(PipelineList),
        Reply(PipelineAdded, "with add"),
        Reply(PipelinePage, "with show"),
        Reply(PipelineListed, "with enable"),
        Reply(PipelineRemoved, "with remove"),
    ),
    "chat": (Reply(MessageSent),),
    "chats": (Reply(ChatList), Reply(ChatPage, "with show")),
    "submit": (Reply(RunState), Reply(list[RunListed], "--from-jsonl")),
    "worker": (Reply(WorkerDone),),
    "workers": (Reply(list[WorkerListed]),),
    "recover": (Reply(RunsRecovered),),
    "stats": (Reply(Stats),),
    "effect": (
        Reply(EffectMade),
        Reply(EffectShown, "without a command, or --done"),
        Reply(EffectForgotten, "--forget"),
    ),
    "gc": (Reply(RunsCollected),),
    "export": (Reply(ExportWritten, "--out FILE"),),
    "import": (Reply(Imported),),
    "verify": (Reply(Verified),),
    "doctor": (Reply(list[Check]),),
    "version": (Reply(VersionShown),),
    "completion": (Reply(CompletionShown),),
}
