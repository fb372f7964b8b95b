"""Which database this is on a server."""

from __future__ import annotations

from onward.errors import StoreCorrupt
from onward.model.identity import Identity
from onward.store.postgres.link.wire import Wire
from onward.store.postgres.statements import call


async def read_identity(wire: Wire) -> Identity:
    """Its own, with the database's name: a copy on the same server is not the original."""
    (found,) = await wire.run(call("identity_get"))
    if not found:
        raise StoreCorrupt("the identity of the database is missing; restore the table `identity`.")
    return Identity(*found[0])
