"""Leases, workers and effects in PostgreSQL: time limits by the server's clock.

They are renewed over their own connection. `PostgresOwnership` is who this process is to others at the
database, what it holds there, and which owners are alive. An effect is one row, and calls about it may be
sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from onward.clock import SystemIds
from onward.errors import InvalidInput
from onward.host import HostIdentity, host_identity, is_process_gone
from onward.model.row import Offer, RegisteredWorker
from onward.store import rows
from onward.store.owner import Holdings, owner_name, owner_proof
from onward.store.port.leases import Effect, Lease
from onward.store.postgres.pool import Listener, Pool, Rows
from onward.store.postgres.statements import UNSYNCED, Call, call, numbers, texts


class PostgresOwnership(Holdings):
    """This process as an owner."""

    def __init__(self, now_us: Callable[[], int | None], lease_us: int) -> None:
        # The nonce tells the stores of one process apart.
        super().__init__(now_us, lease_us, owner_name(f"{SystemIds().unique()}/{host_identity().text()}"))

    def is_alive(self, owner: str, is_expired: bool) -> bool:
        """Whether an owner, this process or another, may still be at work."""
        if is_expired or owner == self.owner:
            return not is_expired
        return is_owner_alive(owner, is_expired=is_expired)


def is_owner_alive(owner: str, *, is_expired: bool) -> bool:
    """Whether another process may still be at work: its lease is good, and nothing shows that it is gone."""
    if is_expired:
        return False
    try:
        identity = HostIdentity.parse(owner_proof(owner).partition("/")[2])
    except InvalidInput:
        return True  # nothing can be seen of it, so its time must run out
    return is_process_gone(identity) is not True


Listening = Callable[[Callable[[str], None]], Listener]
"""Makes what hears of requests to runs; it is called with the run of each."""


class PostgresLeases:
    """The leases of this process at one database."""

    def __init__(
        self, renewing: Pool, ownership: PostgresOwnership, lease_s: float, listening: Listening
    ) -> None:
        self._renewing, self._ownership, self._lease_s = renewing, ownership, lease_s
        self._listening, self._news = listening, asyncio.Event()
        self._listener: Listener | None = None

    @property
    def owner(self) -> str:
        return self._ownership.owner

    @property
    def lease_s(self) -> float | None:
        return self._lease_s

    @property
    def heartbeat_s(self) -> float:
        return self._lease_s / 3

    @property
    def news(self) -> asyncio.Event:
        if self._listener is None:  # a process that holds nothing needs no connection for it
            self._listener = self._listening(self._hear)
            self._listener.begin()
        return self._news

    def _hear(self, run_id: str) -> None:
        if not run_id or run_id in self._ownership.runs:
            self._news.set()

    async def stop_listening(self) -> None:
        """Hear nothing any more of what others write."""
        if self._listener is not None:
            await self._listener.stop()
            self._listener = None

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        return await self._renew(leases, self._ownership.now_us(), self._ownership.lease_us)

    async def end(self) -> None:
        """End the leases of all runs that this process holds: no other has to wait for their time limit."""
        held = self._ownership.runs.items()
        await self._renew([Lease(run_id, self.owner, token) for run_id, token in held], 0, 0)

    async def _renew(self, leases: Sequence[Lease], now_us: int | None, lease_us: int) -> Mapping[str, int]:
        if not leases:
            return {}
        renewal = call(
            "lease_renew",
            id=texts([lease.run_id for lease in leases]),
            owner=texts([lease.owner for lease in leases]),
            token=numbers([lease.token for lease in leases]),
            now_us=now_us,
            lease_us=lease_us,
        )
        # A renewal that a power cut undoes is a lease that ends sooner.
        _, heads = await self._renewing.use(lambda wire: wire.run(UNSYNCED, renewal))
        return dict(heads)


class PostgresWorkers:
    """The workers at one database; each is alive as long as it renews its row, by the server's clock."""

    def __init__(self, connections: Pool, ownership: PostgresOwnership) -> None:
        self._connections, self._ownership = connections, ownership

    @property
    def renew_s(self) -> float:
        return self._ownership.lease_us / 3_000_000

    async def register(self, offer: Offer) -> None:
        owner = self._ownership
        values = {"owner": owner.owner, "now_us": owner.now_us(), "lease_us": owner.lease_us}
        put = call("worker_put", **values, **rows.worker_values(offer))
        self._ownership.is_registered = True  # first: if the reply is lost, there may be a row
        await self._connections.use(lambda wire: wire.run(UNSYNCED, put))

    async def leave(self) -> None:
        leave = call("worker_leave", owner=self._ownership.owner)
        await self._connections.use(lambda wire: wire.run(UNSYNCED, leave))
        self._ownership.is_registered = False

    async def end(self) -> None:
        """Leave, if others know this process as a worker."""
        if self._ownership.is_registered:
            await self.leave()

    async def read(self) -> Sequence[RegisteredWorker]:
        return rows.sound(
            await self._rows(), lambda columns: rows.worker_of(columns, self._ownership.is_alive)
        )

    async def tidy(self) -> int:
        dead = rows.dead_workers(await self._rows(), self._ownership.is_alive)
        removals = [call("worker_remove", owner=owner, lease_until_us=until_us) for owner, until_us in dead]
        removed = await self._connections.use(lambda wire: wire.run(*removals)) if removals else ()
        return sum(map(len, removed))

    async def _rows(self) -> Rows:
        read = call("worker_read", now_us=self._ownership.now_us())
        (found,) = await self._connections.use(lambda wire: wire.run(read))
        return found


class PostgresEffects:
    """The effects of one PostgreSQL database."""

    def __init__(self, renewing: Pool, connections: Pool, ownership: PostgresOwnership) -> None:
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
