"""Connections to share, and the one way to deal with those that break: do the same again on another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from onward.errors import StoreUnavailable
from onward.store.postgres.connection import Address, connect
from onward.store.postgres.failure import YIELDED, ConnectionLost, ServerError, translate
from onward.store.postgres.statements import ROLLBACK
from onward.store.postgres.unreachable import reason
from onward.store.postgres.wire import Wire

T = TypeVar("T")
RETRY_S_FIRST, RETRY_S_MAX = 0.02, 1.0
TRIES_MAX = 5


class Pool:
    """Up to `size` connections with the same settings, opened when they are needed.

    `patience_s` is how long to wait for a server that is away.
    """

    def __init__(
        self, address: Address, settings: Mapping[str, str], size: int, *, patience_s: float
    ) -> None:
        self._address, self._settings, self._patience_s = address, settings, patience_s
        self._room = asyncio.Semaphore(size)
        self._idle: list[Wire] = []
        self._lent: set[Wire] = set()
        self._is_closed = False

    async def open(self) -> None:
        """Make sure that there is a server, without waiting for one to come."""
        self._idle.append(Wire(await connect(self._address, self._settings)))

    async def use(self, work: Callable[[Wire], Awaitable[T]]) -> T:
        """What `work` does with a connection to itself; a transaction that it leaves open is undone.

        When the connection breaks, or the server prefers another transaction to ours, all of `work` is
        done again: it must be such that doing it twice is as good as once.
        """
        async with self._room:
            for tries_left in reversed(range(TRIES_MAX)):
                wire = await self._take()
                try:
                    return await work(wire)
                except ConnectionLost as lost:
                    if not tries_left:
                        raise self._unavailable(lost) from lost
                except ServerError as error:
                    if not tries_left or error.sqlstate not in YIELDED:
                        raise translate(self._address.place, error.sqlstate, str(error)) from error
                finally:
                    await self._give_back(wire)
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        """Hang up, also on those who still talk."""
        self._is_closed = True
        for wire in (*self._idle, *self._lent):
            wire.close()
        self._idle.clear()

    async def _take(self) -> Wire:
        wire = self._idle.pop() if self._idle else await self._connect()
        if not wire.is_usable:
            wire.close()
            return await self._take()
        self._lent.add(wire)
        return wire

    async def _give_back(self, wire: Wire) -> None:
        self._lent.discard(wire)
        try:
            if wire.is_in_transaction:
                await wire.run(ROLLBACK)
        except (ConnectionLost, ServerError) as error:
            wire.close(str(error))  # with the connection, its transaction is undone as well
        if wire.is_usable and not self._is_closed:
            self._idle.append(wire)
        else:
            wire.close()

    async def _connect(self) -> Wire:
        """A new connection, waiting a while for a server that is being restarted."""
        failure: StoreUnavailable | None = None
        retry_s = RETRY_S_FIRST
        try:
            async with asyncio.timeout(self._patience_s):
                while not self._is_closed:
                    try:
                        return Wire(await connect(self._address, self._settings))
                    except StoreUnavailable as error:
                        failure = error
                    await asyncio.sleep(retry_s)
                    retry_s = min(2 * retry_s, RETRY_S_MAX)
        except TimeoutError:
            pass
        if self._is_closed:
            raise StoreUnavailable(f"the store at {self._address.place} was closed.")
        raise failure or self._unavailable("it does not answer")

    def _unavailable(self, why: object) -> StoreUnavailable:
        return StoreUnavailable(f"the connection to {self._address.place} failed: {reason(why)}; try again.")
