"""What all parts of a server share, and the state of its life cycle."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from onward.clock import Clock, Ids
from onward.server.reading import Reader
from onward.server.settings import ServeSettings
from onward.store.port.store import Store

if TYPE_CHECKING:
    from onward.operations.protocol import Operations

log = logging.getLogger("onward.server")


class Life(msgspec.Struct, eq=False):
    """The state of the life cycle. `draining` and `ending` are set once, for streams to wait for."""

    draining: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """No new work is taken: streams say goodbye."""
    ending: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """The listener closes."""
    fault: str = ""
    """Why the server is not ready, if it is not."""

    @property
    def is_draining(self) -> bool:
        """Whether the server accepts no new work."""
        return self.draining.is_set()


class Context(msgspec.Struct, eq=False, kw_only=True):
    """One server: `operations` decide, in its loop; `reader` asks those that only look.

    `extra` is for rooms that share something of their own, such as the hub of the feeds, by the room's name.
    """

    operations: Operations
    reader: Reader
    store: Store
    clock: Clock
    ids: Ids
    settings: ServeSettings
    life: Life = msgspec.field(default_factory=Life)
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
