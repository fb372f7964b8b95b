"""Work divided into transactions: appends that share one (group commit), a sweep that takes several.

A durable commit costs the same for one append as for fifty. An append waits for the end of the event loop's
turn and goes with all that came by then. Where no other append ever comes, waiting is a waste: after some
lonely appends they commit at once, without a turn of the loop, but for one in a while that looks around.

A sweep deletes content that nothing refers to, beside writers that may just begin to use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from onward.clock import SystemIds
from onward.errors import StoreUnavailable
from onward.model.run import Frozen
from onward.store.port.log import Write
from onward.store.port.retention import NOTHING_SWEPT, Swept


class Member(Frozen, frozen=True):
    """A write in a group. `held` is the owner and token it is made under; None makes a new run."""

    write: Write
    held: tuple[str | None, int] | None
    append_id: str | None = None


T = TypeVar("T")
GROUP_MAX = 256
LONELY_AFTER = 8
LOOK_EVERY = 32
Commit = Callable[[Sequence[T]], Awaitable[Sequence[Exception | None]]]


class GroupCommit(Generic[T]):
    """A queue before a commit. `commit` answers each member with None or its refusal."""

    def __init__(self, commit: Commit[T]) -> None:
        self._commit = commit
        self._waiting: list[tuple[T, asyncio.Future[None]]] = []
        self._flush: asyncio.Task[None] | None = None
        self._is_committing = False
        self._lonely = 0
        self._unlooked = 0

    def add(self, member: T) -> Awaitable[None]:
        """Await it: it returns when the member is durable, or raises its refusal."""
        if self._flush is None:
            if self._lonely >= LONELY_AFTER and self._unlooked < LOOK_EVERY and not self._is_committing:
                self._unlooked += 1
                return self._alone(member)
            self._flush = asyncio.create_task(self._flush_all())
        done: asyncio.Future[None] = asyncio.Future(loop=self._flush.get_loop())
        self._waiting.append((member, done))
        return done

    async def _alone(self, member: T) -> None:
        self._is_committing = True
        try:
            (refusal,) = await self._commit((member,))
        finally:
            self._is_committing = False
        if refusal is not None:
            raise refusal

    async def _flush_all(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
                self._lonely = self._lonely + 1 if len(group) == 1 else 0
                self._unlooked = 0
                for (_, done), refusal in zip(group, await self._answers(group), strict=True):
                    if done.done():
                        continue  # its caller went away; to it this is a crash, and the log knows better
                    if refusal is None:
                        done.set_result(None)
                    else:
                        done.set_exception(refusal)
        finally:
            self._flush = None

    async def _answers(self, group: Sequence[tuple[T, asyncio.Future[None]]]) -> Sequence[Exception | None]:
        """One transaction for all; if it fails as a whole, each member on its own."""
        try:
            return await self._commit([member for member, _ in group])
        except Exception as error:
            if len(group) == 1:
                return [error]
        answers: list[Exception | None] = []
        for member, _ in group:
            try:
                answers.extend(await self._commit((member,)))
            except StoreUnavailable as error:
                # Nothing to do with this member, and it took a long wait to learn it.
                return [*answers, *[error] * (len(group) - len(answers))]
            except Exception as error:
                answers.append(error)
        return answers


DELETED_AT_ONCE = 100
"""How many blobs one transaction marks or deletes: writers wait for no more than that."""
MARK_DIGITS = 15  # of a hexadecimal number: with its sign it fits into 64 bits


class Sweepable(Protocol):
    """The three steps of a sweep, each a transaction of its own."""

    async def unused(self, before_us: int, limit: int) -> Sequence[str]:
        """Blobs that nothing refers to and that were not touched since."""
        ...

    async def mark(self, names: Sequence[str], *, before_us: int, mark: int) -> None:
        """Mark those of these blobs that are still untouched: a write that uses one takes the mark off."""
        ...

    async def delete(self, names: Sequence[str], *, mark: int) -> Swept:
        """Delete those of these blobs that still have the mark."""
        ...


async def sweep(blobs: Sweepable, before_us: int, limit: int) -> Swept:
    """Mark blobs that nothing refers to, look again, and delete those that still have the mark."""
    mark, swept = new_mark(), NOTHING_SWEPT
    names = await blobs.unused(before_us, limit)
    for batch in _batched(names):
        await blobs.mark(batch, before_us=before_us, mark=mark)
    for batch in _batched(await blobs.unused(0, limit) if names else ()):
        swept = swept.plus(await blobs.delete(batch, mark=mark))
    return swept


def new_mark() -> int:
    """What a sweep writes in place of the time at which a blob was touched: below all times, and its own."""
    return -1 - int(SystemIds().unique()[:MARK_DIGITS], 16)


def _batched(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), DELETED_AT_ONCE):
        yield names[start : start + DELETED_AT_ONCE]
