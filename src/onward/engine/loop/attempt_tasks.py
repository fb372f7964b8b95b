"""Effects under way beside each other: one task each, ended one by one or all together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from onward.clock import Clock
from onward.engine.loop.attempt import Interrupter

T = TypeVar("T")


class Flights(Generic[T]):
    """Tasks by step. `landed` is called whenever one of them is done."""

    def __init__(self, landed: Callable[[], None], clock: Clock) -> None:
        self._landed, self._clock = landed, clock
        self._tasks: dict[str, asyncio.Task[T]] = {}
        self._interrupters: dict[str, Interrupter] = {}

    def launch(self, step: str, fly: Callable[[Interrupter], Awaitable[T]]) -> None:
        """Begin an effect beside the others."""
        interrupter = self._interrupters[step] = Interrupter(self._clock, for_one=True)

        async def flight() -> T:
            return await fly(interrupter)

        task = self._tasks[step] = asyncio.create_task(flight())
        task.add_done_callback(lambda _: self._landed())

    def take(self) -> list[T]:
        """What came of the effects that are done; raises what one of them died of."""
        done = [step for step, task in self._tasks.items() if task.done()]
        for step in done:
            del self._interrupters[step]
        return [self._tasks.pop(step).result() for step in done]

    def interrupt(self, why: str, steps: Iterable[str] | None = None, *, patiently: bool = False) -> None:
        """End these effects, or all of them; `patiently` as an Interrupter does."""
        for step in list(self._interrupters) if steps is None else steps:
            if step in self._interrupters:
                self._interrupters[step].interrupt(why, patiently=patiently)

    async def ground(self) -> None:
        """End everything, and return when nothing is left of it."""
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
