"""Reading a run: fold what its log says, from the newest snapshot on, and check the hash chain on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from onward.clock import Clock
from onward.engine.log.retry_store import retry_store
from onward.errors import HistoryCorrupt, RunNotFound
from onward.machine.fold.apply import apply
from onward.machine.fold.snapshot import decode_run
from onward.machine.lifecycle import IllegalEvent
from onward.model.run import FOLD_VERSION, Frozen, Run
from onward.store.codec import check_chain, unseal
from onward.store.port.leases import Holder, Lease
from onward.store.port.log import ORIGIN, TAIL_MAX, Loaded, Position, RunLog, Snapshot, StoredEvent

EVENT_BYTES = 100  # what reading an event again costs besides its body, about
READ_ALL = 2**31


class Folded(Frozen, frozen=True):
    """A run and the place in its log that it is the fold of."""

    run: Run
    position: Position
    log_bytes: int = 0
    snapshot_bytes: int = 0
    holder: Holder | None = None
    is_due: bool = True
    """Whether its wake time had come, by the database's clock, when it was loaded."""
    is_repeat: bool = False
    """Whether this answers a request that had been answered before; nothing was written for it."""

    @property
    def lease(self) -> Lease:
        """The lease under which this state was read; only a running run has one."""
        assert self.run.worker is not None
        return Lease(self.run.id, self.run.worker, self.run.token)


class LogReader:
    """Reads runs. Nothing is written."""

    def __init__(self, log: RunLog, clock: Clock) -> None:
        self._log, self._clock = log, clock

    async def load(self, run_id: str) -> Folded:
        """A run as it stands, its hash chain checked from the snapshot on."""
        loaded = await self._log.load(run_id, fold_version=FOLD_VERSION)
        if loaded is None:
            raise RunNotFound(run_id)
        start = from_snapshot(loaded.snapshot)
        if needs_pages(loaded, start):
            # Up to where the row said: the log may have grown since that one consistent read.
            folded = await self._folded_by_pages(start, run_id, loaded.position.seq)
        else:
            folded = fold_tail(start, loaded.tail, run_id)
        return replace(checked_whole(folded, loaded), holder=loaded.holder, is_due=loaded.is_due)

    async def _folded_by_pages(self, start: Folded | None, run_id: str, upto: int) -> Folded | None:
        """Fold a log of any length up to an event; other tasks run between the pages."""
        folded = start
        while (after := folded.position.seq if folded else 0) < upto:
            page = await self._log.read(run_id, after=after, limit=min(TAIL_MAX, upto - after))
            if not page:
                break
            folded = fold_tail(folded, page, run_id)
            await asyncio.sleep(0)
        return folded

    async def load_at(self, run_id: str, seq: int) -> Folded:
        """A run as it stood after event `seq`."""
        folded = await self._folded_by_pages(None, run_id, seq)
        if folded is None or folded.position.seq != seq:
            raise RunNotFound(run_id)
        return folded

    async def read(self, run_id: str, *, after: int = 0, limit: int = READ_ALL) -> Sequence[StoredEvent]:
        """The stored log."""
        return await self._log.read(run_id, after=after, limit=limit)

    async def tail(self, folded: Folded, count: int) -> Sequence[StoredEvent]:
        """The last `count` events up to where `folded` stands."""
        run_id, seq = folded.run.id, folded.position.seq
        after = max(0, seq - count)
        if after == seq:
            return ()
        return await retry_store(self._clock, lambda: self._log.read(run_id, after=after, limit=seq - after))

    async def catch_up(self, folded: Folded) -> Folded:
        """The same run with whatever has been appended since."""
        run_id, seq = folded.run.id, folded.position.seq
        tail = await retry_store(self._clock, lambda: self._log.read(run_id, after=seq, limit=READ_ALL))
        return fold_tail(folded, tail, run_id) or folded


def checked_whole(folded: Folded | None, loaded: Loaded) -> Folded:
    """The fold, if it covers the log up to where the row says that it ends."""
    if folded is None or folded.position != loaded.position:
        why = "the log does not end where the run's row says"
        raise HistoryCorrupt(loaded.row.id, loaded.position.seq, why)
    return folded


def needs_pages(loaded: Loaded, start: Folded | None) -> bool:
    """Whether a log has to be read page by page: it is too long, or its snapshot does not decode."""
    return loaded.is_cut or (loaded.snapshot is not None and start is None)


def from_snapshot(snapshot: Snapshot | None) -> Folded | None:
    """The run that a snapshot holds; None if there is none, or it does not decode."""
    if snapshot is None:
        return None
    run = decode_run(snapshot.body)
    if run is None:
        return None
    return Folded(run, Position(snapshot.seq, snapshot.hash), 0, len(snapshot.body))


def fold_tail(start: Folded | None, tail: Sequence[StoredEvent], run_id: str) -> Folded | None:
    """Fold the events after `start`, checking that each stands where its hash says."""
    if not tail:
        return start
    position = check_chain(start.position if start else ORIGIN, tail)
    run = start.run if start else None
    log_bytes = start.log_bytes if start else 0
    for stored in tail:
        try:
            run = apply(run, unseal(stored), run_id=run_id, at_us=stored.at_us, token=stored.token)
        except IllegalEvent as error:
            raise HistoryCorrupt(stored.run_id, stored.seq, str(error)) from None
        log_bytes += len(stored.body) + EVENT_BYTES
    assert run is not None
    return Folded(run, position, log_bytes, start.snapshot_bytes if start else 0)
