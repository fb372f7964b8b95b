"""What every event is."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A fact about a run. Subclasses add fields.

    A field that is added later has a default, so that stored events still decode. A new VERSION makes older
    programs refuse the event instead of taking it for the old one.
    """

    VERSION: ClassVar[int] = 1
    BESIDE: ClassVar[frozenset[str]] = frozenset()
    """Fields that are never in the stored body: their content is stored separately."""

    @property
    def kind(self) -> str:
        return type(self).__name__


class ContextEvent(Event, frozen=True, kw_only=True):
    """An event that changes context. Large values are stored separately, by the hash of their content."""

    context: dict[str, Any] = {}
    blobs: dict[str, str] = {}
