"""Branches of a flow: `gather` runs a few things beside each other, `each` one thing for many items.

Each branch is a task with a scope of its own, so its keys do not depend on when the others come to theirs.
Both wait for all branches before they raise the first failure by position: how far the others had come when
one failed would not be the same again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar, overload

from onward.errors import InvalidInput
from onward.flows.running import FlowRun, scope_here
from onward.flows.scope import Group, Scope
from onward.model.stored import is_awaitable

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
R = TypeVar("R")
GATHER_MAX = 1_000
LIMIT = 10
"""How many items of `each` are worked on at a time, unless it says how many."""


@overload
async def gather(a: Awaitable[T1], /, *, return_exceptions: Literal[False] = False) -> tuple[T1]: ...


@overload
async def gather(
    a: Awaitable[T1], b: Awaitable[T2], /, *, return_exceptions: Literal[False] = False
) -> tuple[T1, T2]: ...


@overload
async def gather(
    a: Awaitable[T1], b: Awaitable[T2], c: Awaitable[T3], /, *, return_exceptions: Literal[False] = False
) -> tuple[T1, T2, T3]: ...


@overload
async def gather(
    a: Awaitable[T1],
    b: Awaitable[T2],
    c: Awaitable[T3],
    d: Awaitable[T4],
    /,
    *,
    return_exceptions: Literal[False] = False,
) -> tuple[T1, T2, T3, T4]: ...


@overload
async def gather(
    a: Awaitable[T1],
    b: Awaitable[T2],
    c: Awaitable[T3],
    d: Awaitable[T4],
    e: Awaitable[T5],
    /,
    *,
    return_exceptions: Literal[False] = False,
) -> tuple[T1, T2, T3, T4, T5]: ...


@overload
async def gather(a: Awaitable[T1], /, *, return_exceptions: Literal[True]) -> tuple[T1 | Exception]: ...


@overload
async def gather(
    a: Awaitable[T1], b: Awaitable[T2], /, *, return_exceptions: Literal[True]
) -> tuple[T1 | Exception, T2 | Exception]: ...


@overload
async def gather(
    a: Awaitable[T1],
    b: Awaitable[T2],
    c: Awaitable[T3],
    /,
    *,
    return_exceptions: Literal[True],
) -> tuple[T1 | Exception, T2 | Exception, T3 | Exception]: ...


@overload
async def gather(
    a: Awaitable[T1],
    b: Awaitable[T2],
    c: Awaitable[T3],
    d: Awaitable[T4],
    /,
    *,
    return_exceptions: Literal[True],
) -> tuple[T1 | Exception, T2 | Exception, T3 | Exception, T4 | Exception]: ...


@overload
async def gather(
    a: Awaitable[T1],
    b: Awaitable[T2],
    c: Awaitable[T3],
    d: Awaitable[T4],
    e: Awaitable[T5],
    /,
    *,
    return_exceptions: Literal[True],
) -> tuple[T1 | Exception, T2 | Exception, T3 | Exception, T4 | Exception, T5 | Exception]: ...


@overload
async def gather(*work: Awaitable[T], return_exceptions: Literal[False] = False) -> tuple[T, ...]: ...


@overload
async def gather(*work: Awaitable[T], return_exceptions: Literal[True]) -> tuple[T | Exception, ...]: ...


async def gather(*work: Awaitable[Any], return_exceptions: bool = False) -> tuple[Any, ...]:
    """Run steps, flows and async functions in parallel, and return their results in order.

    Waits for all of them, then raises the first failure by position; with `return_exceptions`, failures are
    returned in their places.
    """
    try:
        scope, flow = _here("gather")
        if len(work) > GATHER_MAX:
            raise InvalidInput(
                f"gather takes at most {GATHER_MAX:,} branches; write `await each(…)` for more."
            )
        for one in work:
            if not is_awaitable(one):
                raise InvalidInput(
                    f"gather takes calls, as in `await gather(page(1), page(2))`, and was given a "
                    f"{type(one).__name__}; write `gather(*calls)` for the calls of a list."
                )
        named, group = flow.enter(scope, "gather")
    except BaseException:
        for one in work:
            if inspect.iscoroutine(one):
                one.close()
        raise
    branches = _Branches(flow, scope, named, group)
    ended = await branches.all(_same, work, limit=len(work))
    return tuple(ended.results(return_exceptions=return_exceptions))


@overload
async def each(
    function: Callable[[T], Awaitable[R]],
    items: Iterable[T],
    /,
    *,
    limit: int = LIMIT,
    return_exceptions: Literal[False] = False,
) -> list[R]: ...


@overload
async def each(
    function: Callable[[T], Awaitable[R]],
    items: Iterable[T],
    /,
    *,
    limit: int = LIMIT,
    return_exceptions: Literal[True],
) -> list[R | Exception]: ...


async def each(
    function: Callable[[T], Awaitable[R]],
    items: Iterable[T],
    /,
    *,
    limit: int = LIMIT,
    return_exceptions: bool = False,
) -> list[Any]:
    """Run a step, a flow or an async function for each item, `limit` at a time; return the results in order.

    Waits for all of them, then raises the first failure by position; with `return_exceptions`, failures are
    returned in their places.
    """
    scope, flow = _here("each")
    if type(limit) is not int or limit < 1:
        raise InvalidInput(f"limit={limit!r} of each must be an integer of at least 1.")
    named, group = flow.enter(scope, "each")
    branches = _Branches(flow, scope, named, group)
    ended = await branches.all(function, list(items), limit=limit)
    return ended.results(return_exceptions=return_exceptions)


def _here(what: str) -> tuple[Scope, FlowRun]:
    scope = scope_here(what)
    assert scope.flow is not None
    return scope, scope.flow


class _Ended:
    """How the branches ended: the values that they returned, and what others raised, by their positions."""

    __slots__ = ("errors", "values")

    def __init__(self, count: int) -> None:
        self.values: list[Any] = [None] * count
        self.errors: dict[int, BaseException] = {}

    def results(self, *, return_exceptions: bool) -> list[Any]:
        """The values. Raises the first failure by position, or returns failures in their places."""
        for number in sorted(self.errors):
            error = self.errors[number]
            if not (return_exceptions and isinstance(error, Exception)):
                raise error
            self.values[number] = error
        return self.values


class _Branches:
    """The branches of one `gather` or `each`."""

    def __init__(self, flow: FlowRun, scope: Scope, named: str, group: Group | None) -> None:
        self._flow, self._scope, self._named, self._group = flow, scope, named, group
        self._last_us, self._at_work = scope.last_us, 0

    async def all(self, function: Callable[[T], Awaitable[Any]], items: Sequence[T], *, limit: int) -> _Ended:
        """How each ended, which is what the function does with an item; `limit` of them at a time."""
        self._check_number(items)
        ended = _Ended(len(items))
        left = iter(enumerate(items))
        self._at_work = min(limit, len(items))
        tasks = [asyncio.create_task(self._take(function, left, ended)) for _ in range(self._at_work)]
        self._flow.working += max(0, self._at_work - 1)
        try:
            if tasks:
                await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await _wait_all(tasks)
            _close(item for _, item in left)
            raise
        raised = [task.exception() for task in tasks if not task.cancelled()]
        if self._flow.ended is not None or any(task.cancelled() for task in tasks):
            _close(item for _, item in left)
            raise asyncio.CancelledError
        for error in filter(None, raised):  # the end of the process, or of its event loop
            raise error
        self._scope.last_us = self._last_us
        return ended

    async def _take(
        self, function: Callable[[T], Awaitable[Any]], left: Iterator[tuple[int, T]], ended: _Ended
    ) -> None:
        """Do what is left, one after the other."""
        try:
            for number, item in left:
                try:
                    ended.values[number] = await self._one(number, function, item)
                except asyncio.CancelledError:
                    raise
                except (Exception, SystemExit) as error:
                    ended.errors[number] = error
        finally:
            self._at_work -= 1
            if self._at_work:  # the last one hands over to the branch that waits for all
                self._flow.working -= 1
                self._flow.park_if_all_wait()

    def _check_number(self, items: Sequence[object]) -> None:
        """Refuse fewer branches than the history has."""
        number = len(items)
        for segment, calls in self._group.calls.items() if self._group is not None else ():
            if int(segment.rpartition(".")[2] or 0) >= number:
                _close(items)
                raise self._flow.changed(calls[0], self._scope.key(f"{self._named}.{number - 1}"))

    async def _one(self, number: int, function: Callable[[T], Awaitable[Any]], item: T) -> Any:
        scope = self._flow.branch(self._scope, self._named, f"{self._named}.{number}", self._group)
        scope.patches = self._scope.inherited()
        try:
            return await self._flow.inside(scope, _begun(function, item))
        finally:
            self._last_us = max(self._last_us, scope.last_us)


async def _begun(function: Callable[[T], Awaitable[Any]], item: T) -> Any:
    """What the branch returns; a plain function that returns at once is welcome."""
    returned: object = function(item)
    return await returned if inspect.isawaitable(returned) else returned


def _same(work: Awaitable[T]) -> Awaitable[T]:
    return work


async def _wait_all(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait until all have ended, however often this is cancelled meanwhile."""
    while any(not task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            continue
    for task in tasks:
        if not task.cancelled():
            task.exception()


def _close(left: Iterable[object]) -> None:
    """Close coroutines that were handed over and never begun; a function of `each` is not called for that."""
    for item in left:
        if inspect.iscoroutine(item):
            item.close()
