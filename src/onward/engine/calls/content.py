"""Content that the calls of a step stored: read in pages, since an agent that continues reads all of it."""

from __future__ import annotations

from collections.abc import Iterable

from onward.store.port.retention import Blobs

PAGE = 100


class KeptContent:
    """Finds content by its hash; `note` says what there is, in the order in which it was stored.

    Messages of a conversation are read one after the other, because each names the one before it: one by one
    that would be a trip to the database for each.
    """

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._names: list[str] = []
        self._places: dict[str, int] = {}
        self._ahead: dict[str, bytes] = {}

    def note(self, names: Iterable[str]) -> None:
        """What was stored next."""
        for name in names:
            self._places[name] = len(self._names)
            self._names.append(name)

    async def find(self, name: str) -> bytes | None:
        """The content, or None."""
        place = self._places.get(name)
        if place is None:
            return await self._blobs.find(name)
        if name not in self._ahead:
            first = place // PAGE * PAGE
            self._ahead |= await self._blobs.find_many(self._names[first : first + PAGE])
        return self._ahead.pop(name, None)
