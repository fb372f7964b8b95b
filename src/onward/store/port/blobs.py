"""Content by its hash: definitions, large values and artifacts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol


class Swept(NamedTuple):
    """How many blobs were deleted, and how many stored bytes they had."""

    blobs: int
    bytes: int

    def plus(self, other: Swept) -> Swept:
        return Swept(self.blobs + other.blobs, self.bytes + other.bytes)


NOTHING = Swept(0, 0)


class Blobs(Protocol):
    """Content by its hash. A write to a log stores the content that it brings by itself."""

    async def find(self, hash: str) -> bytes | None:
        """The content with this BLAKE3, or None."""
        ...

    async def find_many(self, hashes: Collection[str]) -> Mapping[str, bytes]:
        """The contents that are there, by their hashes."""
        ...

    async def put(self, blobs: Mapping[str, bytes], *, at_us: int) -> None:
        """Store content before the run that refers to it; it stays at least as long as any other does."""
        ...

    async def sweep(self, before_us: int, limit: int) -> Swept:
        """Delete up to `limit` blobs that nothing refers to and that were not touched since `before_us`.

        No clock decides whether content that is referred to stays. Blobs are marked, then references are
        looked for again, and then those that still have the mark are deleted. A write that uses a blob takes
        the mark off in its own transaction, or stores the content again if it is gone by then.
        """
        ...
