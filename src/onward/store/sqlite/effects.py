"""Effects in SQLite: one row each, and one transaction for each call."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from onward.store import rows
from onward.store.port.effects import Effect
from onward.store.sqlite.file.transaction import Transactions
from onward.store.sqlite.ownership import Ownership
from onward.store.sqlite.reading import one
from onward.store.sqlite.statements import QUERIES


class SqliteEffects:
    """The effects of one SQLite file."""

    def __init__(self, database: Transactions, ownership: Ownership) -> None:
        self._database, self._ownership = database, ownership

    async def begin(self, key: str, token: str, *, at_us: int, instead_of: str | None = None) -> Effect:
        values = {"key": key, "token": token, "owner": self._ownership.announced_owner, "at_us": at_us}

        def begin(db: apsw.Connection) -> Effect:
            db.execute(QUERIES["effect_begin"], values | {"instead_of": instead_of} | self._times())
            found = self._find(db, key)
            assert found is not None
            return found

        found = await self._database.transact(begin)
        if found.token == token:
            self._ownership.effects[token] = key
        return found

    async def finish(self, key: str, token: str, result: bytes, *, at_us: int) -> bool:
        values = {"key": key, "token": token, "result": result, "at_us": at_us}

        def finish(db: apsw.Connection) -> bool:
            db.execute(QUERIES["effect_finish"], values)
            found = self._find(db, key)
            return found is not None and found.token == token  # now, or before when the reply was lost

        is_ours = await self._database.transact(finish)
        self._ownership.effects.pop(token, None)
        return is_ours

    async def renew(self, key: str, token: str, *, is_at_it: bool = True) -> bool:
        times = self._times() if is_at_it else {"now_us": 0, "lease_us": 0}
        return await self._database.transact(
            lambda db: one(db, "effect_renew", key=key, token=token, **times) is not None
        )

    async def forget(self, key: str, token: str) -> None:
        values = {"key": key, "token": token}
        await self._database.transact(lambda db: db.execute(QUERIES["effect_forget"], values))
        self._ownership.effects.pop(token, None)

    async def find(self, key: str) -> Effect | None:
        return await self._database.look(lambda db: self._find(db, key))

    async def read(self, under: str, *, limit: int) -> Sequence[Effect]:
        first, behind = rows.keys_below(under)
        values = {"first": first, "behind": behind, "limit": limit, "now_us": self._ownership.now_us()}
        return await self._database.look(
            lambda db: [self._effect(columns) for columns in db.execute(QUERIES["effect_read"], values)]
        )

    def _find(self, db: apsw.Connection, key: str) -> Effect | None:
        found = one(db, "effect_find", key=key, now_us=self._ownership.now_us())
        return None if found is None else self._effect(found)

    def _effect(self, columns: Sequence[object]) -> Effect:
        return rows.effect_of(columns, self._ownership.is_alive)

    def _times(self) -> dict[str, int | None]:
        return {"now_us": self._ownership.now_us(), "lease_us": self._ownership.lease_us}
