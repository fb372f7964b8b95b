"""Effects in PostgreSQL: one row each, and calls that may be sent again."""

from __future__ import annotations

from collections.abc import Sequence

from onward.store import rows
from onward.store.port.effects import Effect
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.link.wire import Rows
from onward.store.postgres.ownership import Ownership
from onward.store.postgres.statements import UNSYNCED, Call, call


class PostgresEffects:
    """The effects of one PostgreSQL database."""

    def __init__(self, renewing: Pool, connections: Pool, ownership: Ownership) -> None:
        self._renewing, self._connections, self._ownership = renewing, connections, ownership

    async def begin(self, key: str, token: str, *, at_us: int, instead_of: str | None = None) -> Effect:
        found: Effect | None = None
        while found is None:  # another process forgot it just after it was in our way
            begin = call(
                "effect_begin",
                key=key,
                token=token,
                owner=self._ownership.owner,
                at_us=at_us,
                instead_of=instead_of,
                now_us=self._ownership.now_us(),
                lease_us=self._ownership.lease_us,
            )
            found = await self._then_find(key, begin)
        if found.token == token:
            self._ownership.effects[token] = key
        return found

    async def finish(self, key: str, token: str, result: bytes, *, at_us: int) -> bool:
        finish = call("effect_finish", key=key, token=token, result=result, at_us=at_us)
        found = await self._then_find(key, finish)
        self._ownership.effects.pop(token, None)
        return found is not None and found.token == token  # now, or before when the reply was lost

    async def renew(self, key: str, token: str, *, is_at_it: bool = True) -> bool:
        now_us, lease_us = (self._ownership.now_us(), self._ownership.lease_us) if is_at_it else (0, 0)
        renew = call("effect_renew", key=key, token=token, now_us=now_us, lease_us=lease_us)
        _, found = await self._renewing.use(lambda wire: wire.run(UNSYNCED, renew))
        return bool(found)

    async def end(self) -> None:
        """Say of all effects that this process has begun that it is not at them any more."""
        for token, key in tuple(self._ownership.effects.items()):
            await self.renew(key, token, is_at_it=False)

    async def forget(self, key: str, token: str) -> None:
        forget = call("effect_forget", key=key, token=token)
        await self._connections.use(lambda wire: wire.run(forget))
        self._ownership.effects.pop(token, None)

    async def find(self, key: str) -> Effect | None:
        return await self._then_find(key)

    async def read(self, under: str, *, limit: int) -> Sequence[Effect]:
        first, behind = rows.keys_below(under)
        read = call("effect_read", first=first, behind=behind, limit=limit, now_us=self._ownership.now_us())
        (found,) = await self._connections.use(lambda wire: wire.run(read))
        return self._effects(found)

    async def _then_find(self, key: str, *before: Call) -> Effect | None:
        """Send something and the question what is there then, in one trip."""
        find = call("effect_find", key=key, now_us=self._ownership.now_us())
        *_, found = await self._connections.use(lambda wire: wire.run(*before, find))
        return next(iter(self._effects(found)), None)

    def _effects(self, found: Rows) -> Sequence[Effect]:
        return [rows.effect_of(columns, self._ownership.is_alive) for columns in found]
