"""Replies about what steps leave beside their results: artifacts, effects and calls."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from onward.operations.replies.instant import Instant


class ArtifactListed(TypedDict):
    """What is known of an artifact; `form` is what the step handed over: bytes, text or json."""

    id: str
    name: str
    size_bytes: int
    stored_at: Instant
    form: str
    step: str
    hash: str


class ArtifactList(TypedDict):
    """The artifacts of a run, by id."""

    run: str
    display_id: str
    artifacts: list[ArtifactListed]


class ArtifactContent(ArtifactListed):
    """An artifact with its content: text as it is, bytes in base64."""

    content: NotRequired[str]
    content_base64: NotRequired[str]


class UsageShown(TypedDict):
    """The tokens of a request: `reasoning` is part of `output`, `cached` and `cache_write` of `input`."""

    input: int
    output: int
    cached: int
    reasoning: int
    cache_write: int


class EstimateShown(TypedDict):
    """What a call was charged whose cost is not known: what it had reserved. `cost` is in units of money."""

    tokens: int
    cost: float


CallListed = TypedDict(
    "CallListed",
    {
        "step": str,
        "attempt": int,
        "call": str,
        "try": int,
        "type": str,
        "name": str,
        "state": str,
        "repeatable": bool,
        "began_at": Instant | None,
        "ended_at": Instant | None,
        "duration_s": float | None,
        "model": str,
        "usage": UsageShown | None,
        "cost": float | None,
        "estimated": EstimateShown | None,
        "shortened_to": int | None,
        "about": str,
        "is_gone": bool,
        "request_id": str,
        "error": str,
        "by": str,
    },
)
"""One try of a call inside a step; `state` is open, ok, error or lost.

`is_gone`: it is open, but the process that made it is gone; whoever continues the run records it as lost.
"""


class CallList(TypedDict):
    """The calls inside the steps of a run, in the order in which they began."""

    run: str
    display_id: str
    calls: list[CallListed]


class EffectShown(TypedDict):
    """How an effect stands: absent, begun, in_doubt, finished or forgotten."""

    key: str
    state: str
    owner: str | None
    begun_at: Instant | None
    finished_at: Instant | None
    result: dict[str, Any] | None
