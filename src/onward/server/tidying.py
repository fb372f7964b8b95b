"""Removes ended sessions and codes, and old rows of the audit.

Every server does this, a little at a time, so that no sweep delays a request; several servers on one database
do not interfere.
"""

from __future__ import annotations

import logging

from onward.errors import StoreError
from onward.server.context import Context

log = logging.getLogger("onward.server")

DAY_US = 86_400_000_000
OVER_US = DAY_US
"""How long a session or a code is kept after its end."""
AT_ONCE = 500
EVERY_S, BEHIND_S = 3_600.0, 5.0


async def keep_tidy(context: Context) -> None:
    """Sweep now and every hour until the server drains; sooner while there is more to remove."""
    draining = context.life.draining
    while not draining.is_set():
        try:
            is_more = await sweep(context)
        except StoreError as error:  # whatever else needs the database says so
            log.warning("old sessions and audit rows are removed later: %s", error)
            is_more = False
        await context.clock.wait_s(BEHIND_S if is_more else EVERY_S, draining)


async def sweep(context: Context) -> bool:
    """Remove at most AT_ONCE of each; returns whether there may be more."""
    store, now_us, days = context.store, context.clock.now_us(), context.settings.audit_days
    over = await store.principals.tidy(before_us=now_us - OVER_US, limit=AT_ONCE)
    old = await store.audit.tidy(before_us=now_us - days * DAY_US, limit=AT_ONCE) if days else 0
    return AT_ONCE in (over, old)
