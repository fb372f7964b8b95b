"""Requests that create runs."""

from __future__ import annotations

from typing import Any

import msgspec

from onward.errors import InvalidInput
from onward.operations.requests.request import Request


class NewRun(Request, frozen=True, kw_only=True):
    """A request that makes a run. Under a key and without a run id, caller and key name the run."""

    run_id: str | None = None
    by: str = "user"
    key: str | None = None


class SubmitRun(NewRun, frozen=True, kw_only=True):
    """A new run of a pipeline, for whichever worker takes it.

    Instead of the `source`, `pipeline` names a registered one, as NAME or NAME@VERSION. `file` is what
    diagnostics call the source; `path` is where a later resume looks for a changed file.
    `simulation` is a script ({} if every step succeeds); with `real_tools` only agents are simulated.
    `workdir`, an absolute path, is where the run's commands work; workers without it leave the run alone.
    Of the runs with one `exclusive_key`, one is executed at a time. `wake_at_us`: it is due then. What its
    models say is in `chat`; its calls count in the limits of the chat and of `project`.
    """

    source: str = ""
    pipeline: str | None = None
    file: str = "<pipeline>"
    path: str | None = None
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    simulation: dict[str, Any] | None = None
    real_tools: bool = False
    priority: int = 0
    on_owner_loss: str = "requeue"
    exclusive_key: str | None = None
    tags: tuple[str, ...] = ()
    wake_at_us: int | None = None
    chat: str | None = None
    project: str | None = None
    workdir: str | None = None
    workspace: str | None = None
    workspace_mode: str | None = None
    keep_workspace: bool = False

    def __post_init__(self) -> None:
        if self.pipeline is not None and (self.source or self.path):
            raise InvalidInput("a run has a source or the name of a registered pipeline; give one of them.")


class SubmitRuns(Request, frozen=True, kw_only=True):
    """New runs, in order. All are checked before the first is created, and one that cannot be refuses all."""

    runs: tuple[SubmitRun, ...]


class ForkRun(NewRun, frozen=True, kw_only=True):
    """A new run that shares another's log up to a checkpoint; `changes` are set in its context.

    Instead of the checkpoint, `from_step` names the step before which it is forked: an id, or a node for its
    last visit. A pipeline file that has changed is refused as for a resume.
    """

    run: str
    checkpoint: int | None = None
    from_step: str | None = None
    changes: dict[str, Any] = msgspec.field(default_factory=dict)
    accept_changes: bool = False
    original: bool = False
