"""Releasing runs that this process holds and no longer executes.

If a run loop ends by an error or is cancelled, this process still holds the run and is alive, so no other
process would take it over. It therefore notes what it dropped, no longer counts as the holder, and tries to
release the run until that succeeds, or until it closes. Only liveness depends on this: a dropped lease is not
renewed, so it expires where leases do, and ends with the process everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from onward.clock import Clock, Ids
from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.errors import OnwardError, RunNotFound, StoreGone
from onward.machine.decide.owner_loss import decide_release
from onward.model.events import Event
from onward.store.port.leases import Lease

PAUSE_S_FIRST, PAUSE_S_MAX = 0.5, 30.0
SAID_MAX = 300
RELEASED_MAX = 1_000


class Dropped:
    """The leases of this process under which it executes nothing: still to be released, or released.

    Those that were released stay known for a while, because an older fold may still name them.
    """

    def __init__(self, journal: Journal, clock: Clock, ids: Ids) -> None:
        self._journal, self._clock, self._ids = journal, clock, ids
        self._leases: set[Lease] = set()
        self._released: dict[Lease, None] = {}
        self._releasing: dict[Lease, asyncio.Task[None]] = {}
        self._is_last = asyncio.Event()

    def __contains__(self, lease: Lease) -> bool:
        return lease in self._leases or lease in self._released

    def is_pending(self, lease: Lease) -> bool:
        """Whether it is still to be released."""
        return lease in self._leases

    def drop(self, lease: Lease, error: BaseException | None = None) -> None:
        """No longer count as the holder, and release the run in the background. `error` is why."""
        self.keep(lease)
        self._leases.add(lease)
        if not self._releasing:  # an app may live through several event loops, one after the other
            self._is_last = asyncio.Event()
        self._releasing[lease] = releasing = asyncio.create_task(
            self._release_until_done(lease, _short(error))
        )
        releasing.add_done_callback(lambda _: self._forget(lease, releasing))

    def keep(self, lease: Lease) -> bool:
        """Keep this lease after all: a dropped claim that was never written is repeated with its token."""
        was_dropped = lease in self._leases
        self._leases.discard(lease)
        if lease in self._releasing:
            self._releasing.pop(lease).cancel()
        return was_dropped

    async def settle(self) -> None:
        """Try a last time to release what is left, and stop trying."""
        self._is_last.set()
        await asyncio.gather(*self._releasing.values(), return_exceptions=True)
        self._is_last.clear()

    async def _release_until_done(self, lease: Lease, error: str) -> None:
        pause_s = PAUSE_S_FIRST
        while not await self._try_release(lease, error) and not self._is_last.is_set():
            await self._clock.wait_s(pause_s, self._is_last)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _try_release(self, lease: Lease, error: str) -> bool:
        """Whether no other try is needed: the run is released, or it can never be."""
        try:
            await self._journal.control(
                lease.run_id,
                partial(self._release, lease, error),
                append_id=self._ids.unique(),
            )
        except StoreGone:
            return True  # this process cannot reach this database again
        except RunNotFound:
            pass  # the claim was never written, or the run was deleted
        except OnwardError:
            return False
        else:
            self._note_released(lease)
        self._leases.discard(lease)
        return True

    def _release(self, lease: Lease, error: str, current: Folded) -> Sequence[Event]:
        return decide_release(
            current.run, owner=lease.owner, token=lease.token, now_us=self._clock.now_us(), error=error
        )

    def _note_released(self, lease: Lease) -> None:
        if len(self._released) >= RELEASED_MAX:
            del self._released[next(iter(self._released))]
        self._released[lease] = None

    def _forget(self, lease: Lease, releasing: asyncio.Task[None]) -> None:
        if self._releasing.get(lease) is releasing:
            del self._releasing[lease]


def _short(error: BaseException | None) -> str:
    """An error as a short part of a sentence; empty for a cancelled task."""
    if error is None or isinstance(error, asyncio.CancelledError):
        return ""
    return (str(error) or type(error).__name__)[:SAID_MAX].rstrip(".")
