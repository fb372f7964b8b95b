"""Which database a run is in, for what lies outside of it."""

from __future__ import annotations

import msgspec
from blake3 import blake3

SHORT = 8


class Identity(msgspec.Struct, frozen=True):
    """A database, told from every other one: also from a copy of it under another name.

    Directories of runs that were made up to `unmarked_until_us` may not say whose they are: that is from
    before databases had an identity.
    """

    name: str
    unmarked_until_us: int = 0

    @property
    def short(self) -> str:
        """The identity as a part of a file's name."""
        return blake3(self.name.encode()).hexdigest()[:SHORT]
