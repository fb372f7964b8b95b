"""Events of whole runs: they begin, are claimed, stop, continue and end; and what their holders are asked."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from onward.model.events.event import ContextEvent, Event
from onward.model.values.bounds import Instant, Number
from onward.model.values.tags import Tags
from onward.model.workspace import Workspace


class Managed(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Which step of which run manages this run, and how many managers are above it."""

    run: str
    step: str
    depth: Number = 1


class RunCreated(ContextEvent, frozen=True, kw_only=True):
    """A run was created: its pipeline, first node and context. The first checkpoint.

    `simulation` is the script of a simulated run; `simulates_tools`: no command and no handler of the app is
    executed either. `trims_output`: its tools' output has no last newline; in runs from before, it has.
    `wake_at_us`: it is due then, and not at once. Its calls are charged to another run if `charged_to` names
    one. `pipeline_version` is there if the pipeline was found by its registered name.
    """

    pipeline: str
    pipeline_hash: str
    start_node: str
    path: str | None = None
    on_owner_loss: str = "interrupt"
    exclusive_key: str | None = None
    simulation: dict[str, Any] | None = None
    simulates_tools: bool = False
    version: str = ""
    priority: Number = 0
    needs: tuple[str, ...] = ()
    max_running: Number | None = None
    restart_of: str | None = None
    restarts: Number = 0
    managed_by: Managed | None = None
    workdir: str | None = None
    workspace: Workspace | None = None
    trims_output: bool = False
    variables: tuple[str, ...] = ()
    tags: Tags = ()
    wake_at_us: Instant | None = None
    chat: str | None = None
    project: str | None = None
    charged_to: str | None = None
    pipeline_version: Number | None = None


class RunForked(ContextEvent, frozen=True, kw_only=True):
    """This run continues from another run's event; everything before is that run's log."""

    parent: str
    parent_seq: Number
    parent_hash: str
    by: str
    on_owner_loss: str = "interrupt"
    exclusive_key: str | None = None


class RunClaimed(Event, frozen=True, kw_only=True):
    """A process holds the run now. `lost`: the last holder had died, or had stopped executing it."""

    token: Number
    worker: str
    lost: bool = False


class PipelineChanged(Event, frozen=True, kw_only=True):
    """A person accepted that the run continues with a changed definition."""

    pipeline_hash: str
    before: str
    by: str


class WorkdirChanged(Event, frozen=True, kw_only=True):
    """A person named another directory for the run's commands to work in."""

    workdir: str
    before: str | None
    by: str


class PauseRequested(Event, frozen=True, kw_only=True):
    """The holder was asked to stop after the step, after the call, or now."""

    after: str
    by: str


class CancelRequested(Event, frozen=True, kw_only=True):
    """The holder was asked to cancel the run; `detail` is why, in free text."""

    by: str
    detail: str = ""
    reason: str = "user"


class SteeringGiven(Event, frozen=True, kw_only=True):
    """An instruction for the run's agents; the next agent step takes it."""

    text: str
    by: str


class RunWaiting(Event, frozen=True, kw_only=True):
    """Only gates are open; the lease is released. The wake time is the first deadline with a rule.

    Version 1 had no wake time.
    """

    VERSION: ClassVar[int] = 2

    wake_at_us: Instant | None = None


class RunQueued(Event, frozen=True, kw_only=True):
    """Released, to be claimed again at the wake time."""

    why: str
    wake_at_us: Instant


class RunPaused(Event, frozen=True, kw_only=True):
    """Stopped on request."""

    reason: str
    detail: str = ""


class RunInterrupted(Event, frozen=True, kw_only=True):
    """Stopped without a request."""

    reason: str
    detail: str = ""
    wake_at_us: Instant | None = None


class RunFailed(Event, frozen=True, kw_only=True):
    """Stopped because the run cannot continue."""

    reason: str
    detail: str = ""
    step: str = ""


class RunResumed(Event, frozen=True, kw_only=True):
    """A person resumed a stopped run: from where, and what happens to the step it stopped in.

    `repeats` are calls of that step that a person allows to be repeated, although they were answered.
    """

    by: str
    from_node: str | None = None
    action: str | None = None
    step: str | None = None
    restore_workspace: bool = False
    repeats: tuple[str, ...] = ()


class RunDismissed(Event, frozen=True, kw_only=True):
    """A person does not want to be offered this stopped run any more. It can still be resumed by name."""

    by: str


class RunCompleted(Event, frozen=True, kw_only=True):
    """The exit was reached, the graph ended elsewhere, or a loop_restart started another run. Final.

    `ended_at` is the node at which the graph ended: it has no edges and is not the exit.
    """

    restarted_as: str = ""
    ended_at: str = ""


class RunCancelled(Event, frozen=True, kw_only=True):
    """Cancelled for good. Final. `detail` is why, in free text."""

    reason: str
    by: str = ""
    detail: str = ""
