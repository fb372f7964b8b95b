"""Effects in memory: what `Effects` promises, in as few words as possible."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from onward.store.memory.state import Ownership
from onward.store.port.effects import Effect

LEASE_S = 60.0


class MemoryEffects:
    """The effects of a database, as one process sees them."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership, self._state = ownership, ownership.state

    async def begin(self, key: str, token: str, *, at_us: int, instead_of: str | None = None) -> Effect:
        there = self._find(key)
        if there is None or (there.token == instead_of and there.result is None):
            self._state.effects[key] = Effect(key, token, self._ownership.owner, True, at_us), self._end_us()
        found = self._find(key)
        assert found is not None
        return found

    async def finish(self, key: str, token: str, result: bytes, *, at_us: int) -> bool:
        there = self._find(key)
        if there is None or there.token != token:
            return False
        if there.result is None:
            self._state.effects[key] = replace(there, result=result, finished_at_us=at_us), 0
        return True

    async def renew(self, key: str, token: str, *, is_at_it: bool = True) -> bool:
        there = self._find(key)
        if there is None or there.token != token or there.result is not None:
            return False
        self._state.effects[key] = there, self._end_us() if is_at_it else 0
        return True

    async def forget(self, key: str, token: str) -> None:
        there = self._state.effects.get(key)
        if there is not None and there[0].token == token:
            del self._state.effects[key]

    async def find(self, key: str) -> Effect | None:
        return self._find(key)

    async def read(self, under: str, *, limit: int) -> Sequence[Effect]:
        keys = sorted(key for key in self._state.effects if key.startswith(f"{under}/"))
        found = [self._find(key) for key in keys[:limit]]
        return [effect for effect in found if effect is not None]

    def _find(self, key: str) -> Effect | None:
        if key not in self._state.effects:
            return None
        there, until_us = self._state.effects[key]
        is_alive = there.owner in self._state.alive and until_us > self._state.now_us()
        return replace(there, is_alive=is_alive)

    def _end_us(self) -> int:
        return self._state.now_us() + int((self._ownership.lease_s or LEASE_S) * 1_000_000)
