"""Replies to decisions about runs, and to requests that create some."""

from __future__ import annotations

from typing import TypedDict

from onward.operations.replies.left import LeftShown
from onward.operations.replies.runs import RunListed, RunState


class PlannedAct(TypedDict):
    """One thing that a resume would do first."""

    does: str
    what: str
    why: str


class ResumePreview(TypedDict):
    """What a resume would skip, and what it would do up to the next effect, which decides the rest."""

    run: str
    skip: list[str]
    plan: list[PlannedAct]
    left: list[LeftShown]
    notice: str


class Resumed(RunState):
    """A run that was resumed, and what whoever resumed it should know."""

    notice: str


class Forked(RunState):
    """A new run that shares another's log, and what whoever forked it should know."""

    notice: str


class Submitted(TypedDict):
    """A new run, and the warnings about its pipeline."""

    run: RunState
    warnings: list[str]


class SubmittedRuns(TypedDict):
    """New runs in the order in which they were asked for, and the warnings about their pipelines."""

    runs: list[RunListed]
    warnings: list[str]
