"""A conversation with the server: several prepared statements at once, in one trip.

psycopg connects; after that its libpq layer is used directly, because its cursors spend more time on a
statement than the server does. What is sent together is one transaction unless it says BEGIN: if one
statement fails, the rest is skipped and nothing has happened.

Behind a pooler a transaction may be in any session of the server. So there every transaction begins with the
settings it needs, and no statement is prepared for later: slower, and just as safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from onward.store.postgres.link.binary import load, texts
from onward.store.postgres.link.connection import SESSION, SETTINGS, Session
from onward.store.postgres.link.failure import ConnectionLost, failure_of
from onward.store.postgres.statements import ROLLBACK, Call, Statement

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
