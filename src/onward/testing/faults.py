"""A store whose calls go wrong at a chosen place, wrapped around any other from outside.

    faulty = FaultyStore(store, Fault.DIE_AFTER, at=7)     # the seventh call is made and its caller is gone

Dying raises `Died`, which no engine catches, and from then on the store stays silent, as it is for a
process that has ended; whoever made the test then lets the owner die for everybody else as well. The other
faults raise what a real store would raise. Only calls of the kinds in `counted` have a number: renewals
come by the clock, so counting them would make the place depend on it. A manual clock that is given as `clock`
never jumps while a call is under way, however long the database takes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from onward.errors import StoreError, StoreUnavailable
from onward.model.identity import Identity
from onward.model.run import RunStatus
from onward.store.carrying import Arrival
from onward.store.measures import Measured
from onward.store.port import (
    Controlled,
    Decide,
    DecideLoaded,
    Effect,
    Lease,
    Listed,
    Loaded,
    Record,
    RunQuery,
    Store,
    Unwatch,
    Wanted,
    Write,
)
from onward.store.retention import Expiry, Kin, Swept
from onward.testing.clock import ManualClock

T = TypeVar("T")
EFFECTS = frozenset({"begin_effect", "finish_effect", "forget_effect"})
WRITES = frozenset({"create", "append", "control", "take", "delete", "sweep_blobs", "keep_blobs", "receive"})
READS = frozenset({"load", "read", "blob"})


class Fault(StrEnum):
    """What goes wrong at the chosen call."""

    DIE_BEFORE = "die before the effect"
    DIE_AFTER = "die after the effect, before the reply"
    LOSE_REPLY = "make the effect and report a failure"
    REFUSE = "report a failure without the effect"


class Died(BaseException):
    """The process ended here. Not an Exception: nothing may go on after it."""


class FaultyStore:
    """Passes everything on to `store`, but for the faults."""

    def __init__(
        self,
        store: Store,
        fault: Fault | None = None,
        at: int = 0,
        *,
        times: int = 1,
        error: StoreError | None = None,
        counted: Collection[str] = WRITES | READS,
    ) -> None:
        self.store, self.fault, self._counted = store, fault, counted
        self._range = range(at, at + times)
        self._error = error or StoreUnavailable("the connection timed out; this is a test.")
        self.calls: list[str] = []
        self.is_dead = False
        self.clock: ManualClock | None = None

    def fail(self, fault: Fault, *, within: int = 1, times: int = 1) -> None:
        """From now on the next counted call (or the one `within` so many) goes wrong, `times` in a row."""
        self.fault = fault
        self._range = range(len(self.calls) + within, len(self.calls) + within + times)

    async def _call(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        if self.is_dead:
            await asyncio.Event().wait()
        with self.clock.busy() if self.clock is not None else contextlib.nullcontext():
            return await self._answered(name, call)

    async def _answered(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        if name not in self._counted:
            return await call()
        self.calls.append(name)
        if self.fault is None or len(self.calls) not in self._range:
            return await call()
        if self.fault in (Fault.DIE_AFTER, Fault.LOSE_REPLY):
            await call()
        if self.fault in (Fault.LOSE_REPLY, Fault.REFUSE):
            raise self._error
        self.is_dead = True
        raise Died(f"{self.fault}: call {len(self.calls)}, {name}")

    # -- the port ------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        return self.store.identity

    @property
    def me(self) -> str:
        return self.store.me

    @property
    def lease_s(self) -> float | None:
        return self.store.lease_s

    @property
    def heartbeat_s(self) -> float:
        return self.store.heartbeat_s

    async def create(self, write: Write, append_id: str | None = None) -> None:
        await self._call("create", lambda: self.store.create(write, append_id))

    async def append(self, write: Write, lease: Lease) -> None:
        await self._call("append", lambda: self.store.append(write, lease))

    async def control(self, run_id: str, *, since: int, append_id: str, decide: Decide) -> Controlled:
        return await self._call(
            "control",
            lambda: self.store.control(run_id, since=since, append_id=append_id, decide=decide),
        )

    async def take(self, wanted: Wanted, *, fold_version: int, decide: DecideLoaded) -> Controlled | None:
        return await self._call(
            "take", lambda: self.store.take(wanted, fold_version=fold_version, decide=decide)
        )

    async def held(self) -> Sequence[Listed]:
        return await self._call("held", lambda: self.store.held())

    async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
        return await self._call("load", lambda: self.store.load(run_id, fold_version=fold_version))

    async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[Record]:
        return await self._call("read", lambda: self.store.read(run_id, after=after, limit=limit))

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        return await self._call("renew", lambda: self.store.renew(leases))

    async def find(self, wanted: str) -> Sequence[Listed]:
        return await self._call("find", lambda: self.store.find(wanted))

    async def forks(self, run_id: str) -> Sequence[Listed]:
        return await self._call("forks", lambda: self.store.forks(run_id))

    async def list(self, query: RunQuery) -> Sequence[Listed]:
        return await self._call("list", lambda: self.store.list(query))

    async def count(self) -> Mapping[RunStatus, int]:
        return await self._call("count", lambda: self.store.count())

    async def measure(self) -> Measured:
        return await self._call("measure", lambda: self.store.measure())

    async def note_stuck(self, run_id: str, why: str) -> None:
        await self._call("note_stuck", lambda: self.store.note_stuck(run_id, why))

    async def blob(self, hash: str) -> bytes | None:
        return await self._call("blob", lambda: self.store.blob(hash))

    async def begin_effect(
        self, key: str, token: str, *, at_us: int, instead_of: str | None = None
    ) -> Effect:
        return await self._call(
            "begin_effect",
            lambda: self.store.begin_effect(key, token, at_us=at_us, instead_of=instead_of),
        )

    async def finish_effect(self, key: str, token: str, result: bytes, *, at_us: int) -> bool:
        return await self._call(
            "finish_effect", lambda: self.store.finish_effect(key, token, result, at_us=at_us)
        )

    async def renew_effect(self, key: str, token: str, *, is_at_it: bool = True) -> bool:
        return await self._call(
            "renew_effect", lambda: self.store.renew_effect(key, token, is_at_it=is_at_it)
        )

    async def forget_effect(self, key: str, token: str) -> None:
        await self._call("forget_effect", lambda: self.store.forget_effect(key, token))

    async def find_effect(self, key: str) -> Effect | None:
        return await self._call("find_effect", lambda: self.store.find_effect(key))

    async def read_effects(self, under: str, *, limit: int) -> Sequence[Effect]:
        return await self._call("read_effects", lambda: self.store.read_effects(under, limit=limit))

    async def expired(self, expiry: Expiry) -> Sequence[Kin]:
        return await self._call("expired", lambda: self.store.expired(expiry))

    async def attached(self) -> Sequence[Kin]:
        return await self._call("attached", lambda: self.store.attached())

    async def delete(self, runs: Sequence[Kin]) -> Sequence[str]:
        return await self._call("delete", lambda: self.store.delete(runs))

    async def sweep_blobs(self, before_us: int, limit: int) -> Swept:
        return await self._call("sweep_blobs", lambda: self.store.sweep_blobs(before_us, limit))

    async def keep_blobs(self, blobs: Mapping[str, bytes], *, at_us: int) -> None:
        await self._call("keep_blobs", lambda: self.store.keep_blobs(blobs, at_us=at_us))

    async def receive(self, arrival: Arrival) -> None:
        await self._call("receive", lambda: self.store.receive(arrival))

    async def watch(self, on_due: Callable[[], None]) -> Unwatch:
        return await self.store.watch(on_due)

    async def check(self) -> Sequence[tuple[str, bool, str]]:
        return await self.store.check()

    async def close(self) -> None:
        await self.store.close()
