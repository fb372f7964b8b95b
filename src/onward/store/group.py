"""Group commit: appends that wait at the same moment share one transaction.

A durable commit costs the same for one append as for fifty. An append waits for the end of the event loop's
turn and goes with all that came by then. Where nobody else ever comes, waiting is a waste: after some
lonely appends they commit at once, without a turn of the loop, but for one in a while that looks around.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from onward.errors import StoreUnavailable

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
