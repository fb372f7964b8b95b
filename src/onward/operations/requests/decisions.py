"""Requests that decide what becomes of a run."""

from __future__ import annotations

from typing import Any

import msgspec

from onward.model.answer import Verdict
from onward.operations.requests.limits import LimitRaise
from onward.operations.requests.request import Request


class PreviewResume(Request, frozen=True, kw_only=True):
    """What a resume would do, with every check of it; nothing is changed.

    `workdir`: the directory that the run's commands work in from then on, an absolute path. `answers`: with
    `continue`, what calls in doubt answered. `repeats`: with `retry`, answered calls that must not be
    repeated and are to be repeated all the same.
    """

    run: str
    from_node: str | None = None
    action: str | None = None
    step: str | None = None
    accept_changes: bool = False
    original: bool = False
    take_over: bool = False
    restore_workspace: bool = False
    workdir: str | None = None
    answers: dict[str, Any] = msgspec.field(default_factory=dict)
    repeats: tuple[str, ...] = ()


class ResumeRun(PreviewResume, frozen=True, kw_only=True):
    """Let a stopped run continue: it is queued, and a worker executes it. `abort` cancels it instead."""

    by: str = "user"
    key: str | None = None
    if_head: int | None = None
    raises: tuple[LimitRaise, ...] = ()
    """Limits that are raised first."""


class RunChange(Request, frozen=True, kw_only=True):
    """A request that changes a run."""

    run: str
    by: str = "user"
    key: str | None = None
    if_head: int | None = None


class AnswerGate(RunChange, frozen=True, kw_only=True):
    """Decide an open gate: by a choice, a verdict or words. The run is queued, and a worker executes it."""

    gate: str | None = None
    choice: str = ""
    text: str = ""
    verdict: Verdict | None = None


class PauseRun(RunChange, frozen=True, kw_only=True):
    """Ask a run to stop after the step, after the call, or now; at once if no live process holds it."""

    after: str = "step"


class CancelRun(RunChange, frozen=True, kw_only=True):
    """Give a run up for good; `reason` is why, in free text."""

    reason: str = ""


class DismissRun(RunChange, frozen=True, kw_only=True):
    """Stop suggesting a stopped run, and stop resuming it automatically. It can still be resumed by name."""


class SteerRun(RunChange, frozen=True, kw_only=True):
    """Give the run's agents an instruction; the next agent step takes it."""

    text: str


class RecoverRuns(Request, frozen=True, kw_only=True):
    """Look once for runs whose process died, and stop or requeue them as their policies say."""
