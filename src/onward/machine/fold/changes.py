"""What all folds share: the changes to a run that they return, and the refusal of an event.

It stands below the folds, as the catalogue that names them stands above.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onward.model.events import Event
from onward.model.run import RunStatus

Changes = dict[str, Any]


class IllegalEvent(Exception):
    """An event that may not follow where it stands: a damaged log, or a defect in what wrote it."""

    def __init__(self, status: RunStatus | None, event: Event, why: str = "") -> None:
        self.status, self.event = status, event
        super().__init__(why or f"{event.kind} is not allowed when the run is {status or 'not created'}")


def without(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The mapping but for one key."""
    rest = dict(mapping)
    rest.pop(key, None)
    return rest
