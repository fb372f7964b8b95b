"""Whether the owner of a run lives, as far as that can be seen from here."""

from __future__ import annotations

from onward.errors import InvalidInput
from onward.host import HostIdentity, is_process_gone
from onward.store.owner import owner_proof


def is_owner_alive(owner: str, *, is_expired: bool) -> bool:
    """Whether a process may still be at work: its lease is good, and nothing shows that it is gone."""
    if is_expired:
        return False
    try:
        identity = HostIdentity.parse(owner_proof(owner).partition("/")[2])
    except InvalidInput:
        return True  # nothing can be seen of it, so its time must run out
    return is_process_gone(identity) is not True
