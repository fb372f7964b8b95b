"""Effects that are made at most once: one row each, all inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import apsw

from onward.store import rows
from onward.store.port import Effect
from onward.store.retention import keys_below
from onward.store.sqlite.reading import one
from onward.store.sqlite.statements import QUERIES


@dataclass(frozen=True, slots=True)
class EffectTable:
    """Reads and writes effects: `now_us` is the time to judge by, `is_alive` how to judge an owner."""

    now_us: Callable[[], int | None]
    lease_us: int
    is_alive: Callable[[str, bool], bool]

    def begin(
        self, db: apsw.Connection, key: str, token: str, owner: str, at_us: int, instead_of: str | None
    ) -> Effect:
        """Insert it, or put it in the place of the one that it is to replace; answers what is there."""
        values = {"key": key, "token": token, "owner": owner, "at_us": at_us, "instead_of": instead_of}
        db.execute(QUERIES["effect_begin"], values | self._times())
        found = self.find(db, key)
        assert found is not None
        return found

    def finish(self, db: apsw.Connection, key: str, token: str, result: bytes, at_us: int) -> bool:
        """Whether it is the caller's: finished now, or before when the reply was lost."""
        values = {"key": key, "token": token, "result": result, "at_us": at_us}
        db.execute(QUERIES["effect_finish"], values)
        found = self.find(db, key)
        return found is not None and found.token == token

    def renew(self, db: apsw.Connection, key: str, token: str, is_at_it: bool) -> bool:
        """Move the end of its time away, or have it now."""
        times = self._times() if is_at_it else {"now_us": 0, "lease_us": 0}
        return one(db, "effect_renew", key=key, token=token, **times) is not None

    def forget(self, db: apsw.Connection, key: str, token: str) -> None:
        """Delete it."""
        db.execute(QUERIES["effect_forget"], {"key": key, "token": token})

    def find(self, db: apsw.Connection, key: str) -> Effect | None:
        """The effect of this key."""
        found = one(db, "effect_find", key=key, now_us=self.now_us())
        return None if found is None else rows.effect_of(found, self.is_alive)

    def read(self, db: apsw.Connection, under: str, limit: int) -> list[Effect]:
        """The effects below a key."""
        first, behind = keys_below(under)
        values = {"first": first, "behind": behind, "limit": limit, "now_us": self.now_us()}
        return [rows.effect_of(found, self.is_alive) for found in db.execute(QUERIES["effect_read"], values)]

    def _times(self) -> dict[str, int | None]:
        return {"now_us": self.now_us(), "lease_us": self.lease_us}
