"""Handlers that play from a script and write down that they were called, outside of any store.

    ledger = Ledger()
    agent = Scripted({"review": [Result.retry("not yet"), Result.success()]}, ledger)

The nth execution of a node takes its nth act, and the last one repeats; a node without a script succeeds.
Which execution it is comes from the run's log, as for any handler. What the ledger says happened can then
be held against what the log says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from onward.handlers.port import StepContext
from onward.model.result import Result

Act = Result | BaseException | Callable[[StepContext], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Call:
    """One time that an effect was really performed."""

    run_id: str
    step: str
    node: str
    attempt: int
    idempotency_key: str
    fidelity: str
    thread: str


class Ledger:
    """Every effect that was performed, in order. It knows nothing of the store."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def note(self, step: StepContext) -> None:
        """An effect happens now."""
        self.calls.append(
            Call(
                run_id=step.run_id,
                step=step.step,
                node=step.node.id,
                attempt=step.attempt,
                idempotency_key=step.idempotency_key,
                fidelity=step.fidelity,
                thread=step.thread,
            )
        )

    @property
    def steps(self) -> list[str]:
        """The steps that were performed, once for each time."""
        return [call.step for call in self.calls]

    def attempts(self, node: str) -> list[int]:
        """The attempt numbers with which a node was called."""
        return [call.attempt for call in self.calls if call.node == node]


class Scripted:
    """A handler that does what its script says."""

    keeps_time = False

    def __init__(
        self, script: Mapping[str, Sequence[Act]] | None = None, ledger: Ledger | None = None
    ) -> None:
        self.script, self.ledger = dict(script or {}), ledger or Ledger()

    async def run(self, step: StepContext) -> Result:
        self.ledger.note(step)
        acts = self.script.get(step.node.id)
        if not acts:
            return Result.success()
        act = acts[min(step.execution, len(acts)) - 1]
        if isinstance(act, BaseException):
            raise act
        return act if isinstance(act, Result) else await act(step)


class Doorway:
    """An act that stands still inside its step until it is let through, so that a test can act meanwhile."""

    def __init__(self, result: Result | None = None) -> None:
        self._result = result or Result.success()
        self._entered, self._opened = asyncio.Event(), asyncio.Event()
        self.was_cancelled = False

    async def __call__(self, step: StepContext) -> Result:
        self._entered.set()
        try:
            await self._opened.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return self._result

    async def entered(self) -> None:
        """Until somebody stands inside."""
        await self._entered.wait()

    def open(self) -> None:
        """Let through whoever stands inside, and everybody after."""
        self._opened.set()
