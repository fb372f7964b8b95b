"""A write as one of a group that shares a transaction."""

from __future__ import annotations

from onward.model.run import Frozen
from onward.store.port.stored import Write


class Member(Frozen, frozen=True):
    """A write in a group. `held` is the owner and token it is made under; None makes a new run."""

    write: Write
    held: tuple[str | None, int] | None
    append_id: str | None = None
