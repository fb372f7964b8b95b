"""Replies about registered pipelines."""

from __future__ import annotations

from typing import TypedDict

from onward.operations.replies.instant import Instant


class PipelineListed(TypedDict):
    """A registered pipeline. New runs get the version `enabled`; there are the versions 1 to `newest`.

    `changed_by` and `changed_at`: who enabled that version, and when.
    """

    name: str
    enabled: int
    newest: int
    changed_by: str
    changed_at: Instant


class PipelineList(TypedDict):
    """Registered pipelines by name; `cursor` gets the next page, if there may be one."""

    pipelines: list[PipelineListed]
    cursor: str | None


class PipelineVersion(TypedDict):
    """A version of a registered pipeline, which never changes. `file` is where its source was."""

    version: int
    pipeline_hash: str
    file: str
    added_by: str
    added_at: Instant


class PipelinePage(PipelineListed):
    """A registered pipeline with the source of one version, and its versions, newest first."""

    version: int
    source: str
    versions: list[PipelineVersion]


class PipelineAdded(PipelineListed):
    """A version that was added, or, if not `is_new`, was there already; and the warnings about it."""

    version: int
    is_new: bool
    pipeline_hash: str
    warnings: list[str]


class PipelineRemoved(TypedDict):
    """A name that new runs cannot have any more. Runs of its versions keep their source."""

    name: str
    newest: int
    removed_by: str
    removed_at: Instant
