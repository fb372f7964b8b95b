"""The documents' paths, for the app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onward.server.documents import agent_paths, pipeline_paths, sockets, workflow_paths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onward.server.context import Context
    from onward.server.place import Mounted


def places(context: Context) -> Sequence[Mounted]:
    """Every path of documents 000, 002, 003 and 004."""
    rooms = agent_paths, pipeline_paths, workflow_paths, sockets
    return [place for room in rooms for place in room.places(context)]
