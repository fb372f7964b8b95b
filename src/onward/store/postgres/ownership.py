"""Who this process is to others at the database, what it holds there, and which owners are alive."""

from __future__ import annotations

from collections.abc import Callable

from onward.clock import SystemIds
from onward.errors import InvalidInput
from onward.host import HostIdentity, host_identity, is_process_gone
from onward.store.holdings import Holdings
from onward.store.owner import owner_name, owner_proof


class Ownership(Holdings):
    """This process as an owner."""

    def __init__(self, now_us: Callable[[], int | None], lease_us: int) -> None:
        # The nonce tells the stores of one process apart.
        super().__init__(now_us, lease_us, owner_name(f"{SystemIds().unique()}/{host_identity().text()}"))

    def is_alive(self, owner: str, is_expired: bool) -> bool:
        """Whether an owner, this process or another, may still be at work."""
        if is_expired or owner == self.owner:
            return not is_expired
        return is_owner_alive(owner, is_expired=is_expired)


def is_owner_alive(owner: str, *, is_expired: bool) -> bool:
    """Whether another process may still be at work: its lease is good, and nothing shows that it is gone."""
    if is_expired:
        return False
    try:
        identity = HostIdentity.parse(owner_proof(owner).partition("/")[2])
    except InvalidInput:
        return True  # nothing can be seen of it, so its time must run out
    return is_process_gone(identity) is not True
