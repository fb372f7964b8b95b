"""Registered pipelines: names, and the versions of their sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec


class RegisteredPipeline(NamedTuple):
    """A name. New runs get the version `enabled`; None if the name was removed. `newest` is the last version.

    `changed_by` and `changed_at_us`: who enabled a version or removed the name last, and when.
    """

    name: str
    enabled: int | None
    newest: int
    changed_by: str
    changed_at_us: int


class RegisteredVersion(NamedTuple):
    """A version of a pipeline, which never changes. `hash` names its source; `file` is where that was."""

    name: str
    version: int
    hash: str
    file: str
    added_by: str
    added_at_us: int


class Added(NamedTuple):
    """A version that was added, or was there already, and the name as it is then."""

    pipeline: RegisteredPipeline
    version: RegisteredVersion


class NewSource(msgspec.Struct, frozen=True):
    """A source to be registered under a name. `hash` is the BLAKE3 of its `content`."""

    name: str
    hash: str
    content: bytes
    file: str
    by: str


class Pipelines(Protocol):
    """Registered pipelines. Every call can be repeated when its reply was lost.

    The source of a version is never collected while its name is registered.
    """

    async def add(self, new: NewSource, *, at_us: int, enables: bool = True) -> Added:
        """Store a source as the next version of its name; one that is there already is the same version.

        The version is enabled; without `enables`, only if none is. A removed name is registered again.
        """
        ...

    async def enable(self, name: str, version: int, *, by: str, at_us: int) -> RegisteredPipeline | None:
        """Choose the version that new runs get. A removed name stays removed. The name as it is then.

        The version must be there; none ever goes.
        """
        ...

    async def remove(self, name: str, *, by: str, at_us: int) -> RegisteredPipeline | None:
        """Take the name away; its versions keep their numbers. The name as it is then, None if unknown."""
        ...

    async def find(self, name: str) -> RegisteredPipeline | None:
        """The name, also if it was removed; None if it was never registered."""
        ...

    async def list(self, *, after: str = "", limit: int) -> Sequence[RegisteredPipeline]:
        """The registered names after `after`, in their order; none that was removed."""
        ...

    async def versions(
        self, name: str, *, upto: int | None = None, limit: int
    ) -> Sequence[RegisteredVersion]:
        """The versions of a name, newest first, from `upto` on."""
        ...
