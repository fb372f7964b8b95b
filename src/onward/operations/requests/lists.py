"""Lists over all runs, and the numbers of the database."""

from __future__ import annotations

from onward.model.run import RunStatus
from onward.model.values.bounds import LISTED
from onward.operations.requests.request import Request

ALL = 2**31 - 1
"""As a limit: whatever there is."""


class ListRuns(Request, frozen=True, kw_only=True):
    """Runs, newest first: one run, or those that every filter lets through.

    A search for a `text` may end after the newest 100,000 runs that the other filters let through.
    `completed` also reads each log for the steps that have finished; `older` also counts the runs that the
    limit leaves out.
    """

    run: str | None = None
    statuses: tuple[RunStatus, ...] = ()
    reasons: tuple[str, ...] = ()
    pipeline: str | None = None
    parent: str | None = None
    text: str | None = None
    tags: tuple[str, ...] = ()
    cursor: str | None = None
    limit: int = 50
    completed: bool = False
    older: bool = False

    def __post_init__(self) -> None:
        LISTED.check(self.limit, "limit")

    @property
    def is_filtered(self) -> bool:
        """Whether this lists fewer runs than there are, apart from the limit."""
        named = self.run, self.pipeline, self.parent, self.text, self.cursor
        return any((*named, self.statuses, self.reasons, self.tags))


class ListGates(Request, frozen=True, kw_only=True):
    """The inbox: open questions of all runs, oldest first."""

    pipeline: str | None = None
    cursor: str | None = None
    limit: int = 50


class RunGates(Request, frozen=True, kw_only=True):
    """The open questions of one run."""

    run: str


class ListWorkers(Request, frozen=True, kw_only=True):
    """The workers, and the other processes that hold runs."""


class GetStats(Request, frozen=True, kw_only=True):
    """How the database stands, in numbers."""
