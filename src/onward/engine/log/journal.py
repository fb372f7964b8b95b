"""The one door, seen from the engine: folds what is read, seals what is written, keeps snapshots going."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changes
from functools import partial

from msgspec.structs import replace

from onward.clock import Clock
from onward.engine.log.retry_store import OUT_OF_REACH, retry_store
from onward.engine.log.terms import NO_TERMS, RequestTerms
from onward.errors import HistoryCorrupt, OnwardError, RunNotFound, RunUnreadable, StoreError
from onward.machine.fold.apply import apply
from onward.machine.fold.change import IllegalEvent
from onward.machine.fold.row import project
from onward.machine.fold.snapshot import decode_run, encode_run
from onward.machine.lifecycle import RUNNING
from onward.model.event import Event, RunClaimed
from onward.model.run import FOLD_VERSION, Frozen, Run
from onward.model.values.names import check_name, check_names
from onward.store.codec import check_chain, seal, unseal
from onward.store.port.leases import Holder, Lease
from onward.store.port.log import TAIL_MAX, Held, Loaded, RunLog, TakeFilter
from onward.store.port.stored import ORIGIN, Position, Snapshot, StoredEvent, Write

SNAPSHOT_BYTES_MIN = 32 * 1024
EVENT_BYTES = 100  # what reading an event again costs beside its body, about
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


DecideRun = Callable[[Folded, Held], Sequence[Event]]


class Journal:
    """Reads and writes runs. Nothing else in the engine talks to the log."""

    def __init__(self, log: RunLog, clock: Clock) -> None:
        self._log, self._clock = log, clock
        self._ahead: Folded | None = None  # a run that had to be folded before it can be claimed

    async def load(self, run_id: str) -> Folded:
        """A run as it stands, its chain checked from the snapshot on."""
        loaded = await self._log.load(run_id, fold_version=FOLD_VERSION)
        if loaded is None:
            raise RunNotFound(run_id)
        start = _started_from(loaded.snapshot)
        if _is_for_pages(loaded, start):
            # Up to where the row said: the log may have grown since that one consistent read.
            folded = await self._folded_by_pages(start, run_id, loaded.position.seq)
        else:
            folded = _folded(start, loaded.tail, run_id)
        return replace(_whole(folded, loaded), holder=loaded.holder, is_due=loaded.is_due)

    async def _folded_by_pages(self, start: Folded | None, run_id: str, upto: int) -> Folded | None:
        """Fold a log of any length up to an event; others get their turns meanwhile."""
        folded = start
        while (after := folded.position.seq if folded else 0) < upto:
            page = await self._log.read(run_id, after=after, limit=min(TAIL_MAX, upto - after))
            if not page:
                break
            folded = _folded(folded, page, run_id)
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
        return _folded(folded, tail, run_id) or folded

    async def first_answer(self, folded: Folded) -> Folded:
        """`folded` if the write it comes from is in the log; else the run as it stands: another was first."""
        records = await self._log.read(folded.run.id, after=folded.position.seq - 1, limit=1)
        if records and records[0].hash == folded.position.hash:
            return folded
        return replace(await self.load(folded.run.id), is_repeat=True)

    async def create(
        self,
        run: Run,
        stamped: Sequence[tuple[Event, int]],
        *,
        at_us: int,
        append_id: str | None = None,
        after: Position = ORIGIN,
        blobs: Mapping[str, bytes] | None = None,
        terms: RequestTerms = NO_TERMS,
    ) -> Folded:
        """A new run with its first events: after nothing, or after the event it is forked at.

        Under a key of the caller's own, this answers the run that the first request made, as it stands.
        """
        check_names(run)
        check_name("the append id", terms.key or append_id or "")
        write, folded = _write(run, stamped, after=after, at_us=at_us, full=True, blobs=blobs, terms=terms)
        await retry_store(self._clock, partial(self._log.create, write, terms.key or append_id))
        return folded if terms.key is None else await self._first_made(folded, after, terms)

    async def _first_made(self, folded: Folded, after: Position, terms: RequestTerms) -> Folded:
        """The run that was made first under the key; refuses the key if it was used for something else."""
        if terms.refs:
            for record in await self._log.read(folded.run.id, after=after.seq, limit=1):
                terms.check_same(record)
        return await self.first_answer(folded)

    async def record(self, before: Folded, events: Sequence[Event], run: Run, at_us: int) -> Folded:
        """Append for the holder; `run` is the state after `events`."""
        stamped = [(event, before.run.token) for event in events]
        full = not (before.run.status is RUNNING and run.status is RUNNING)
        write, folded = _write(
            run, stamped, after=before.position, at_us=at_us, full=full, before=before, may_snapshot=True
        )
        lease = before.lease
        try:
            await self._log.append(write, lease)
        except OUT_OF_REACH:  # asked directly first: this is the one call of every step
            await retry_store(self._clock, partial(self._log.append, write, lease))
        return folded

    async def control(
        self,
        run_id: str,
        decide: DecideRun,
        *,
        append_id: str,
        blobs: Mapping[str, bytes] | None = None,
        terms: RequestTerms = NO_TERMS,
    ) -> Folded:
        """Let `decide` see the run under its lock, and write what it returns. A refusal changes nothing.

        `terms` are checked there, too: the head that the request names, and that its key is its own.
        """
        check_name("the append id", append_id)
        known = await self.load(run_id)
        request = _Request(self, known, decide, blobs, known, terms)
        ask = partial(
            self._log.control,
            run_id,
            since=known.position.seq,
            append_id=append_id,
            decide=request.decided,
        )
        answer = await retry_store(self._clock, ask)
        if not answer.is_repeat:
            return request.result
        if answer.answered is not None and terms.refs:
            for record in await self._log.read(run_id, after=answer.answered - 1, limit=1):
                terms.check_same(record)
        if request.result is known:
            return replace(await self.load(run_id), is_repeat=True)
        return await self.first_answer(request.result)  # the reply to this very request may have been lost

    async def take(
        self, wanted: TakeFilter, decide: DecideRun, on_failure: Callable[[str, Exception], None]
    ) -> Folded | None:
        """Let `decide` see the run whose turn it is, under its lock, and write what it returns.

        `on_failure` is told which run could not be claimed, and why; then this answers None, as when nothing
        is due, or raises what concerns more than this run. A claim cannot be asked for
        again: one whose reply was lost is a run that this process owns and does not drive, and is given back.
        """
        while True:
            attempt = _Claim(self, self._ahead, decide, on_failure)
            known = None if self._ahead is None else (self._ahead.run.id, self._ahead.position.seq)
            try:
                answer = await self._log.take(
                    with_changes(wanted, known=known), fold_version=FOLD_VERSION, decide=attempt.decided
                )
            except StoreError as error:
                if error.run_id is not None:
                    on_failure(error.run_id, error)
                if isinstance(error, RunUnreadable):
                    return None
                raise
            if answer is None:
                return None  # nothing is due, whatever was seen before
            if attempt.unread is None:
                self._ahead = None
                return attempt.result
            # It must be folded first, which takes its time: not under a lock.
            try:
                self._ahead = await self.load(attempt.unread)
            except OnwardError as error:
                on_failure(attempt.unread, error)
                return None

    def decided(
        self,
        current: Folded,
        decide: DecideRun,
        held: Held,
        blobs: Mapping[str, bytes] | None = None,
        since_us: int = 0,
        terms: RequestTerms = NO_TERMS,
    ) -> tuple[Write | None, Folded]:
        """What `decide` makes of a run, as a write, and the run after it; written at `since_us` or later."""
        events = decide(current, held)
        if not events:
            return None, current
        at_us = max(since_us, self._clock.now_us())
        run, stamped = applied(current.run, events, run_id=current.run.id, at_us=at_us)
        return _write(
            run,
            stamped,
            after=current.position,
            at_us=at_us,
            full=True,
            before=current,
            blobs=blobs,
            may_snapshot=True,
            terms=terms,
        )


@dataclass(slots=True)
class _Request:
    """One request: what the store's transaction shows after `known`, and what came of it."""

    journal: Journal
    known: Folded
    decide: DecideRun
    blobs: Mapping[str, bytes] | None
    result: Folded
    terms: RequestTerms

    def decided(self, held: Held, tail: Sequence[StoredEvent]) -> Write | None:
        self.terms.check_head(self.known.run.id, held.position.seq)
        current = _folded(self.known, tail, self.known.run.id) or self.known
        current = replace(current, holder=held.holder)
        write, self.result = self.journal.decided(current, self.decide, held, self.blobs, terms=self.terms)
        return write


