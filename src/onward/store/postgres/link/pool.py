"""Connections to share, and the one way to deal with those that break: do the same again on another.

A connection to a server that has become read-only counts as broken, because another server may be the
primary now. A server that was never seen writable is another matter: then the address is wrong, and waiting
does not help.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from onward.errors import StoreError, StoreUnavailable
from onward.store.postgres.link.connection import connect
from onward.store.postgres.link.failure import READ_ONLY, YIELDED, ConnectionLost, ServerError, translate
from onward.store.postgres.link.server import IS_WRITABLE, Server
from onward.store.postgres.link.unreachable import reason
from onward.store.postgres.link.wire import Wire

T = TypeVar("T")
RETRY_S_FIRST, RETRY_S_MAX = 0.02, 1.0
TRIES_MAX = 5


class Pool:
    """Up to `size` connections to a server, opened when they are needed."""

    def __init__(self, server: Server, size: int) -> None:
        self._server, self._place = server, server.address.place
        self._room = asyncio.Semaphore(size)
        self._idle: list[Wire] = []
        self._lent: set[Wire] = set()
        self._left: set[Wire] = set()
        self._is_closed = False
        server.connected.append(self)

    async def open(self) -> None:
        """Make sure that there is a server, without waiting for one to come."""
        self._idle.append(await self._open(is_to_write=False))

    async def use(self, work: Callable[[Wire], Awaitable[T]]) -> T:
        """What `work` does with a connection to itself; a transaction that it leaves open is undone.

        When the connection breaks, when the server prefers another transaction to ours or has become
        read-only, all of `work` is done again: it must be such that doing it twice is as good as once.
        """
        is_to_write = False
        async with self._room:
            for tries_left in reversed(range(TRIES_MAX)):
                wire = await self._take(is_to_write=is_to_write)
                try:
                    return await work(wire)
                except ConnectionLost as lost:
                    if not tries_left:
                        raise self._unavailable(lost) from lost
                except ServerError as error:
                    is_to_write = error.sqlstate == READ_ONLY
                    if is_to_write:
                        self._server.leave()
                    may_pass = error.sqlstate in YIELDED or self._is_outage(error)
                    if not tries_left or not may_pass:
                        raise self._translated(error) from error
                finally:
                    await self._give_back(wire)
        raise AssertionError("the last try returns or raises")

    def leave(self) -> None:
        """Hang up on the server, as soon as what is under way has ended."""
        self._left |= self._lent
        self._hang_up(self._idle)

    def close(self) -> None:
        """Hang up, also on those who still talk."""
        self._is_closed = True
        self._hang_up(self._idle)
        for wire in self._lent:
            wire.close()

    def _hang_up(self, wires: list[Wire]) -> None:
        for wire in wires:
            wire.close()
        wires.clear()

    async def _take(self, *, is_to_write: bool) -> Wire:
        # One that is idle may lead to the same read-only server.
        is_any_good = self._idle and not is_to_write
        wire = self._idle.pop() if is_any_good else await self._connect(is_to_write=is_to_write)
        if not wire.is_usable:
            wire.close()
            return await self._take(is_to_write=is_to_write)
        self._lent.add(wire)
        return wire

    async def _give_back(self, wire: Wire) -> None:
        self._lent.discard(wire)
        try:
            await wire.roll_back()
        except (ConnectionLost, ServerError) as error:
            wire.close(str(error))  # with the connection, its transaction is undone as well
        if wire.is_usable and not self._is_closed and wire not in self._left:
            self._idle.append(wire)
        else:
            wire.close()
        self._left.discard(wire)

    async def _connect(self, *, is_to_write: bool) -> Wire:
        """A new connection, waiting a while for a server that is being restarted, or can be written."""
        failure: StoreUnavailable | None = None
        retry_s = RETRY_S_FIRST
        try:
            async with asyncio.timeout(self._server.patience_s):
                while not self._is_closed:
                    try:
                        return await self._open(is_to_write=is_to_write)
                    except StoreUnavailable as error:
                        failure = error
                    await asyncio.sleep(retry_s)
                    retry_s = min(2 * retry_s, RETRY_S_MAX)
        except TimeoutError:
            pass
        if self._is_closed:
            raise StoreUnavailable(f"the store at {self._place} was closed.")
        raise failure or self._unavailable("it does not answer")

    async def _open(self, *, is_to_write: bool) -> Wire:
        """A new connection, or StoreUnavailable; asks whether it can be written, unless that is known."""
        wire = Wire(await connect(self._server.address))
        if self._server.was_writable and not is_to_write:
            return wire
        try:
            (((is_writable,),),) = await wire.run(IS_WRITABLE)
        except (ConnectionLost, ServerError) as error:
            wire.close(str(error))
            raise self._unavailable(error) from error
        self._server.was_writable |= is_writable
        if is_to_write and not is_writable:
            wire.close()
            raise self._translated(ServerError(READ_ONLY, "new connections are read-only too"))
        return wire

    def _is_outage(self, error: ServerError) -> bool:
        return error.sqlstate == READ_ONLY and self._server.was_writable

    def _translated(self, error: ServerError) -> StoreError:
        failure = translate(self._place, error.sqlstate, str(error))
        return StoreUnavailable(str(failure)) if self._is_outage(error) else failure

    def _unavailable(self, why: object) -> StoreUnavailable:
        return StoreUnavailable(f"the connection to {self._place} failed: {reason(why)}; try again.")
