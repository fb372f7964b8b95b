"""Effects that are made at most once: one row each, and calls that may be sent again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onward.store import rows
from onward.store.port import Effect
from onward.store.postgres.link.wire import Wire
from onward.store.postgres.statements import UNSYNCED, Call, call
from onward.store.retention import keys_below


@dataclass(frozen=True, slots=True)
class EffectTable:
    """Reads and writes effects: `now_us` is the time to judge by, `is_alive` how to judge an owner."""

    now_us: Callable[[], int | None]
    lease_us: int
    is_alive: Callable[[str, bool], bool]

    async def begin(
        self, wire: Wire, key: str, token: str, owner: str, at_us: int, instead_of: str | None
    ) -> Effect | None:
        """Insert it, or put it in the place of the one that it is to replace; answers what is there."""
        begin = call(
            "effect_begin",
            key=key,
            token=token,
            owner=owner,
            at_us=at_us,
            instead_of=instead_of,
            now_us=self.now_us(),
            lease_us=self.lease_us,
        )
        _, found = await wire.run(begin, self._find(key))
        return rows.effect_of(found[0], self.is_alive) if found else None

    async def finish(self, wire: Wire, key: str, token: str, result: bytes, at_us: int) -> bool:
        """Whether it is the caller's: finished now, or before when the reply was lost."""
        finish = call("effect_finish", key=key, token=token, result=result, at_us=at_us)
        _, found = await wire.run(finish, self._find(key))
        return bool(found) and rows.effect_of(found[0], self.is_alive).token == token

    async def renew(self, wire: Wire, key: str, token: str, is_at_it: bool) -> bool:
        """Move the end of its time away, or have it now."""
        now_us, lease_us = (self.now_us(), self.lease_us) if is_at_it else (0, 0)
        renew = call("effect_renew", key=key, token=token, now_us=now_us, lease_us=lease_us)
        _, found = await wire.run(UNSYNCED, renew)
        return bool(found)

    async def forget(self, wire: Wire, key: str, token: str) -> None:
        """Delete it."""
        await wire.run(call("effect_forget", key=key, token=token))

    async def find(self, wire: Wire, key: str) -> Effect | None:
        """The effect of this key."""
        (found,) = await wire.run(self._find(key))
        return rows.effect_of(found[0], self.is_alive) if found else None

    async def read(self, wire: Wire, under: str, limit: int) -> list[Effect]:
        """The effects below a key."""
        first, behind = keys_below(under)
        read = call("effect_read", first=first, behind=behind, limit=limit, now_us=self.now_us())
        (found,) = await wire.run(read)
        return [rows.effect_of(columns, self.is_alive) for columns in found]

    def _find(self, key: str) -> Call:
        return call("effect_find", key=key, now_us=self.now_us())
