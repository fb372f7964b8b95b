"""What people and programs ask of the engine, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onward.engine.control.interview import Interviewer
from onward.engine.log.terms import NO_TERMS, RequestTerms
from onward.model.event import Managed


@dataclass(frozen=True, slots=True)
class Start:
    """What a new run is asked to be."""

    inputs: Mapping[str, Any] = field(default_factory=dict)
    run_id: str | None = None
    simulation: Mapping[str, Any] | None = None
    on_owner_loss: str = "interrupt"
    exclusive_key: str | None = None
    priority: int = 0
    terms: RequestTerms = NO_TERMS
    managed_by: Managed | None = None
    workdir: str | None = None
    workspace: str | None = None
    """A directory in the git repository that the steps change; else what the pipeline says."""
    workspace_mode: str | None = None
    keep_workspace: bool = False
    interviewer: Interviewer | None = None
    """Who answers the gates of runs that this one manages."""


@dataclass(frozen=True, slots=True)
class Resume:
    """How a stopped run is asked to continue.

    `run`: this process executes it. Without, the decision is written and the run is left to the workers.
    """

    by: str = "user"
    from_node: str | None = None
    action: str | None = None
    step: str | None = None
    accept_changes: bool = False
    original: bool = False
    take_over: bool = False
    wait: bool = False
    restore_workspace: bool = False
    run: bool = True
    terms: RequestTerms = NO_TERMS
    interviewer: Interviewer | None = None
