"""Replies about the processes that hold runs, and the runs of dead ones."""

from __future__ import annotations

from typing import TypedDict

from onward.operations.replies.instant import Instant


class WorkerListed(TypedDict):
    """A worker, or another process that holds runs, with their display ids.

    Of a process that takes no runs from the queue, `handlers`, `concurrency` and `started_at` are null.
    `lacks` are directories that runs of the queue need and it does not have.
    """

    worker: str
    is_alive: bool
    runs: list[str]
    handlers: list[str] | None
    lacks: list[str]
    concurrency: int | None
    started_at: Instant | None


class RunRecovered(TypedDict):
    """A run whose process died, as it was stopped or requeued."""

    id: str
    display_id: str
    status: str
    detail: str


class RunBroken(TypedDict):
    """A run that could not be recovered, and why."""

    run: str
    error: str


class Recovered(TypedDict):
    """What one look found; `waiting` are the runs with open questions."""

    interrupted: list[RunRecovered]
    requeued: list[RunRecovered]
    waiting: list[str]
    broken: list[RunBroken]
