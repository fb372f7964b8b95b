"""Effects that happen at most once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Effect(msgspec.Struct, frozen=True):
    """An effect that was begun under `token`; `result` is there when it has finished.

    `is_alive` tells whether the process that began it can still be at it. Without a result and not alive, it
    is in doubt.
    """

    key: str
    token: str
    owner: str
    is_alive: bool
    begun_at_us: int
    finished_at_us: int | None = None
    result: bytes | None = None


class Effects(Protocol):
    """Effects that happen at most once.

    The token of a beginning is unique, so an old one is never taken for a new one, and every call can be
    repeated when its reply was lost.
    """

    async def begin(self, key: str, token: str, *, at_us: int, instead_of: str | None = None) -> Effect:
        """Begin it, unless it is there already; answers the one that is there then: ours has our token.

        One that was begun under the token `instead_of`, and has not finished, is begun again.
        """
        ...

    async def finish(self, key: str, token: str, result: bytes, *, at_us: int) -> bool:
        """Store what came of it; False if it is not the caller's any more, and then nothing is stored."""
        ...

    async def renew(self, key: str, token: str, *, is_at_it: bool = True) -> bool:
        """Say whether the caller is still at it; False if it is not the caller's any more."""
        ...

    async def forget(self, key: str, token: str) -> None:
        """As if it had never begun, if it is still the one with this token."""
        ...

    async def find(self, key: str) -> Effect | None:
        """The effect of this key, or None."""
        ...

    async def read(self, under: str, *, limit: int) -> Sequence[Effect]:
        """The effects whose keys begin with `under` and a slash, finished or not, by their keys."""
        ...
