"""`Prefer: wait=10`: reply when the run is neither queued nor running, or when the time has passed.

The request is committed before the wait begins. All waiting requests share the polling of the hub.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING

from onward.errors import InvalidInput, OnwardError

if TYPE_CHECKING:
    from onward.server.context import Context
    from onward.server.feeds.streams import Streams

WAIT_S_MAX = 30
_WAIT = re.compile(r"wait=([0-9]{1,3})")
log = logging.getLogger("onward.server")


def wait_of(prefer: str | None) -> int | None:
    """How many seconds a client wants to wait; its other preferences are ignored."""
    for word in (prefer or "").split(","):
        found = _WAIT.fullmatch(word.strip())
        if found is not None:
            seconds = int(found[1])
            if seconds > WAIT_S_MAX:
                raise InvalidInput(f"Prefer: wait={seconds} is more than {WAIT_S_MAX} seconds.")
            return seconds
    return None


async def until_still(context: Context, run: str, seconds: float) -> None:
    """Return when the run is neither queued nor running, when time is over, or when the server stops.

    A server without streams has nothing that looks for changes, and does not wait.
    """
    streams: Streams | None = context.extra.get("streams")
    if streams is None:
        return
    waits = [
        asyncio.ensure_future(streams.hub.settled(run, within_s=seconds)),
        asyncio.ensure_future(context.life.draining.wait()),
    ]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
        ended = await asyncio.gather(*waits, return_exceptions=True)
    for error in ended:
        if isinstance(error, OnwardError):
            log.warning("run %s, which a client waits for, could not be read: %s", run, error)
