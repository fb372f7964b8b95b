"""A write as one of a group that shares a transaction."""

from __future__ import annotations

from typing import NamedTuple

from onward.store.port.stored import Write


class Member(NamedTuple):
    """A write in a group. `held` is the owner and token it is made under; None makes a new run."""

    write: Write
    held: tuple[str | None, int] | None
    append_id: str | None = None