@dataclass(slots=True)
class _Claim:
    """One try to claim: what the store's transaction shows, and what came of it.

    `ahead` is a run that was folded before. When the connection breaks, the transaction is made again, and
    what it showed first is forgotten.
    """

    journal: Journal
    ahead: Folded | None
    decide: DecideRun
    on_failure: Callable[[str, Exception], None]
    result: Folded | None = None
    unread: str | None = None

    def decided(self, held: Held, loaded: Loaded) -> Write | None:
        self.result, self.unread, run_id = None, None, loaded.row.id
        is_ahead = self.ahead is not None and self.ahead.run.id == run_id
        start = self.ahead if is_ahead else _started_from(loaded.snapshot)
        if _is_for_pages(loaded, start):
            self.unread = run_id
            return None
        try:
            current = _whole(_folded(start, loaded.tail, run_id), loaded)
            # The database says that its wake time has come, so the claim is not written before it.
            since_us = current.run.wake_at_us or 0
            current = replace(current, holder=held.holder)
            write, self.result = self.journal.decided(current, self.decide, held, since_us=since_us)
        except Exception as error:  # of whatever kind: it must not keep the runs behind it from being claimed
            self.on_failure(run_id, error)
            return None
        return write


def applied(
    run: Run | None, events: Sequence[Event], *, run_id: str, at_us: int
) -> tuple[Run, list[tuple[Event, int]]]:
    """The run after `events`, each with the token that it is written under."""
    stamped: list[tuple[Event, int]] = []
    for event in events:
        token = event.token if isinstance(event, RunClaimed) else (run.token if run else 0)
        run = apply(run, event, run_id=run_id, at_us=at_us, token=token)
        stamped.append((event, token))
    assert run is not None
    return run, stamped


