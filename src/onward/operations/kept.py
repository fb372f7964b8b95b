"""Replies about what is kept beside the logs of runs: artifacts and effects."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from onward.operations.instant import Instant


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


class EffectShown(TypedDict):
    """How an effect stands: absent, begun, in_doubt, finished or forgotten."""

    key: str
    state: str
    owner: str | None
    begun_at: Instant | None
    finished_at: Instant | None
    result: dict[str, Any] | None
