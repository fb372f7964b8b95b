"""Attempts of several branches at once: a task each, ended one by one or all together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from onward.clock import Clock
from onward.engine.loop.attempt import AttemptRunner

T = TypeVar("T")


class AttemptTasks(msgspec.Struct, Generic[T], eq=False):
    """Tasks by step. `done` is set whenever one of them is done."""

    _done: asyncio.Event
    _clock: Clock
    _tasks: dict[str, asyncio.Task[T]] = {}
    _runners: dict[str, AttemptRunner] = {}

    def start(self, step: str, attempt: Callable[[AttemptRunner], Coroutine[Any, Any, T]]) -> None:
        """Start an attempt beside the others."""
        runner = self._runners[step] = AttemptRunner(self._clock, for_one=True)
        task = self._tasks[step] = asyncio.create_task(attempt(runner))
        task.add_done_callback(lambda _: self._done.set())

    def take_done(self) -> list[T]:
        """The results of the attempts that are done; raises what one of them died of."""
        done = [step for step, task in self._tasks.items() if task.done()]
        for step in done:
            del self._runners[step]
        return [self._tasks.pop(step).result() for step in done]

    def interrupt(self, why: str, steps: Iterable[str] | None = None, *, patiently: bool = False) -> None:
        """End these attempts, or all of them; `patiently` as in `AttemptRunner.interrupt`."""
        for step in list(self._runners) if steps is None else steps:
            if step in self._runners:
                self._runners[step].interrupt(why, patiently=patiently)

    async def end_all(self) -> None:
        """End everything, and return when nothing is left of it."""
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
