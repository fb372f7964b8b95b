"""Requests that look at one run."""

from __future__ import annotations

from onward.operations.requests.request import Request


class GetRun(Request, frozen=True, kw_only=True):
    """A run as it stands."""

    run: str


class ShowRun(Request, frozen=True, kw_only=True):
    """A run with all that happened in it, step by step."""

    run: str


class ShowStep(Request, frozen=True, kw_only=True):
    """Everything about one step: `step` is its id, or its node for the last visit."""

    run: str
    step: str


class ReadEvents(Request, frozen=True, kw_only=True):
    """A run's log after event `after`. With `follow`, also what is appended until the run has ended.

    `dialect`: under the event names of the DOT dialect.
    """

    run: str
    after: int = 0
    follow: bool = False
    dialect: bool = False


class ListCheckpoints(Request, frozen=True, kw_only=True):
    """Where a fork of the run can begin."""

    run: str


class ListArtifacts(Request, frozen=True, kw_only=True):
    """What a run has stored next to its context."""

    run: str


class GetArtifact(Request, frozen=True, kw_only=True):
    """One artifact with its content."""

    run: str
    id: str


class ListCalls(Request, frozen=True, kw_only=True):
    """The calls inside the steps of a run; of one `step`, or of the steps of one node."""

    run: str
    step: str | None = None


class DrawRun(Request, frozen=True, kw_only=True):
    """A run in the graph of its pipeline. `original`: of the pipeline that it began with."""

    run: str
    original: bool = False
