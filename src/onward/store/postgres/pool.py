"""Connections to share, and the one way to deal with those that break: do the same again on another.

A connection to a server that has become read-only counts as broken, because another server may be the
primary now. A server that was never seen writable is another matter: then the address is wrong, and waiting
does not help.

A `Wire` is a conversation with the server: several prepared statements at once, in one trip. psycopg
connects; after that its libpq layer is used directly, because its cursors spend more time on a statement than
the server does. What is sent together is one transaction unless it says BEGIN: if one statement fails, the
rest is skipped and nothing has happened. Behind a pooler a transaction may be in any session of the server.
So there every transaction begins with the settings it needs, and no statement is prepared for later: slower,
and just as safe.

A `Server` is what all connections of one store know about the server behind an address. At a switchover
another server takes the place of the primary. The old one may stay up, read-only, and keep its connections:
whoever holds one would read what is out of date and write nothing, while new connections reach the new
primary. So the first connection that is refused as read-only makes all of them leave.

A `Listener` is told that a run may be due, so that no worker has to wait for the next look. The notice
carries nothing and promises nothing: a lost connection loses notices, and looking continues. Behind a pooler
there are none: the session that listens would be anybody's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
import psycopg
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from onward.errors import StoreError, StoreUnavailable
from onward.store.postgres.connection import (
    READ_ONLY,
    SESSION,
    SETTINGS,
    YIELDED,
    Address,
    ConnectionLost,
    ServerError,
    Session,
    connect,
    failure_of,
    reason,
    translate,
)
from onward.store.postgres.statements import ROLLBACK, Call, Statement, load, parse, texts

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


# Longer than the server's own limits: by now it must have answered, or it never will.
ANSWER_S_MAX = 90.0
BINARY = 1
ABORTED, SYNC = ExecStatus.PIPELINE_ABORTED, ExecStatus.PIPELINE_SYNC
DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
FOR_TRANSACTION = SETTINGS.call(names=texts(list(SESSION)), values=texts(list(SESSION.values())), pid=0)
Rows = list[tuple[Any, ...]]


class Wire:
    """One connection. Only one caller at a time may use it; a caller that breaks off ends it."""

    def __init__(self, session: Session, answer_s: float = ANSWER_S_MAX) -> None:
        self._session, self._answer_s = session, answer_s  # collected, it would complain about pgconn
        self._pg, self._socket = session.pgconn, session.pgconn.socket
        self.is_pooled = session.is_pooled
        self._loop = asyncio.get_running_loop()
        self._prepared: set[bytes] = set()
        self._woken: asyncio.Future[None] | None = None
        self._waits_since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._lost = ""
        self._pg.enter_pipeline_mode()
        self._loop.add_reader(self._socket, self._on_readable)

    @property
    def is_usable(self) -> bool:
        """Whether there is any use in sending something; a dead peer is noticed while idle, too."""
        return not self._lost

    @property
    def is_in_transaction(self) -> bool:
        """Whether a BEGIN still waits for its end."""
        return self.is_usable and self._pg.transaction_status != TransactionStatus.IDLE

    async def run(self, *calls: Call) -> Sequence[Rows]:
        """The rows of each call. ServerError: nothing happened. ConnectionLost: nobody knows."""
        if self._lost:
            raise ConnectionLost(self._lost)
        try:
            sent = self._send_pooled(calls) if self.is_pooled else self._send(calls)
            while self._pg.flush():
                await self._wait_writable()
            answers, failure = await self._receive(sent)
        except psycopg.OperationalError as error:
            self.close(str(error))
            raise ConnectionLost(self._lost) from error
        except BaseException as error:
            self.close(str(error) or "the exchange was interrupted")
            raise
        if failure is not None:
            raise failure
        return answers

    async def roll_back(self) -> None:
        """Undo a transaction that is open; after an error it takes no more statements."""
        if self.is_in_transaction:
            await self.run(ROLLBACK)

    def close(self, why: str = "the store is closed") -> None:
        """Hang up. Whoever waits for an answer has lost the connection."""
        self._stop_reading(why)
        self._pg.finish()

    def _send(self, calls: Sequence[Call]) -> Sequence[Statement | None]:
        """Hand everything to libpq; answers what each result will be of: a preparation, or a call (None)."""
        sent: list[Statement | None] = []
        asked: set[bytes] = set()
        for statement, values in calls:
            if statement.name not in self._prepared and statement.name not in asked:
                self._pg.send_prepare(statement.name, statement.sql)
                asked.add(statement.name)
                sent.append(statement)
            self._pg.send_query_prepared(statement.name, values, [BINARY] * len(values), BINARY)
            sent.append(None)
        self._pg.pipeline_sync()
        return sent

    def _send_pooled(self, calls: Sequence[Call]) -> Sequence[Statement | None]:
        """The same, with the settings at the start of a transaction; their result is skipped."""
        sent: list[Statement | None] = [None] * len(calls)
        if calls and not self.is_in_transaction:
            at = 1 if calls[0].statement.sql.startswith(b"BEGIN") else 0
            calls = [*calls[:at], FOR_TRANSACTION, *calls[at:]]
            sent.insert(at, SETTINGS)
        for statement, values in calls:
            self._pg.send_query_params(statement.sql, values, None, [BINARY] * len(values), BINARY)
        self._pg.pipeline_sync()
        return sent

    async def _receive(self, sent: Sequence[Statement | None]) -> tuple[Sequence[Rows], Exception | None]:
        answers: list[Rows] = []
        failure: Exception | None = None
        for prepared in sent:
            result = await self._result()
            status = result.status
            if status == ABORTED:
                continue
            if status not in DONE:
                failure = failure or self._failure(result)
            elif prepared is not None:
                self._prepared.add(prepared.name)
            else:
                answers.append(load(result))
        # Committing can fail like a statement; success is what comes behind it.
        while (end := await self._result()).status != SYNC:
            failure = failure or self._failure(end)
        return answers, failure

    async def _result(self) -> PGresult:
        while True:
            while self._pg.is_busy():
                if self._lost:
                    raise ConnectionLost(self._lost)
                await self._wait()
            # None stands between the results of two statements; behind the last one it would come for ever.
            if (result := self._pg.get_result()) is not None:
                return result
            if self._pg.status == ConnStatus.BAD:
                raise ConnectionLost(self._lost or "the connection ended")

    def _failure(self, result: PGresult) -> Exception:
        failure = failure_of(result)
        if isinstance(failure, ConnectionLost) or self._pg.status == ConnStatus.BAD:
            raise ConnectionLost(str(failure))
        return failure

    async def _wait(self) -> None:
        self._woken, self._waits_since_s = self._loop.create_future(), self._loop.time()
        if self._timer is None:  # one for many answers: to set and cancel it each time is dear
            self._timer = self._loop.call_later(self._answer_s, self._on_time)
        try:
            await self._woken
        finally:
            self._woken = None

    async def _wait_writable(self) -> None:
        self._loop.add_writer(self._socket, self._wake)
        try:
            await self._wait()
        finally:
            self._loop.remove_writer(self._socket)
        if self._lost:
            raise ConnectionLost(self._lost)

    def _on_readable(self) -> None:
        try:
            self._pg.consume_input()
        except psycopg.OperationalError as error:
            # What arrived before the end can still be taken from libpq.
            self._stop_reading(str(error))
            return
        if self._woken is not None and not self._pg.is_busy():
            self._wake()

    def _on_time(self) -> None:
        self._timer = None
        if self._woken is None:
            return
        left_s = self._waits_since_s + self._answer_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._on_time)
        else:
            self._stop_reading(f"no answer within {self._answer_s:.0f} s")

    def _stop_reading(self, why: str) -> None:
        if not self._lost:
            self._lost = " ".join(why.split()) or "no reason was given"
            self._loop.remove_reader(self._socket)
            if self._timer is not None:
                self._timer.cancel()
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


IS_WRITABLE = Call(parse("is_writable", "SELECT current_setting('transaction_read_only') = 'off'"), ())


class Connected(Protocol):
    """Holds connections to a server."""

    def leave(self) -> None:
        """Hang up, each connection when nobody uses it; the next use connects anew."""


class Server(msgspec.Struct):
    """Where a store connects to. `patience_s` is how long to wait for a server that went away."""

    address: Address
    patience_s: float
    was_writable: bool = False
    """Whether it could be written at some time: then a read-only server is an outage, which may pass."""
    connected: list[Connected] = msgspec.field(default_factory=list)

    def leave(self) -> None:
        """Give up all connections that are open now."""
        for one in tuple(self.connected):
            one.leave()


LISTEN_RETRY_S = 1.0


DUE, CONTROL = b"LISTEN onward_due", b"LISTEN onward_control"


class Listener:
    """Calls `on_notice` with every notice of a channel while it is started, reconnecting when it must.

    A notice may have been missed whenever it is connected anew: it is then called with an empty text.
    """

    def __init__(self, server: Server, listen: bytes, on_notice: Callable[[str], None]) -> None:
        self._server, self._statement, self._on_notice = server, listen, on_notice
        self._task: asyncio.Task[None] | None = None
        self._is_clear = asyncio.Event()

    async def start(self) -> None:
        """Return when notices are heard, or when it is clear that they are not, for now."""
        self.begin()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_clear.wait(), LISTEN_RETRY_S)

    def begin(self) -> None:
        """Start, and do not wait for it."""
        self._task = asyncio.create_task(self._listen())
        self._server.connected.append(self)

    async def stop(self) -> None:
        """Hear nothing any more."""
        if self._task is not None:
            self._server.connected.remove(self)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def leave(self) -> None:
        """Listen to whatever server the address leads to now."""
        if self._task is not None:
            self._task.cancel()
            self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while True:
            with contextlib.suppress(StoreError, psycopg.Error):  # gone; looking goes on meanwhile
                async with await connect(self._server.address) as session:
                    if session.is_pooled:
                        self._is_clear.set()
                        return
                    await session.execute(self._statement)
                    self._is_clear.set()
                    self._on_notice("")  # what came before this was not heard
                    async for notice in session.notifies():
                        self._on_notice(notice.payload)
            await asyncio.sleep(LISTEN_RETRY_S)
