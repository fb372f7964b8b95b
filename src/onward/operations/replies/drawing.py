"""A graph as a reply, with a run in it or without; `onward graph --json` prints it."""

from __future__ import annotations

from typing import TypedDict


class DrawnNode(TypedDict):
    """A node of a graph, and how it stands in the run; null where no run is shown."""

    id: str
    label: str
    kind: str
    shape: str
    state: str | None
    visits: int | None
    retries: int | None
    next: bool | None
    note: str | None


class DrawnEdge(TypedDict):
    """An edge between two nodes, and how often the run took it."""

    source: str
    target: str
    label: str
    condition: str
    loops_back: bool
    taken: int | None


class DrawnJump(TypedDict):
    """A move of the run that no edge stands for."""

    source: str
    target: str
    taken: int | None


class DrawnRun(TypedDict):
    """The run that a graph shows."""

    id: str
    display_id: str
    status: str
    reason: str
    next: str | None


class Drawing(TypedDict):
    """A pipeline's graph, with a run in it or without."""

    pipeline: str
    pipeline_hash: str
    path: str | None
    run: DrawnRun | None
    rankdir: str
    start: str | None
    nodes: list[DrawnNode]
    edges: list[DrawnEdge]
    jumps: list[DrawnJump]
