"""The one door to durability, as the engine uses it: create, append, request, claim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from onward.clock import Clock
from onward.engine.log import (
    NO_TERMS,
    Folded,
    LogReader,
    RequestTerms,
    applied,
    checked_whole,
    fold_tail,
    from_snapshot,
    needs_pages,
    redacted_events,
    sealed,
)
from onward.engine.persist import OUT_OF_REACH, retry_store
from onward.errors import OnwardError, RunNotFound, RunUnreadable, StoreError
from onward.machine.catalogue import RUNNING
from onward.model.events import Event
from onward.model.limits import check_name, check_names
from onward.model.run import FOLD_VERSION, Frozen, Run
from onward.redact.redactor import NOTHING_SECRET, Redactor
from onward.store.owner import run_exists
from onward.store.port.leases import Lease
from onward.store.port.log import ORIGIN, Held, Loaded, Position, RunLog, StoredEvent, TakeFilter, Write

DecideRun = Callable[[Folded], Sequence[Event]]
"""What to append to a run, which is locked, and shows who holds it."""


class Creation(Frozen, frozen=True):
    """A new run, sealed: the write that creates it, under the caller's append id if that is given."""

    write: Write
    folded: Folded
    append_id: str | None
    terms: RequestTerms


class Journal(LogReader):
    """Reads and writes runs. Nothing else in the engine writes to the log."""

    def __init__(self, log: RunLog, clock: Clock, redactor: Redactor = NOTHING_SECRET) -> None:
        super().__init__(log, clock)
        self.redactor = redactor
        """Requests are redacted here; results were, when the attempt ended."""
        self._ahead: Folded | None = None  # a run that had to be folded before it can be claimed

    def creation(
        self,
        run: Run,
        events: Sequence[Event],
        *,
        at_us: int,
        append_id: str | None = None,
        after: Position = ORIGIN,
        token: int = 0,
        blobs: Mapping[str, bytes] | None = None,
        terms: RequestTerms = NO_TERMS,
    ) -> Creation:
        """A run with its first events, after nothing or after the event it is forked at; nothing is written.

        `token` is that of the run it is forked from.
        A run that could not be stored is refused here.
        """
        check_names(run)
        if append_id is not None or terms.key is not None:
            check_name("the append id", terms.key or append_id or "")
        write, folded = sealed(
            run, events, after=after, token=token, at_us=at_us, full=True, blobs=blobs, terms=terms
        )
        return Creation(write, folded, terms.key or append_id, terms)

    async def put(self, creation: Creation) -> Folded:
        """Create the run.

        Under a key of the caller's own, this returns the run that the first request created, as it stands.
        """
        write, terms = creation.write, creation.terms
        try:
            await self._log.create(write, creation.append_id)
        except OUT_OF_REACH:  # asked directly first: every run that is started comes this way
            await retry_store(self._clock, partial(self._log.create, write, creation.append_id))
        if terms.key is None:
            return creation.folded
        await self._check_same(write.run_id, write.after.seq + 1, terms)
        return await self._first_answer(creation.folded)

    async def check_free(self, creation: Creation) -> None:
        """Refuse what `put` would refuse as things stand: an id that is taken, or a key used for another."""
        write = creation.write
        for first in await self._log.read(write.run_id, after=write.after.seq, limit=1):
            if creation.terms.key is None:
                raise run_exists(write.run_id)
            creation.terms.check_same(first)

    async def find_made(self, run_id: str, terms: RequestTerms) -> Folded | None:
        """The run that this very request created before, as it stands; None if there is none."""
        if terms.key is None:
            return None
        try:
            found = await self.load(run_id)
        except RunNotFound:
            return None
        shared = 0 if found.run.parent is None else found.run.parent.seq
        first = await self._log.read(run_id, after=shared, limit=1)
        is_made = any(terms.is_of(event) for event in first)
        return replace(found, is_repeat=True) if is_made else None

    async def record(
        self, before: Folded, events: Sequence[Event], run: Run, at_us: int, lease: Lease
    ) -> Folded:
        """Append for the holder of `lease`; `run` is the state after `events`."""
        known = before.run
        full = known.status is not RUNNING or run.status is not RUNNING
        write, folded = sealed(
            run, events, after=before.position, token=known.token, at_us=at_us, full=full, before=before
        )
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
        known: Folded | None = None,
    ) -> Folded:
        """Let `decide` see the run under its lock, and write what it returns. A refusal changes nothing.

        `terms` are checked there, too: the head that the request names, and that its key is its own. `known`
        is the run as the caller has read it: only what was appended since is read.
        """
        check_name("the append id", append_id)
        known = known or await self.load(run_id)
        request = _Control(self, known, decide, blobs, known, terms)
        since, decided = known.position.seq, request.decided
        ask = partial(self._log.control, run_id, since=since, append_id=append_id, decide=decided)
        answer = await retry_store(self._clock, ask)
        if not answer.is_repeat:
            return request.result
        if answer.answered is not None:
            await self._check_same(run_id, answer.answered, terms)
        if request.result is known:
            return replace(await self.load(run_id), is_repeat=True)
        return await self._first_answer(request.result)  # the reply to this very request may have been lost

    async def _first_answer(self, folded: Folded) -> Folded:
        """`folded` if its last event is in the log; else the run as it stands, because another was first."""
        stored = await self._log.read(folded.run.id, after=folded.position.seq - 1, limit=1)
        if stored and stored[0].hash == folded.position.hash:
            return folded
        return replace(await self.load(folded.run.id), is_repeat=True)

    async def _check_same(self, run_id: str, seq: int, terms: RequestTerms) -> None:
        """Refuse a key whose first request, which wrote event `seq`, was another one."""
        if terms.refs:
            for first in await self._log.read(run_id, after=seq - 1, limit=1):
                terms.check_same(first)

    async def take(
        self, wanted: TakeFilter, decide: DecideRun, on_failure: Callable[[str, Exception], None]
    ) -> Folded | None:
        """Let `decide` see the run whose turn it is, under its lock, and write what it returns.

        If a run cannot be claimed, `on_failure` gets its id and the error; then this returns None, as when
        nothing is due, or raises what concerns more than this run. A claim cannot be repeated: if its reply
        is lost, this process holds a run that it does not execute, and releases it.
        """
        while True:
            attempt = _Take(self, self._ahead, decide, on_failure)
            known = None if self._ahead is None else (self._ahead.run.id, self._ahead.position.seq)
            try:
                answer = await self._log.take(
                    replace(wanted, known=known), fold_version=FOLD_VERSION, decide=attempt.decided
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
        blobs: Mapping[str, bytes] | None = None,
        since_us: int = 0,
        terms: RequestTerms = NO_TERMS,
    ) -> tuple[Write | None, Folded]:
        """What `decide` returns, as a write at `since_us` or later, and the run after it."""
        events = redacted_events(self.redactor, decide(current))
        if not events:
            return None, current
        at_us = max(since_us, self._clock.now_us())
        run, events = applied(current.run, events, run_id=current.run.id, at_us=at_us)
        return sealed(
            run,
            events,
            after=current.position,
            token=current.run.token,
            at_us=at_us,
            full=True,
            before=current,
            blobs=blobs,
            terms=terms,
        )