def _write(
    run: Run,
    stamped: Sequence[tuple[Event, int]],
    *,
    after: Position,
    at_us: int,
    full: bool,
    before: Folded | None = None,
    blobs: Mapping[str, bytes] | None = None,
    may_snapshot: bool = False,
    terms: RequestTerms = NO_TERMS,
) -> tuple[Write, Folded]:
    records, values, head, size = seal(run.id, after, stamped, at_us)
    if terms.key is not None and terms.refs:  # a step has neither, and each pays for what is asked here
        records = tuple(replace(record, refs=(*record.refs, *terms.refs)) for record in records)
        values = {**values, **terms.content}
    log_bytes = (before.log_bytes if before else 0) + size + EVENT_BYTES * len(records)
    snapshot_bytes = before.snapshot_bytes if before else 0
    snapshot: Snapshot | None = None
    if may_snapshot and log_bytes > max(SNAPSHOT_BYTES_MIN, snapshot_bytes) and not run.is_final:
        body = encode_run(run)
        snapshot = Snapshot(head.seq, head.hash, FOLD_VERSION, body)
        log_bytes, snapshot_bytes = 0, len(body)
    write = Write(
        run_id=run.id,
        after=after,
        head=head,
        records=records,
        at_us=at_us,
        next_node=run.next_node,
        steps_finished=run.steps_finished,
        row=project(run) if full else None,
        blobs={**values, **blobs} if blobs else values,
        snapshot=snapshot,
    )
    return write, Folded(run, head, log_bytes, snapshot_bytes)


def _whole(folded: Folded | None, loaded: Loaded) -> Folded:
    """The fold, if it is of all that the row knows of."""
    if folded is None or folded.position != loaded.position:
        why = "the log does not end where the run's row says"
        raise HistoryCorrupt(loaded.row.id, loaded.position.seq, why)
    return folded


def _is_for_pages(loaded: Loaded, start: Folded | None) -> bool:
    """Whether a log has to be read for itself: it is too long, or its snapshot does not decode."""
    return loaded.is_cut or (loaded.snapshot is not None and start is None)


def _started_from(snapshot: Snapshot | None) -> Folded | None:
    if snapshot is None:
        return None
    run = decode_run(snapshot.body)
    if run is None:
        return None
    return Folded(run, Position(snapshot.seq, snapshot.hash), 0, len(snapshot.body))


def _folded(start: Folded | None, tail: Sequence[StoredEvent], run_id: str) -> Folded | None:
    """Fold records behind `start`, checking that each stands where its hash says."""
    if not tail:
        return start
    position = check_chain(start.position if start else ORIGIN, tail)
    run = start.run if start else None
    log_bytes = start.log_bytes if start else 0
    for record in tail:
        try:
            run = apply(run, unseal(record), run_id=run_id, at_us=record.at_us, token=record.token)
        except IllegalEvent as error:
            raise HistoryCorrupt(record.run_id, record.seq, str(error)) from None
        log_bytes += len(record.body) + EVENT_BYTES
    assert run is not None
    return Folded(run, position, log_bytes, start.snapshot_bytes if start else 0)
