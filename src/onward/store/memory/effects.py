"""Effects in memory: what `Effects` promises, in as few words as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onward.store.memory.state import State
from onward.store.port import Effect

LEASE_S = 60.0


@dataclass(frozen=True, slots=True)
class EffectTable:
    """The effects of a database, as the process `me` sees them."""

    state: State
    me: str
    lease_s: float | None

    def begin(self, key: str, token: str, at_us: int, instead_of: str | None) -> Effect:
        """The effect of this key: a new one, unless there is one that is not to be replaced."""
        there = self.find(key)
        if there is None or (there.token == instead_of and there.result is None):
            self.state.effects[key] = Effect(key, token, self.me, True, at_us), self._end_us()
        found = self.find(key)
        assert found is not None
        return found

    def finish(self, key: str, token: str, result: bytes, at_us: int) -> bool:
        """Remember a result; False if the effect is another's by now."""
        there = self.find(key)
        if there is None or there.token != token:
            return False
        if there.result is None:
            self.state.effects[key] = replace(there, result=result, finished_at_us=at_us), 0
        return True

    def renew(self, key: str, token: str, is_at_it: bool) -> bool:
        """Go on with an effect, or say that nobody is at it any more."""
        there = self.find(key)
        if there is None or there.token != token or there.result is not None:
            return False
        self.state.effects[key] = there, self._end_us() if is_at_it else 0
        return True

    def forget(self, key: str, token: str) -> None:
        """As if it had never begun."""
        there = self.state.effects.get(key)
        if there is not None and there[0].token == token:
            del self.state.effects[key]

    def find(self, key: str) -> Effect | None:
        """The effect of this key, and whether somebody is at it."""
        if key not in self.state.effects:
            return None
        there, until_us = self.state.effects[key]
        is_alive = there.owner in self.state.alive and until_us > self.state.now_us()
        return replace(there, is_alive=is_alive)

    def read(self, under: str, limit: int) -> Sequence[Effect]:
        """The effects below a key."""
        keys = sorted(key for key in self.state.effects if key.startswith(f"{under}/"))
        found = [self.find(key) for key in keys[:limit]]
        return [effect for effect in found if effect is not None]

    def _end_us(self) -> int:
        return self.state.now_us() + int((self.lease_s or LEASE_S) * 1_000_000)