class _Control(msgspec.Struct):
    """One `control`: decides about what the store's transaction shows after `known`, and keeps the result."""

    journal: Journal
    known: Folded
    decide: DecideRun
    blobs: Mapping[str, bytes] | None
    result: Folded
    terms: RequestTerms

    def decided(self, held: Held, tail: Sequence[StoredEvent]) -> Write | None:
        self.terms.check_head(self.known.run.id, held.position.seq)
        current = fold_tail(self.known, tail, self.known.run.id) or self.known
        current = replace(current, holder=held.holder)
        write, self.result = self.journal.decided(current, self.decide, self.blobs, terms=self.terms)
        return write


class _Take(msgspec.Struct):
    """One `take`: decides about the run that the store's transaction shows, and keeps the result.

    `ahead` is a run that was folded before. When the connection breaks, the transaction is repeated, and
    `decided` is called again.
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
        start = self.ahead if is_ahead else from_snapshot(loaded.snapshot)
        if needs_pages(loaded, start):
            self.unread = run_id
            return None
        try:
            current = checked_whole(fold_tail(start, loaded.tail, run_id), loaded)
            # The database says that its wake time has come, so the claim is not written before it.
            since_us = current.run.wake_at_us or 0
            current = replace(current, holder=held.holder)
            write, self.result = self.journal.decided(current, self.decide, since_us=since_us)
        except Exception as error:  # of any kind: other runs wait in the queue after this one
            self.on_failure(run_id, error)
            return None
        return write
