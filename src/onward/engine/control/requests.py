"""What people and programs ask of the engine, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from onward.engine.control.interview import Interviewer
from onward.engine.log.terms import NO_TERMS, RequestTerms
from onward.machine.decide.resume import ResumeRequest
from onward.model.events import Managed
from onward.model.run import Simulation


class Start(Struct, frozen=True):
    """What a new run is asked to be."""

    inputs: Mapping[str, Any] = {}
    run_id: str | None = None
    simulation: Simulation | None = None
    on_owner_loss: str = "interrupt"
    exclusive_key: str | None = None
    priority: int = 0
    tags: tuple[str, ...] = ()
    wake_at_us: int | None = None
    """When it is due; without it, at once."""
    terms: RequestTerms = NO_TERMS
    managed_by: Managed | None = None
    chat: str | None = None
    """The conversation that the run belongs to; without one, it is its own."""
    project: str | None = None
    """The project whose limits its calls count in."""
    charged_to: str | None = None
    """The run that its calls are charged to, if it is another."""
    workdir: str | None = None
    """Where its commands work, an absolute path; without it, wherever the process that executes it does."""
    workspace: str | None = None
    """A directory in the git repository that the steps change; else what the pipeline says."""
    workspace_mode: str | None = None
    keep_workspace: bool = False
    interviewer: Interviewer | None = None
    """Who answers the gates of runs that this one manages."""


class Fork(msgspec.Struct, frozen=True):
    """Where a run is asked to be forked, and what of it is to be different."""

    checkpoint: int | None = None
    from_step: str | None = None
    """Instead of a checkpoint: fork before this step, an id, or a node for its last visit."""
    changes: Mapping[str, Any] = msgspec.field(default_factory=dict)
    new_id: str | None = None
    by: str = "user"
    accept_changes: bool = False
    original: bool = False
    terms: RequestTerms = NO_TERMS


@dataclass(frozen=True, slots=True)
class Resume(ResumeRequest):
    """How a stopped run is asked to continue: what is decided, and how it is sent.

    `action` decides about a step that stopped: retry, skip, continue or abort; `step` names it if there are
    several. `from_node` starts again at a node. `accept_changes` takes the changed pipeline file, `original`
    the stored source. `take_over` takes the run from a live holder, `wait` waits for it. `run=False` only
    decides: a worker executes the run. `raises` are limits that are raised first: the scope or its kind, the
    measure and the limit.
    """

    original: bool = False
    wait: bool = False
    terms: RequestTerms = NO_TERMS
    interviewer: Interviewer | None = None
