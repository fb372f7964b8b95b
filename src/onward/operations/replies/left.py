"""What a step in doubt left, as a reply."""

from __future__ import annotations

from typing import TypedDict

from onward.operations.replies.instant import Instant


class LeftCall(TypedDict):
    """The call of a step that was cut off."""

    handler: str
    command: str | None


class LeftFileShown(TypedDict):
    """A file that a step left; `bytes` is null for a directory, or for a file that the step removed."""

    path: str
    bytes: int | None


class LeftEffectShown(TypedDict):
    """An effect of a step that was cut off: begun, in_doubt or finished."""

    key: str
    state: str
    begun_at: Instant
    about: str | None


class LeftShown(TypedDict):
    """What a step in doubt left. Of very many files only the first are listed; `_count` is how many."""

    step: str
    attempt: int
    assessment: str
    began_at: Instant | None
    call: LeftCall
    directory: str | None
    files: list[LeftFileShown]
    files_count: int
    place: str | None
    changed: list[LeftFileShown]
    changed_count: int
    effects: list[LeftEffectShown]
    unseen: list[str]
